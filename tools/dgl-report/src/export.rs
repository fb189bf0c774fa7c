//! Profiles in the formats of other tools.

use crate::profiles;
use record::Profile;
use record::stacks;
use serde_json::{Value, json};
use std::collections::HashMap;

/// A line for each stack, the outermost frame first, with how often it was seen:
/// `trainer 0;<module> (train.py:9);step (train.py:4) 71`. flamegraph.pl, inferno and others read
/// it.
pub fn folded(all: &[Profile]) -> String {
    let mut text = String::new();
    for (profile, name, frames, samples) in stacks_of(all) {
        let process = profiles::name(profile);
        let above = (name != stacks::MAIN_THREAD).then(|| format!("thread {name}"));
        let words = [process].into_iter().chain(above).chain(frames);
        // what separates frames and lines stands in none
        let words = words.map(|word| word.replace([';', '\n', '\r'], " "));
        text += &format!("{} {samples}\n", words.collect::<Vec<_>>().join(";"));
    }
    text
}

/// A file for speedscope: a profile for each thread of each process, weighted by seconds.
pub fn speedscope(all: &[Profile]) -> String {
    let mut names: Vec<Value> = Vec::new();
    let mut positions: HashMap<String, usize> = HashMap::new();
    let mut threads: Vec<(String, Vec<Value>, Vec<f64>)> = Vec::new();
    for (profile, name, frames, samples) in stacks_of(all) {
        let title = format!("{}, {name}", profiles::name(profile));
        if threads.last().is_none_or(|last| last.0 != title) {
            threads.push((title, Vec::new(), Vec::new()));
        }
        let position = |frame: String| {
            *positions.entry(frame).or_insert_with_key(|frame| {
                names.push(frame_json(frame));
                names.len() - 1
            })
        };
        let stack: Vec<usize> = frames.into_iter().map(position).collect();
        if let Some((_, stacks, weights)) = threads.last_mut() {
            stacks.push(json!(stack));
            weights.push(f64::from(samples) / f64::from(profile.rate.max(1)));
        }
    }
    let profile = |(name, samples, weights): (String, Vec<Value>, Vec<f64>)| {
        json!({
            "type": "sampled", "name": name, "unit": "seconds", "startValue": 0,
            "endValue": weights.iter().sum::<f64>(), "samples": samples, "weights": weights,
        })
    };
    let file = json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": concat!("dgl-report ", env!("CARGO_PKG_VERSION")),
        "shared": {"frames": names},
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

/// All stacks with their processes and threads, the outermost frame first.
fn stacks_of(all: &[Profile]) -> Vec<(&Profile, &str, Vec<String>, u32)> {
    let mut stacks = Vec::new();
    for profile in profiles::latest(all) {
        for thread in &profile.threads {
            let name = thread.name.as_deref().unwrap_or("?");
            stacks.extend(thread.stacks.iter().map(|stack| {
                let mut frames = profile.frames_of(stack);
                frames.reverse();
                (profile, name, frames, stack.samples)
            }));
        }
    }
    stacks
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
