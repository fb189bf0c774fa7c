//! How long the logs of jobs with many processes take.

// a test that cannot go on fails
#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;
use verdict::logs::{LogFile, Logs};

/// The logs of this many ranks.
type Log = fn(usize) -> Vec<String>;

fn srun(ranks: usize) -> String {
    (0..ranks).fold(String::new(), |mut log, rank| {
        writeln!(
            log,
            "[rank{rank}]: Traceback (most recent call last):\n\
             [rank{rank}]: E: {rank}\n\
             srun: error: gpu1: task {rank}: Exited with exit code 1"
        )
        .unwrap();
        log
    })
}

fn torchrun(ranks: usize) -> String {
    (0..ranks).fold(String::new(), |mut log, rank| {
        writeln!(log, "failed (exitcode: 1) local_rank: {rank} (pid: 7)").unwrap();
        log
    })
}

fn spawn(ranks: usize) -> String {
    (0..ranks).fold(String::new(), |mut log, rank| {
        writeln!(
            log,
            "host{rank}: Traceback (most recent call last):\n\
             host{rank}: E: {rank}\n\
             host{rank}: torch.multiprocessing.spawn.ProcessExitedException: process {rank} \
             terminated with exit code 7"
        )
        .unwrap();
        log
    })
}

/// How long this thread has used a processor, in hundredths of a second.
fn ticks() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    let (_, fields) = text.rsplit_once(") ").unwrap();
    let times = fields.split(' ').skip(11).take(2);
    times.map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

fn ticks_of(files: &[String]) -> u64 {
    let begin = ticks();
    let mut logs = Logs::default();
    for (number, text) in files.iter().enumerate() {
        let file = LogFile::named(&format!("{number}.log"));
        logs.read(&file, text.as_bytes()).unwrap();
    }
    assert!(verdict::verdict(&logs.history()).cause.text.len() > 1);
    ticks() - begin
}

#[test]
fn the_time_grows_with_the_ranks_and_not_with_their_square() {
    let logs: [(&str, Log); 4] = [
        ("srun", |ranks| vec![srun(ranks)]),
        ("torchrun", |ranks| vec![torchrun(ranks)]),
        ("spawn", |ranks| vec![spawn(ranks)]),
        ("a file for each rank", |ranks| {
            let lines = |rank| {
                format!("[rank{rank}]: Traceback (most recent call last):\n[rank{rank}]: E: 1\n")
            };
            (0..ranks).map(lines).collect()
        }),
    ];
    for (name, log) in logs {
        let (few, many) = (ticks_of(&log(2_000)), ticks_of(&log(16_000)));
        assert!(many <= 32 * few.max(5), "{name}: {few} and {many} ticks");
    }
}

#[test]
fn the_writers_of_a_log_have_a_limit() {
    let log: String = (0..20_000)
        .map(|rank| format!("[rank{rank}]: ValueError: {rank}\n"))
        .collect();
    let mut logs = Logs::default();
    logs.read(&LogFile::named("job.log"), log.as_bytes())
        .unwrap();
    let job = logs.history();
    assert!(job.processes.len() < 17_000, "{}", job.processes.len());
    let others = job.processes.iter().filter(|history| {
        let name = history.name.as_deref();
        name == Some("one of the other processes")
    });
    let lines: u64 = others.map(|history| history.evidence.count).sum();
    assert!(lines > 3_000, "{lines}");
}
