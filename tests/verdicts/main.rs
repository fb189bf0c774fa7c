//! The score of verdicts: what dgl-why says of recorded ends and hangs, beside the truth that
//! README.md describes. `make verdicts` prints it, with every case that is not right.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test that cannot go on fails

use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use support::{advises_these_tools, host_record, root, scratch, sh, write};

/// What dgl-why said.
struct Said {
    /// The first sentence.
    explanation: String,
    /// The process or host that it names as the culprit.
    culprit: Option<String>,
    /// Whoever is named anywhere.
    named: Vec<String>,
    fix: String,
    /// All of it.
    text: String,
}

fn said(folder: &Path, file: &Path) -> Said {
    let ran = sh(folder, &format!("dgl-why --brief '{}'", file.display()));
    assert!([0, 1].contains(&ran.status), "{}", ran.err);
    let explanation = ran.out.lines().next().unwrap_or_default().to_owned();
    let of_cause = ran
        .out
        .lines()
        .take_while(|line| !line.starts_with("Also: "));
    let fixes = of_cause.filter_map(|line| line.strip_prefix("  fix: "));
    let abstains = explanation.contains("do not show which");
    Said {
        culprit: named(&explanation).into_iter().next().filter(|_| !abstains),
        named: named(&ran.out),
        fix: fixes.collect(),
        explanation,
        text: ran.out,
    }
}

/// The processes and hosts that a text names: `trainer 1 on host 1 (10.0.0.2)`, `host 1 (…)`.
fn named(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for (place, _) in text.match_indices("host ") {
        let Some((host, _)) = text[place..].split_once(')') else {
            continue;
        };
        let before: Vec<&str> = text[..place].split(' ').collect();
        match (before.as_slice(), host.contains(" (")) {
            ([.., role, rank, "on", ""], true) if rank.parse::<u32>().is_ok() => {
                names.push(format!("{role} {rank} on {host})"));
            }
            (_, true) => names.push(format!("{host})")),
            (_, false) => {}
        }
    }
    names
}

/// The groups of alternatives of which none is in the text.
fn missing<'a>(groups: &'a Value, text: &str) -> Vec<&'a Value> {
    let text = text.to_lowercase();
    let is_there = |word: &Value| text.contains(&word.as_str().unwrap().to_lowercase());
    let has_one = |group: &&Value| !group.as_array().unwrap().iter().any(is_there);
    groups
        .as_array()
        .into_iter()
        .flatten()
        .filter(has_one)
        .collect()
}

fn is_acceptable(who: &Value, name: &str) -> bool {
    let mut all = who.as_array().into_iter().flatten();
    all.any(|words| {
        let mut words = words.as_array().unwrap().iter();
        words.all(|word| name.contains(word.as_str().unwrap()))
    })
}

/// How many of how many.
#[derive(Default)]
struct Share {
    right: u32,
    all: u32,
}

impl Share {
    fn count(&mut self, is_right: bool) {
        self.right += u32::from(is_right);
        self.all += 1;
    }

    fn percent(&self) -> f64 {
        f64::from(self.right) * 100.0 / f64::from(self.all.max(1))
    }

    fn text(&self) -> String {
        format!("{} of {} ({:.1} %)", self.right, self.all, self.percent())
    }
}

#[derive(Default)]
struct Score {
    who: Share,
    /// Of those who are named.
    named: Share,
    why: Share,
    advice: Share,
    /// Of the cases that got one and have one.
    given: Share,
    /// Healthy jobs about which nothing is said.
    healthy: Share,
    wrong_names: u32,
    misleading: u32,
    messages: Share,
    /// Logs of torchrun and mpirun about the same ends: the process named, and the cause.
    log_who: Share,
    log_why: Share,
    /// Every miss: the name of its case, or the text of its message, and what was not right.
    missed: BTreeSet<String>,
    /// The same with what dgl-why said.
    misses: String,
}

impl Score {
    fn miss(&mut self, name: &str, what: &str) {
        self.missed.insert(format!("{name}: {what}"));
    }

    fn add(&mut self, name: &str, truth: &Value, said: &Said) {
        let mut problems = Vec::new();
        if truth["healthy"] == true {
            let begins = ["The job finished", "The job runs", "The job may have ended"];
            let is_fine = begins
                .iter()
                .any(|words| said.explanation.starts_with(words));
            let accused = said
                .named
                .iter()
                .any(|name| !is_acceptable(&truth["who"], name));
            self.wrong_names += u32::from(accused);
            self.healthy.count(is_fine && !accused);
            if !is_fine || accused {
                self.miss(name, "healthy");
                problems.push("it is healthy".to_owned());
            }
        } else {
            self.add_failure(name, truth, said, &mut problems);
        }
        if !problems.is_empty() {
            let (problems, explanation) = (problems.join("; "), &said.explanation);
            let text = format!(
                "{name}: {problems}\n    {explanation}\n    fix: {}\n",
                said.fix
            );
            self.misses += &text;
        }
    }

    fn add_failure(&mut self, name: &str, truth: &Value, said: &Said, problems: &mut Vec<String>) {
        let culprit = said.culprit.as_ref();
        let is_right = culprit.is_some_and(|name| is_acceptable(&truth["who"], name));
        let is_known = truth["who"].as_array().is_some_and(|who| !who.is_empty());
        if is_known {
            self.who.count(is_right);
        }
        if culprit.is_some() {
            self.named.count(is_right);
            self.wrong_names += u32::from(!is_right);
        }
        if !is_right && (is_known || culprit.is_some()) {
            self.miss(name, "who");
            problems.push(format!("it was {}", truth["who"]));
        }
        let why = missing(&truth["why"], &said.explanation);
        self.why.count(why.is_empty());
        if !why.is_empty() {
            self.miss(name, "why");
        }
        problems.extend(why.iter().map(|group| format!("why has none of {group}")));
        if truth["advice"].is_array() {
            let advice = missing(&truth["advice"], &said.fix);
            self.advice.count(advice.is_empty());
            if !advice.is_empty() {
                self.miss(name, "advice");
            }
            if !said.fix.is_empty() {
                self.given.count(advice.is_empty());
            }
            problems.extend(
                advice
                    .iter()
                    .map(|group| format!("advice has none of {group}")),
            );
        }
        let all = format!("{} {}", said.explanation, said.fix).to_lowercase();
        let is_said = |word: &&Value| all.contains(&word.as_str().unwrap().to_lowercase());
        let misleading: Vec<&Value> = truth["not"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(is_said)
            .collect();
        self.misleading += u32::from(!misleading.is_empty());
        problems.extend(misleading.iter().map(|word| format!("{word} misleads")));
    }

    /// Adds what dgl-why says of the logs that other launchers wrote about this end.
    fn add_logs(&mut self, name: &str, truth: &Value, folder: &Path, case: &Path) {
        for log in ["torchrun.txt", "mpirun.txt"] {
            let file = case.join(log);
            if file.exists() {
                self.add_log(&format!("{name}/{log}"), truth, &said(folder, &file));
            }
        }
    }

    fn add_log(&mut self, name: &str, truth: &Value, said: &Said) {
        assert!(!advises_these_tools(&said.text), "{name}: {}", said.text);
        let (_, rest) = said.explanation.split_once(": ").unwrap();
        let named: String = rest.split_inclusive(' ').take(2).collect();
        let named = named.replace("rank ", "worker ");
        let abstains = ["do not show which", "first is unknown"]
            .iter()
            .any(|words| said.explanation.contains(words));
        let is_right = is_acceptable(&truth["who"], named.trim());
        let is_wrong = named.starts_with("worker ") && !is_right && !abstains;
        let why = missing(&truth["why"], &said.explanation);
        self.log_who.count(is_right && !abstains);
        self.log_why.count(why.is_empty());
        self.wrong_names += u32::from(is_wrong);
        if !is_right || abstains {
            self.miss(name, "who");
        }
        if !why.is_empty() {
            self.miss(name, "why");
        }
        if is_wrong || !why.is_empty() {
            let text = format!(
                "{name}: it was {}, {why:?}\n    {}\n",
                truth["who"], said.explanation
            );
            self.misses += &text;
        }
    }

    /// Adds what dgl-why advises about each line of messages.jsonl.
    fn add_messages(&mut self, folder: &Path, cases: &Path) {
        let messages = std::fs::read_to_string(cases.join("messages.jsonl")).unwrap();
        for line in messages.lines() {
            let truth: Value = serde_json::from_str(line).unwrap();
            let message = truth["message"].as_str().unwrap();
            write(folder, "message.jsonl", records_of(message));
            let said = said(folder, &folder.join("message.jsonl"));
            let missed = missing(&truth["words"], &said.fix);
            let not = truth["not"].as_array().into_iter().flatten();
            let misleads = not
                .clone()
                .any(|word| said.fix.contains(word.as_str().unwrap()));
            self.messages.count(missed.is_empty() && !misleads);
            if !missed.is_empty() || misleads {
                self.miss(&truth["message"].to_string(), "advice");
                self.misses += &format!("{message}\n    fix: {}\n    {missed:?}\n", said.fix);
            }
        }
    }

    fn text(&self) -> String {
        format!(
            "{}who: {} named, of those named {} are right, {} wrong names\nwhy: {}\nadvice: {}, of \
             those given {}\nhealthy: nothing said of {}\nmisleading: {}\nmessages: {} with the \
             right advice\nlogs of other launchers: who {}, why {}\n",
            self.misses,
            self.who.text(),
            self.named.text(),
            self.wrong_names,
            self.why.text(),
            self.advice.text(),
            self.given.text(),
            self.healthy.text(),
            self.misleading,
            self.messages.text(),
            self.log_who.text(),
            self.log_why.text(),
        )
    }
}

/// The records of a worker that writes this message and exits with status 1.
fn records_of(message: &str) -> String {
    let (host, member) = (host_record(0, 1, "10.0.0.1"), ("worker", 0));
    let mut text = format!("{host}\n");
    let mut add = |record: Value| writeln!(text, "{record}").unwrap();
    add(
        json!({"type": "process", "id": 0, "of": 1, "host": 0, "ip": "10.0.0.1",
        "role": member.0, "rank": member.1, "env": {}, "argv": ["python3", "train.py"]}),
    );
    add(
        json!({"type": "started", "id": 0, "host": 0, "role": member.0, "rank": member.1,
        "pid": 9, "time_ms": 1000}),
    );
    for line in message.lines() {
        add(
            json!({"type": "output", "id": 0, "stream": "stderr", "line": line,
            "time_ms": 2000}),
        );
    }
    add(
        json!({"type": "exited", "id": 0, "host": 0, "role": member.0, "rank": member.1,
        "code": 1, "elapsed_ms": 1010}),
    );
    add(
        json!({"type": "summary", "ok": false, "code": 1, "cause": "process", "elapsed_ms": 1100,
        "first_failure": {"host": 0, "id": 0, "role": member.0, "rank": member.1, "code": 1}}),
    );
    text
}

/// The file has this text, however its lines are broken.
#[track_caller]
fn assert_says(file: &str, line: &str) {
    let text = std::fs::read_to_string(root().join(file)).unwrap();
    let words: Vec<&str> = text.split_whitespace().collect();
    assert!(words.join(" ").contains(line), "{file} lacks: {line}");
}

#[test]
fn slow_the_score_is_kept() {
    let (folder, cases) = (scratch(), root().join("tests/verdicts"));
    let mut score = Score::default();
    let entries = std::fs::read_dir(&cases).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    for name in names {
        let case = cases.join(&name);
        if let Ok(truth) = std::fs::read_to_string(case.join("truth.json")) {
            let truth = serde_json::from_str(&truth).expect(&name);
            score.add(&name, &truth, &said(&folder, &case.join("run.jsonl")));
            score.add_logs(&name, &truth, &folder, &case);
        }
    }
    score.add_messages(&folder, &cases);
    let text = score.text();
    println!("{text}");
    let (who, why, advice, healthy) = (&score.who, &score.why, &score.advice, &score.healthy);
    let line = format!(
        "it names the right process in {} of {} failures, the right cause in {} of {} and the \
         right fix in {} of {}; it accuses {} of {} healthy jobs",
        who.right,
        who.all,
        why.right,
        why.all,
        advice.right,
        advice.all,
        healthy.all - healthy.right,
        healthy.all,
    );
    assert_eq!(score.healthy.right, score.healthy.all, "{text}");
    assert_eq!((score.wrong_names, score.misleading), (0, 0), "{text}");
    let known = std::fs::read_to_string(cases.join("misses.txt")).unwrap();
    let line_of = |miss: &String| format!("{miss}\n");
    let known: BTreeSet<String> = known.lines().map(str::to_owned).collect();
    let new: String = score.missed.difference(&known).map(line_of).collect();
    let right: String = known.difference(&score.missed).map(line_of).collect();
    assert!(
        new.is_empty() && right.is_empty(),
        "{text}\nnot in misses.txt:\n{new}\nin misses.txt, but right:\n{right}"
    );
    assert_says("README.md", &line);
    let messages = &score.messages;
    let line = format!(
        "over the {cases} cases: who {} of {}, why {} of {}, advice {} of {}, no wrong names, no \
         false alarms; {} of the {} messages get the right advice",
        who.right,
        who.all,
        why.right,
        why.all,
        advice.right,
        advice.all,
        messages.right,
        messages.all,
        cases = why.all + healthy.all,
    );
    assert_says("tests/verdicts/README.md", &line);
}
