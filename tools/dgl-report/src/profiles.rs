//! The section on where the time went: a bar for each process, and data for flame.js, which draws
//! flame graphs.

use maud::{Markup, PreEscaped, html};
use record::profile::{self, CountedStack, Slow, TimeShares};
use record::stacks;
use record::{Profile, term};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

const SCRIPT: &str = include_str!("flame.js");
/// Frames of a stack that are drawn at most: the tree is walked by recursion, here and in the
/// browser. A host sends 120, but records may come from elsewhere.
const MAX_DEPTH: usize = 500;

/// The latest profile of each process, in the order of display.
pub fn latest(profiles: &[Profile]) -> Vec<&Profile> {
    let mut latest: BTreeMap<_, &Profile> = BTreeMap::new();
    for profile in profiles.iter().filter(|profile| profile.samples > 0) {
        latest.insert(
            (
                profile.role,
                profile.is_child(),
                profile.rank,
                profile.host,
                profile.pid,
            ),
            profile,
        );
    }
    latest.into_values().collect()
}

/// `trainer 1`, `child 4180 of trainer 1`
pub fn name(profile: &Profile) -> String {
    let process = match (profile.role, profile.rank) {
        (Some(role), Some(rank)) => format!("{} {rank}", role.name()),
        _ => format!("process {} on host {}", profile.pid, profile.host),
    };
    if profile.is_child() {
        format!("child {} of {process}", profile.pid)
    } else {
        process
    }
}

/// The name of a thread, one of its stacks with the outermost frame first, and that stack's counts.
pub type StackOfThread<'a> = (&'a str, Vec<String>, &'a CountedStack);

pub fn stacks_of(profile: &Profile) -> impl Iterator<Item = StackOfThread<'_>> {
    profile.threads.iter().flat_map(move |thread| {
        let name = thread.name.as_deref().unwrap_or("?");
        thread.stacks.iter().map(move |stack| {
            let mut frames = profile.frames_of(stack);
            frames.reverse();
            (name, frames, stack)
        })
    })
}

/// Empty if no process was recorded.
pub fn section(profiles: &[Profile]) -> Markup {
    let latest = latest(profiles);
    let Some(longest) = latest.iter().map(|profile| profile.elapsed_ms).max() else {
        return html! {};
    };
    html! {
        section aria-labelledby="time" {
            h2 id="time" { "Where the time went" }
            p {
                "Main threads, over " (term::seconds(Duration::from_millis(longest))) "; a line is "
                "the innermost one of the user's own code."
            }
            p.legend.shares {
                @for (class, words) in KINDS { span.(class) { (words) } }
            }
            @for profile in latest.iter().filter(|profile| !profile.is_child()) { (bar(profile)) }
            (flames(&latest, profile::slow(profiles).as_ref()))
        }
    }
}

const KINDS: [(&str, &str); 4] = [
    ("computing", "computes"),
    ("loading", "waits for samplers or loaders"),
    ("servers", "waits for servers or remote calls"),
    ("others", "waits for other ranks"),
];

fn bar(profile: &Profile) -> Markup {
    let TimeShares {
        others,
        servers,
        loading,
        computing,
    } = TimeShares::of(profile);
    let shares = [computing, loading, servers, others];
    let percent = |share: f64| format!("{:.0}%", share * 100.0);
    let words = KINDS
        .iter()
        .zip(shares)
        .filter(|(_, share)| *share >= 0.005);
    let words: Vec<String> = words
        .map(|((_, words), share)| format!("{words} {}", percent(share)))
        .collect();
    html! {
        details.row.shares {
            summary {
                span.name { (name(profile)) }
                span.track title=(words.join(", ")) {
                    @for ((class, _), share) in KINDS.iter().zip(shares) {
                        span.(class) style={ "width:" (format!("{:.2}%", share * 100.0)) } {}
                    }
                }
                span.end { span.hidden { (words.join(", ")) } (percent(others)) " waiting" }
            }
            table {
                @for line in profile.lines().iter().take(10) {
                    tr {
                        td { (percent(f64::from(line.samples) / f64::from(profile.samples))) }
                        td.line { (term::plain(&line.words())) }
                    }
                }
            }
        }
    }
}

/// The graphs with their choices, hidden unless a script draws them.
fn flames(latest: &[&Profile], slow: Option<&Slow>) -> Markup {
    let data = data(latest);
    let slow = slow.and_then(|slow| slow.members.first());
    let slow = slow.map(|(role, rank)| format!("{} {rank}", role.name()));
    // so that the data cannot end the element
    let text = data.to_string().replace('<', "\\u003c");
    let subjects = data["subjects"].as_array().map_or(&[][..], Vec::as_slice);
    html! {
        noscript { p { "Flame graphs need a browser that runs scripts. For other tools: "
            code { "dgl-report --format folded" } "." } }
        div id="flames" hidden {
            p {
                label { "Search " input type="search" placeholder="function, file or line"; }
                " Click, or Enter: only this frame and what it called. Arrows: from frame to "
                "frame. Escape: everything."
            }
            div.graphs {
                @for graph in 0..2usize {
                    div.graph {
                        select aria-label={ "process of graph " (graph + 1) } {
                            @if graph > 0 { option value="" { "beside it: nobody" } }
                            @for (index, subject) in subjects.iter().enumerate() {
                                @let name = subject["name"].as_str().unwrap_or_default();
                                @let is_slow = slow.as_deref() == Some(name);
                                option value=(index) selected[graph > 0 && is_slow] { (name) }
                            }
                        }
                        div.flame {}
                        p {}
                    }
                }
            }
        }
        script id="profiles" type="application/json" { (PreEscaped(text)) }
        script { (PreEscaped(SCRIPT)) }
    }
}

#[derive(Default)]
struct FrameNode {
    samples: u32,
    active: u32,
    called: BTreeMap<u32, FrameNode>,
}

impl FrameNode {
    fn json(&self, frame: u32) -> Value {
        let called = self.called.iter().map(|(frame, node)| node.json(*frame));
        json!([frame, self.samples, self.active, called.collect::<Vec<_>>()])
    }
}

/// The data for flame.js: all frames; the number of samples and the trees of threads of each
/// process; and the choices, names with the indices of their processes.
fn data(latest: &[&Profile]) -> Value {
    let mut frames = Frames::default();
    let trees = latest.iter().map(|profile| trees(profile, &mut frames));
    let trees: Vec<Value> = trees.collect();
    let mut subjects = kinds(latest);
    subjects.extend(
        latest
            .iter()
            .enumerate()
            .map(|(index, profile)| (name(profile), vec![index])),
    );
    let subjects = subjects.into_iter();
    let subjects = subjects.map(|(name, processes)| json!({"name": name, "processes": processes}));
    json!({
        "frames": frames.names,
        "processes": trees,
        "looks": latest.iter().map(|profile| profile.samples).collect::<Vec<_>>(),
        "subjects": subjects.collect::<Vec<_>>(),
    })
}

/// The kinds with several processes.
fn kinds(latest: &[&Profile]) -> Vec<(String, Vec<usize>)> {
    let mut kinds: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (index, profile) in latest.iter().enumerate() {
        kinds
            .entry((profile.is_child(), profile.role))
            .or_default()
            .push(index);
    }
    kinds.retain(|_, processes| processes.len() > 1);
    let named = kinds.into_iter().map(|((is_child, role), processes)| {
        let of = role.map_or_else(|| "processes".to_owned(), |role| role.names());
        let name = if is_child {
            format!("all {} children of {of}", processes.len())
        } else {
            format!("all {} {of}", processes.len())
        };
        (name, processes)
    });
    named.collect()
}

/// Each name once.
#[derive(Default)]
pub struct Frames {
    pub names: Vec<String>,
    positions: HashMap<String, u32>,
}

impl Frames {
    pub fn position(&mut self, frame: &str) -> u32 {
        if let Some(position) = self.positions.get(frame) {
            return *position;
        }
        let position = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.names.push(term::plain(frame).into_owned());
        self.positions.insert(frame.to_owned(), position);
        position
    }
}

/// The threads of a process; the main one has only its frames.
fn trees(profile: &Profile, frames: &mut Frames) -> Value {
    let mut root = FrameNode::default();
    for (name, called, stack) in stacks_of(profile) {
        let above = (name != stacks::MAIN_THREAD).then(|| format!("thread {name}"));
        let mut node = &mut root;
        for frame in above.iter().chain(&called).take(MAX_DEPTH) {
            node = node.called.entry(frames.position(frame)).or_default();
            node.samples += stack.samples;
            node.active += stack.active;
        }
    }
    let trees = root.called.iter().map(|(frame, node)| node.json(*frame));
    Value::Array(trees.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::Role;
    use record::profile::{CountedStack, ThreadProfile};

    fn profile(rank: u32, parent: Option<u32>) -> Profile {
        let stack = |frames: &[u32], samples| CountedStack {
            frames: frames.to_vec(),
            samples,
            active: 1,
            visits: 1,
        };
        let thread = |name: &str, stacks| ThreadProfile {
            name: Some(name.to_owned()),
            stacks,
        };
        Profile {
            role: Some(Role::Trainer),
            rank: Some(rank),
            pid: 40 + rank,
            parent,
            samples: 10,
            frames: ["f (a.py:1)", "</script> (a.py:2)", "<module> (a.py:9)"]
                .map(str::to_owned)
                .into(),
            threads: vec![
                thread("MainThread", vec![stack(&[0, 2], 7), stack(&[1, 2], 3)]),
                thread("loader", vec![stack(&[0], 10)]),
            ],
            ..Profile::default()
        }
    }

    #[test]
    fn what_is_drawn_is_a_tree_of_each_process_from_the_outermost_frame() {
        let (one, other) = (profile(0, None), profile(1, None));
        let data = data(&[&one, &other]);
        let frames = data["frames"].as_array().unwrap();
        let position_of = |name: &str| frames.iter().position(|frame| frame == name).unwrap();
        let [module, f, end] =
            ["<module> (a.py:9)", "f (a.py:1)", "</script> (a.py:2)"].map(position_of);
        let loader = position_of("thread loader");
        let mut trees = data["processes"][0].as_array().unwrap().clone();
        trees.sort_by_key(|tree| tree[0] != module);
        let main = json!([module, 10, 2, [[f, 7, 1, []], [end, 3, 1, []]]]);
        assert_eq!(trees, [main, json!([loader, 10, 1, [[f, 10, 1, []]]])]);
        let names: Vec<&Value> = data["subjects"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| &one["name"])
            .collect();
        assert_eq!(names, ["all 2 trainers", "trainer 0", "trainer 1"]);
    }

    #[test]
    fn the_depth_of_a_tree_is_limited() {
        let mut deep = profile(0, None);
        let frames = &mut deep.threads[0].stacks[0].frames;
        *frames = frames.iter().copied().cycle().take(150_000).collect();
        let mut tree = &trees(&deep, &mut Frames::default())[0];
        let mut depth = 0;
        while let Some(called) = tree[3].as_array() {
            depth += 1;
            let deepest = called.iter().max_by_key(|one| one[3] != json!([]));
            tree = deepest.unwrap_or(&Value::Null);
        }
        assert_eq!(depth, MAX_DEPTH);
    }

    #[test]
    fn of_each_process_the_latest_profile_is_shown_and_nothing_ends_the_script() {
        let child = profile(1, Some(41));
        let later = Profile {
            samples: 20,
            ..profile(0, None)
        };
        let all = [profile(0, None), child, profile(1, None), later];
        let shown: Vec<(String, u32)> = latest(&all)
            .into_iter()
            .map(|profile| (name(profile), profile.samples))
            .collect();
        let expected = [
            ("trainer 0", 20),
            ("trainer 1", 10),
            ("child 41 of trainer 1", 10),
        ];
        assert_eq!(
            shown,
            expected.map(|(name, samples)| (name.to_owned(), samples))
        );
        let html = section(&all).into_string();
        assert!(!html.contains("</script> (a.py"), "{html}");
        assert!(section(&[]).into_string().is_empty());
    }
}
