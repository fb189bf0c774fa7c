//! Profiles in the format of other tools.

use crate::profiles::{self, StackOfThread};
use record::Profile;
use record::stacks;
use record::term;

/// A line for each stack, the outermost frame first, with its number of samples: `trainer
/// 0;<module> (train.py:9);step (train.py:4) 71`. flamegraph.pl, speedscope and others read it.
pub fn folded(all: &[Profile]) -> String {
    let mut text = String::new();
    for (profile, (name, frames, stack)) in stacks_of(all) {
        let process = profiles::name(profile);
        let above = (name != stacks::MAIN_THREAD).then(|| format!("thread {name}"));
        let words = [process].into_iter().chain(above).chain(frames);
        // the separators of frames and lines must not occur within them
        let words = words.map(|word| term::plain(&word).replace([';', '\n', '\r'], " "));
        text += &format!(
            "{} {}\n",
            words.collect::<Vec<_>>().join(";"),
            stack.samples
        );
    }
    text
}

/// Stacks of all processes, as [`profiles::stacks_of`] gives them.
fn stacks_of(all: &[Profile]) -> impl Iterator<Item = (&Profile, StackOfThread<'_>)> {
    let latest = profiles::latest(all).into_iter();
    latest.flat_map(|profile| profiles::stacks_of(profile).map(move |stack| (profile, stack)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::Role;
    use record::profile::{CountedStack, ThreadProfile};

    fn profiles() -> Vec<Profile> {
        let stack = |frames: &[u32], samples| CountedStack {
            frames: frames.to_vec(),
            samples,
            ..CountedStack::default()
        };
        let thread = |name: &str, stacks| ThreadProfile {
            name: Some(name.to_owned()),
            stacks,
        };
        vec![Profile {
            role: Some(Role::Worker),
            rank: Some(3),
            rate: 10,
            samples: 10,
            frames: ["f;g\x1b[2J (a.py:1)", "<module> (b/c.py:9)"]
                .map(str::to_owned)
                .into(),
            threads: vec![
                thread("MainThread", vec![stack(&[0, 1], 7), stack(&[1], 3)]),
                thread("pin", vec![stack(&[0], 10)]),
            ],
            ..Profile::default()
        }]
    }

    #[test]
    fn folded_stacks_begin_with_the_process() {
        let expected = "worker 3;<module> (b/c.py:9);f g\\x1b[2J (a.py:1) 7\n\
                        worker 3;<module> (b/c.py:9) 3\n\
                        worker 3;thread pin;f g\\x1b[2J (a.py:1) 10\n";
        assert_eq!(folded(&profiles()), expected);
    }
}
