//! What connections tell of recorded trials, beside the truth: the files *.jsonl of tests/silence,
//! or the file that `TRIALS` names. `make silence` records some and prints the table.

// a test that cannot go on fails
#![allow(clippy::unwrap_used)]

use record::stacks::{self, MAIN_THREAD};
use record::{Connection, Role, Stack, Thread};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use verdict::silence::Silence;

/// A job that was asked while something was wrong, or nothing; trials.py writes it.
#[derive(Deserialize)]
struct Trial {
    /// What the processes are: gloo, dgl, glt, glt_servers, mpi or perl.
    program: String,
    /// What all ranks do again and again.
    operation: String,
    /// What went wrong.
    fault: String,
    /// The process for which the others wait, or the address of the host whose link loses data.
    culprit: Option<String>,
    /// The number of ranks.
    size: u32,
    /// By how long packets from and to host 1 are late, in each direction.
    delay_ms: f64,
    /// Whether all hosts answered.
    is_whole: bool,
    processes: Vec<Process>,
}

#[derive(Deserialize)]
struct Process {
    role: Role,
    rank: u32,
    host: u32,
    #[serde(default)]
    is_child: bool,
    /// The frames of its main thread.
    frames: Option<Vec<String>>,
    /// The system call in which its main thread waits.
    system_call: Option<String>,
    links: Vec<Link>,
}

/// A connection: its port, the other host and its port; milliseconds since data were sent, came in
/// and were acknowledged; the round trip in microseconds; and the bytes that were not acknowledged,
/// not sent and not read. Zeros at its end are left out.
type Link = Vec<Option<u32>>;

impl Process {
    fn stack(&self) -> Stack {
        let thread = |frames| Thread {
            name: Some(MAIN_THREAD.to_owned()),
            frames,
            system_call: self.system_call.clone(),
            ..Thread::default()
        };
        let links = self.links.iter();
        Stack {
            host: self.host,
            role: Some(self.role),
            rank: Some(self.rank),
            parent: self.is_child.then_some(1),
            threads: self.frames.clone().map(thread).into_iter().collect(),
            connections: links.map(|link| connection(link, self.host)).collect(),
            ..Stack::default()
        }
    }
}

fn connection(link: &Link, host: u32) -> Connection {
    let field = |index: usize| link.get(index).copied().flatten();
    let number = |index| field(index).unwrap_or(0);
    let address =
        |host: u32, port: u32| SocketAddr::from(([10, 77, 0, host as u8 + 1], port as u16));
    Connection {
        local: address(host, number(0)),
        peer: address(number(1), number(2)),
        since_sent_ms: field(3),
        since_received_ms: field(4),
        since_acknowledged_ms: number(5),
        segments_sent: field(3).map_or(0, |_| 1),
        segments_received: field(4).map_or(0, |_| 1),
        round_trip_us: field(6),
        unacknowledged_bytes: number(7),
        unsent_bytes: number(8),
        unread_bytes: number(9),
    }
}

/// The answer to a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Answer {
    Named,
    Nobody,
    Wrong,
}

impl Trial {
    /// What is concluded from it, and that in words.
    fn answer(&self) -> (Answer, String) {
        let stacks: Vec<Stack> = self.processes.iter().map(Process::stack).collect();
        let silence = Silence::of(&stacks, self.is_whole, None);
        let named = silence.culprit.map(|member| stacks::names(&[member]));
        let text = silence.sentences.join("; ");
        let culprit = self.culprit.as_deref();
        let answer = match (named.as_deref(), &addresses(&silence.sentences)[..]) {
            (None, []) => Answer::Nobody,
            (Some(name), []) if Some(name) == culprit => Answer::Named,
            (None, [host]) if Some(*host) == culprit => Answer::Named,
            // one of them loses data
            (None, hosts) if hosts.len() > 1 && hosts.iter().any(|host| Some(*host) == culprit) => {
                Answer::Nobody
            }
            _ => Answer::Wrong,
        };
        (answer, text)
    }
}

/// The addresses of hosts in sentences.
fn addresses(sentences: &[String]) -> Vec<&str> {
    let words = sentences.iter().flat_map(|one| one.split([' ', ':']));
    words.filter(|word| word.starts_with("10.77.")).collect()
}

fn recorded() -> Vec<PathBuf> {
    if let Some(path) = std::env::var_os("TRIALS") {
        return vec![path.into()];
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/silence");
    let files = std::fs::read_dir(folder).unwrap();
    let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "jsonl"));
    files.sort();
    files
}

/// How many trials of a kind had which answer.
type Row = BTreeMap<Answer, usize>;

fn count(row: &Row, answer: Answer) -> usize {
    row.get(&answer).copied().unwrap_or(0)
}

#[test]
fn the_process_for_which_the_others_wait_is_named_and_no_other() {
    let mut table: BTreeMap<(String, String, String), Row> = BTreeMap::new();
    let (mut faulty, mut healthy) = (Row::new(), Row::new());
    for path in recorded() {
        for line in std::fs::read_to_string(path).unwrap().lines() {
            let trial: Trial = serde_json::from_str(line).unwrap();
            let (answer, text) = trial.answer();
            println!(
                "{answer:?}: {} {} {}, {} ranks, {} ms: {:?}: {text}",
                trial.program,
                trial.operation,
                trial.fault,
                trial.size,
                trial.delay_ms,
                trial.culprit,
            );
            let sum = match trial.culprit {
                Some(_) => &mut faulty,
                None => &mut healthy,
            };
            *sum.entry(answer).or_default() += 1;
            let delay = format!("{} ms", trial.delay_ms * 2.0);
            let row = table.entry((trial.program, trial.fault, delay));
            *row.or_default().entry(answer).or_default() += 1;
        }
    }
    println!(
        "| program | fault | delay | named | nobody named | wrong |\n|---|---|---|---|---|---|"
    );
    for ((program, fault, delay), row) in &table {
        let [named, nobody, wrong] =
            [Answer::Named, Answer::Nobody, Answer::Wrong].map(|one| count(row, one));
        println!("| {program} | {fault} | {delay} | {named} | {nobody} | {wrong} |");
    }
    println!("one is the cause: {faulty:?}; nobody is: {healthy:?}");
    for sum in [&faulty, &healthy] {
        assert_eq!(count(sum, Answer::Wrong), 0);
    }
    let (named, nobody) = (
        count(&faulty, Answer::Named),
        count(&faulty, Answer::Nobody),
    );
    assert!(named * 5 >= (named + nobody) * 4);
}
