//! Profiles in the formats of other tools.

use crate::profiles::{self, Frames, StackOfThread};
use record::Profile;
use record::stacks;
use serde_json::{Value, json};

/// A line for each stack, the outermost frame first, with how often it was seen:
/// `trainer 0;<module> (train.py:9);step (train.py:4) 71`. flamegraph.pl, inferno and others read
/// it.
pub fn folded(all: &[Profile]) -> String {
    let mut text = String::new();
    for (profile, (name, frames, stack)) in stacks_of(all) {
        let process = profiles::name(profile);
        let above = (name != stacks::MAIN_THREAD).then(|| format!("thread {name}"));
        let words = [process].into_iter().chain(above).chain(frames);
        // what separates frames and lines stands in none
        let words = words.map(|word| word.replace([';', '\n', '\r'], " "));
        text += &format!(
            "{} {}\n",
            words.collect::<Vec<_>>().join(";"),
            stack.samples
        );
    }
    text
}

/// A file for speedscope: a profile for each thread of each process, weighted by seconds.
pub fn speedscope(all: &[Profile]) -> String {
    let mut shared = Frames::default();
    let mut threads: Vec<(String, Vec<Value>, Vec<f64>)> = Vec::new();
    for (profile, (name, frames, stack)) in stacks_of(all) {
        let title = format!("{}, {name}", profiles::name(profile));
        if threads.last().is_none_or(|last| last.0 != title) {
            threads.push((title, Vec::new(), Vec::new()));
        }
        let frames: Vec<u32> = frames.iter().map(|frame| shared.position(frame)).collect();
        if let Some((_, stacks, weights)) = threads.last_mut() {
            stacks.push(json!(frames));
            weights.push(f64::from(stack.samples) / f64::from(profile.rate.max(1)));
        }
    }
    let profile = |(name, samples, weights): (String, Vec<Value>, Vec<f64>)| {
        json!({
            "type": "sampled", "name": name, "unit": "seconds", "startValue": 0,
            "endValue": weights.iter().sum::<f64>(), "samples": samples, "weights": weights,
        })
    };
    let names = shared.names.iter().map(|name| frame_json(name));
    let file = json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": concat!("dgl-report ", env!("CARGO_PKG_VERSION")),
        "shared": {"frames": names.collect::<Vec<_>>()},
        "profiles": threads.into_iter().map(profile).collect::<Vec<_>>(),
    });
    format!("{file}\n")
}

/// `step (train.py:4)` by its parts.
fn frame_json(frame: &str) -> Value {
    let parts = frame.rsplit_once(" (").and_then(|(function, location)| {
        let (file, line) = location.strip_suffix(')')?.rsplit_once(':')?;
        Some((function, file, line.parse::<u32>().ok()?))
    });
    match parts {
        Some((name, file, line)) => json!({"name": name, "file": file, "line": line}),
        None => json!({"name": frame}),
    }
}

/// The stacks of all processes, as [`profiles::stacks_of`] has those of one.
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
            frames: ["f;g (a.py:1)", "<module> (b/c.py:9)"]
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
        let expected = "worker 3;<module> (b/c.py:9);f g (a.py:1) 7\n\
                        worker 3;<module> (b/c.py:9) 3\n\
                        worker 3;thread pin;f g (a.py:1) 10\n";
        assert_eq!(folded(&profiles()), expected);
    }

    #[test]
    fn speedscope_has_a_profile_for_each_thread() {
        let file: Value = serde_json::from_str(&speedscope(&profiles())).unwrap();
        let module = json!({"name": "<module>", "file": "b/c.py", "line": 9});
        assert_eq!(file["shared"]["frames"][0], module);
        let main = &file["profiles"][0];
        assert_eq!(
            (&main["name"], &main["endValue"]),
            (&json!("worker 3, MainThread"), &json!(1.0))
        );
        assert_eq!(
            (&main["samples"], &main["weights"]),
            (&json!([[0, 1], [0]]), &json!([0.7, 0.3]))
        );
        assert_eq!(file["profiles"][1]["name"], "worker 3, pin");
    }
}
