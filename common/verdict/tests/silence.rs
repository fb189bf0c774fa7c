//! What connections tell of recorded trials, beside the truth: tests/silence/trials.jsonl, or the
//! file that `TRIALS` names. `make silence` records some and prints the table.

use record::stacks::MAIN_THREAD;
use record::{Connection, Role, Stack, Thread};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use verdict::silence::Silence;

/// A job of torch over gloo in which one rank does not come; trials.py writes it.
#[derive(Deserialize)]
struct Trial {
    /// What all ranks do again and again.
    operation: String,
    /// What the rank does instead, or `none` and `all_sleep` of a healthy job.
    fault: String,
    /// The rank for which the others wait, if they do.
    rank: Option<u32>,
    /// The number of ranks.
    size: u32,
    /// By how long packets from and to host 1 are late, in each direction.
    delay_ms: f64,
    processes: Vec<Process>,
}

#[derive(Deserialize)]
struct Process {
    rank: u32,
    host: u32,
    /// The frames of its main thread.
    frames: Option<Vec<String>>,
    links: Vec<Link>,
}

/// A connection to another rank: its rank, the number of the connection, milliseconds since data
/// were sent, came in and were acknowledged, the round trip in microseconds, and the bytes that
/// were not acknowledged and not read.
#[derive(Deserialize)]
struct Link(
    u32,
    u16,
    Option<u32>,
    Option<u32>,
    u32,
    Option<u32>,
    u32,
    u32,
);

impl Process {
    fn stack(self) -> Stack {
        let thread = |frames| Thread {
            name: Some(MAIN_THREAD.to_owned()),
            frames,
            ..Thread::default()
        };
        Stack {
            host: self.host,
            role: Some(Role::Worker),
            rank: Some(self.rank),
            threads: self.frames.map(thread).into_iter().collect(),
            connections: self
                .links
                .iter()
                .map(|link| link.connection(self.rank))
                .collect(),
            ..Stack::default()
        }
    }
}

impl Link {
    fn connection(&self, rank: u32) -> Connection {
        let Link(peer, number, sent, received, acknowledged, round_trip, unacknowledged, unread) =
            *self;
        let address = |rank: u32| SocketAddr::from(([10, 77, 0, rank as u8], number));
        Connection {
            local: address(rank),
            peer: address(peer),
            since_sent_ms: sent,
            since_received_ms: received,
            since_acknowledged_ms: acknowledged,
            segments_sent: sent.map_or(0, |_| 1),
            segments_received: received.map_or(0, |_| 1),
            round_trip_us: round_trip,
            unacknowledged_bytes: unacknowledged,
            unsent_bytes: 0,
            unread_bytes: unread,
        }
    }
}

#[test]
fn the_rank_for_which_the_others_wait_is_named_and_no_other() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let recorded = root.join("tests/silence/trials.jsonl");
    let path = std::env::var_os("TRIALS").map_or(recorded, PathBuf::from);
    let text = std::fs::read_to_string(path).unwrap();
    let mut sums: BTreeMap<&str, usize> = BTreeMap::new();
    for line in text.lines() {
        let trial: Trial = serde_json::from_str(line).unwrap();
        let stacks: Vec<Stack> = trial.processes.into_iter().map(Process::stack).collect();
        let silence = Silence::of(&stacks, None);
        let result = match (silence.culprit.map(|(_, rank)| rank), trial.rank) {
            (None, None) => "healthy, nobody named",
            (None, Some(_)) => "nobody named",
            (named, rank) if named == rank => "named",
            _ => "wrong",
        };
        *sums.entry(result).or_default() += 1;
        println!(
            "{result:22} {:>2} ranks {:>4} ms {:12} {:12} {:?}: {}",
            trial.size,
            trial.delay_ms,
            trial.operation,
            trial.fault,
            trial.rank,
            silence.sentences.join("; ")
        );
    }
    println!("{sums:?}");
    assert_eq!(sums.get("wrong"), None, "{sums:?}");
    let (named, not) = (
        sums["named"],
        sums.get("nobody named").copied().unwrap_or(0),
    );
    assert!(named * 5 >= (named + not) * 4, "{sums:?}");
}
