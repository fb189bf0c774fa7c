//! The verdicts of dgl-why on real runs of DGL that failed; `make recordings` made the records.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test that cannot go on fails

use record::Role;
use verdict::{Conclusion, JobFinding, JobHistory, Run, RunOutcome, verdict};

use std::path::Path;

/// The directories of the recordings, by the version of DGL: 1.0.4, and 2.1.0 with torch 2.2.
const VERSIONS: [&str; 2] = ["", "2.1.0/"];

fn recording(name: &str) -> String {
    let file = format!("tests/recordings/{name}.jsonl");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn of(text: &str) -> Conclusion {
    let run = Run::of(text.as_bytes(), 0, &|_| Ok(())).unwrap();
    verdict(&JobHistory::of(&run).unwrap())
}

/// The culprit: the host, and the role and rank of a process.
type Account = Option<(u32, Option<(Role, u32)>)>;

fn account(finding: &JobFinding) -> Account {
    let culprit = finding.culprit.as_ref()?;
    Some((culprit.host, culprit.role.zip(culprit.rank)))
}

const TRAINER_1: Account = Some((1, Some((Role::Trainer, 1))));
const WORKER_3: Account = Some((1, Some((Role::Worker, 3))));
const SERVER_1: Account = Some((1, Some((Role::Server, 1))));

#[expect(clippy::too_many_lines, reason = "it is a table of cases")]
#[test]
fn verdicts_of_runs_that_failed() {
    let table: [(&str, Account, &[&str]); 16] = [
        (
            "trainer-raises",
            TRAINER_1,
            &["trainer 1 on host 1 (10.77.0.2) raised RuntimeError: rank 1 fails in epoch 1"],
        ),
        (
            "trainer-raises-and-stays",
            TRAINER_1,
            &[
                "time limit was over: trainer 1 on host 1 (10.77.0.2) raised ValueError: loss \
                 is not a number",
                "did not end: it waits at DGL's exit barrier",
                "trainers 0 and 2 wait for it",
            ],
        ),
        (
            "trainer-raises-and-stalls",
            TRAINER_1,
            &[
                "it stalled: trainer 1 on host 1 (10.77.0.2) raised ValueError: loss is not a \
                 number",
                "did not end: it waits at DGL's exit barrier",
                "trainers 0 and 2 wait for it in train (train.py:",
            ],
        ),
        (
            "trainer-stalls-in-barrier",
            TRAINER_1,
            &[
                "it stalled: trainer 1 on host 1 (10.77.0.2) waits in a barrier for all others \
                     [go_wrong (faulty.py:",
                "while trainers 0 and 2 wait for all others in DDP's backward pass \
                     [train (train.py:",
            ],
        ),
        (
            "trainer-hangs-in-barrier",
            TRAINER_1,
            &[
                "trainer 1 on host 1 (10.77.0.2) waits in a barrier for all others \
                     [go_wrong (faulty.py:",
                "while trainers 0 and 2 wait for all others in DDP's backward pass \
                     [train (train.py:",
            ],
        ),
        (
            "sampler-killed",
            TRAINER_1,
            &[
                "trainer 1 on host 1 (10.77.0.2) waits for its samplers [train (train.py:",
                "of which none is there any more",
            ],
        ),
        (
            "server-out-of-memory",
            SERVER_1,
            &[
                "server 1 on host 1 (10.77.0.2) was killed by the kernel because memory ran out",
                "the limit of a container or of a batch job",
            ],
        ),
        (
            "network-cut",
            Some((2, None)),
            &["host 2 (10.77.0.3) was lost: nothing was heard of it for 5 s"],
        ),
        (
            "shm-full",
            SERVER_1,
            &[
                "was ended by SIGBUS, as by a /dev/shm that is full; before the \
                     start 1.0 MB were free",
            ],
        ),
        (
            "ddp-loader",
            WORKER_3,
            &[
                "it stalled: worker 3 on host 1 (10.77.0.2) is in __getitem__ (ddp.py:",
                ", while workers 0, ",
                "for all others in DDP's forward pass [train (ddp.py:",
                "wait for all others in DDP's backward pass [train (ddp.py:",
            ],
        ),
        (
            "ddp-barrier",
            WORKER_3,
            &[
                "it stalled: worker 3 on host 1 (10.77.0.2) is in write_checkpoint (ddp.py:",
                "while workers 0, 1, 2, 4 and 5 wait in a barrier for all others [go_wrong",
            ],
        ),
        (
            "ddp-all-reduce",
            WORKER_3,
            &[
                "it stalled: worker 3 on host 1 (10.77.0.2) waits in a collective operation for \
                 all others [forward (ddp.py:",
                "while workers 0, 1, 2, 4 and 5 wait for all others in DDP's backward pass",
            ],
        ),
        (
            "ddp-native",
            WORKER_3,
            &["it stalled: worker 3 on host 1 (10.77.0.2) is in go_wrong (ddp.py:"],
        ),
        (
            "ddp-stopped",
            WORKER_3,
            &["it stalled: worker 3 on host 1 (10.77.0.2) is stopped by a signal"],
        ),
        (
            "ddp-swallowed",
            WORKER_3,
            &[
                "it stalled: worker 3 on host 1 (10.77.0.2) waits, after the end of its script, \
                 for its own threads",
            ],
        ),
        // half of them wait elsewhere, so there is no outlier
        (
            "ddp-half",
            None,
            &[
                "it stalled: workers 0, 2 and 4 wait for all others in DDP's backward pass",
                "; workers 1, 3 and 5 wait in a collective operation for all others [forward",
            ],
        ),
    ];
    let recorded = table
        .iter()
        .flat_map(|row| VERSIONS.map(|version| (version, row)));
    for (version, (fault, whose, text_begin)) in recorded {
        let name = &format!("{version}{fault}");
        let (verdict, whose) = (of(&recording(name)), *whose);
        let text = &verdict.cause.text;
        assert_eq!(verdict.outcome, RunOutcome::Failed, "{name}: {text}");
        // which of the servers fills its /dev/shm first is chance
        if *fault != "shm-full" {
            assert_eq!(account(&verdict.cause), whose, "{name}: {text}");
        }
        for part in *text_begin {
            assert!(text.contains(part), "{name}: {part}: {text}");
        }
        assert!(verdict.cause.since_ms.is_some(), "{name}");
        assert!(verdict.cause.evidence.len() > 1, "{name}");
        assert!(verdict.others.is_empty(), "{name}: {:?}", verdict.others);
    }
}

/// Of jobs without DGL; tests/job/why.rs and tests/dgl/servers.rs make such records anew.
#[test]
fn verdicts_of_runs_that_no_host_has_ended() {
    let table = [
        (
            "attached-raises",
            Some((2, Some((Role::Worker, 2)))),
            Some(956),
            "worker 2 on host 2 (127.0.0.3) raised KeyError: 'loss' [train.py:3]",
        ),
        (
            "graph-server-killed",
            None,
            None,
            "the graph servers that it used have ended, first on host 2 (127.0.0.3): ended by \
             SIGKILL",
        ),
        (
            "launcher-stopped",
            None,
            None,
            "the launcher was stopped for 9.2 s; no host was lost",
        ),
    ];
    for (name, whose, after_ms, text) in table {
        let Conclusion { outcome, cause, .. } = of(&recording(name));
        assert_eq!(
            (outcome, &*cause.text),
            (RunOutcome::Failed, text),
            "{name}"
        );
        assert_eq!(account(&cause), whose, "{name}");
        let end_ms = after_ms.map(|after| 1_795_545_871_203 + after);
        assert_eq!(cause.since_ms, end_ms, "{name}");
    }
    // a verdict does not invent records that were left out
    let attached = recording("attached-raises");
    let without: Vec<&str> = attached
        .lines()
        .filter(|line| !line.contains(r#""type":"process""#))
        .collect();
    let verdict = of(&without.join("\n"));
    assert_eq!(verdict.cause.text, table[0].3);
    let missing = "3 process records are missing in the records";
    assert!(verdict.others.iter().any(|other| other.text == missing));
}

#[test]
fn verdicts_of_runs_that_ended_well() {
    let table: [(&str, Account, &str); 3] = [
        ("healthy", None, ""),
        (
            "slow-host",
            Some((2, None)),
            "host 2 (10.77.0.3) is slow: its servers listened",
        ),
        (
            "uneven-partitions",
            Some((0, None)),
            "the partition of host 0 (10.77.0.1) has 9.2 MB, those of the others 1.9 MB",
        ),
    ];
    let recorded = table
        .iter()
        .flat_map(|row| VERSIONS.map(|version| (version, row)));
    for (version, (run, whose, text_begin)) in recorded {
        let name = &format!("{version}{run}");
        let verdict = of(&recording(name));
        assert_eq!(verdict.outcome, RunOutcome::EndedWell, "{name}");
        assert_eq!(verdict.others.first().and_then(account), *whose, "{name}");
        match verdict.others.as_slice() {
            [] => assert!(
                verdict::text(&verdict, true).ends_with("Nothing unusual.\n"),
                "{name}"
            ),
            [one] => assert!(one.text.starts_with(text_begin), "{name}: {}", one.text),
            _ => panic!("{name}: {:?}", verdict.others),
        }
    }
}

/// The records before the end of the job began.
fn unfinished(name: &str) -> String {
    recording(name)
        .lines()
        .filter(|line| !line.contains(r#""while_ending":true"#))
        .filter(|line| !line.contains(r#""type":"summary""#))
        .map(|line| format!("{line}\n"))
        .collect()
}

/// A sample of host 0 this long after the last line of these records.
fn later(text: &str, after_ms: u64) -> String {
    let times = text.lines().filter_map(|line| {
        let record: serde_json::Value = serde_json::from_str(line).ok()?;
        record["time_ms"].as_u64()
    });
    let time_ms = times.max().unwrap() + after_ms;
    format!(
        "{text}{{\"type\":\"sample\",\"host\":0,\"time_ms\":{time_ms},\
             \"interval_ms\":5000,\"cpu_s\":0.1}}\n"
    )
}

#[test]
fn verdicts_of_runs_that_go_on() {
    // before the end the records have the exception; for a barrier and for samplers they only show
    // that all are silent; and a job that has just started is not unusual
    let table: [(&str, u64, RunOutcome, Account, &str); 7] = [
        // a stall is reported while the job runs
        (
            "trainer-stalls-in-barrier",
            0,
            RunOutcome::Waits,
            TRAINER_1,
            "trainer 1 on host 1 (10.77.0.2) waits in a barrier for all others",
        ),
        (
            "trainer-raises-and-stays",
            0,
            RunOutcome::Waits,
            TRAINER_1,
            "trainer 1 on host 1 (10.77.0.2) raised ValueError: loss is not a number",
        ),
        (
            "trainer-hangs-in-barrier",
            300_000,
            RunOutcome::Waits,
            None,
            "no trainer or worker has written a line for 5 min 0 s",
        ),
        (
            "sampler-killed",
            300_000,
            RunOutcome::Waits,
            None,
            "no trainer or worker has written a line for 5 min 0 s",
        ),
        (
            "trainer-hangs-in-barrier",
            5_000,
            RunOutcome::Runs,
            None,
            "6 processes",
        ),
        (
            "trainer-raises",
            0,
            RunOutcome::Failed,
            TRAINER_1,
            "trainer 1 on host 1 (10.77.0.2) raised RuntimeError",
        ),
        (
            "healthy",
            0,
            RunOutcome::Runs,
            None,
            "all processes have ended",
        ),
    ];
    for (name, after_ms, outcome, whose, text_begin) in table {
        let verdict = of(&later(&unfinished(name), after_ms));
        let text = &verdict.cause.text;
        assert_eq!(verdict.outcome, outcome, "{name}: {text}");
        assert_eq!(account(&verdict.cause), whose, "{name}: {text}");
        assert!(text.starts_with(text_begin), "{name}: {text}");
    }
}

/// Wherever the records end, there is a verdict, and it never reports a failure of a healthy run.
#[test]
fn records_that_break_off_anywhere() {
    let text = recording("healthy");
    let lines: Vec<&str> = text.lines().collect();
    for count in 1..=lines.len() {
        let verdict = of(&(lines[..count].join("\n") + "\n"));
        assert_ne!(verdict.outcome, RunOutcome::Failed, "{count}");
        if verdict.outcome == RunOutcome::Waits {
            let text = &verdict.cause.text;
            let is_start = text.contains("listen") || text.contains("not started yet");
            assert!(is_start, "{count}: {text}");
        }
    }
}

#[expect(
    clippy::too_many_lines,
    reason = "records of each kind are added to the same run"
)]
/// Records of other tools add stacks, a stall, samples.
#[test]
fn stacks_stalls_and_samples_tell_more() {
    let base = unfinished("trainer-hangs-in-barrier");
    let begun: u64 = 4_000_000_000_000;
    let stack = |rank: u32, pid: u32, frames: &str| {
        format!(
            "{{\"type\":\"stack\",\"job\":\"j\",\"host\":{rank},\"id\":{},\
                 \"role\":\"trainer\",\"rank\":{rank},\"pid\":{pid},\
                 \"command\":\"python3\",\"threads\":[{{\"name\":\"Thread-1\",\"tid\":9,\
                 \"active\":false,\"frames\":[\"wait (threading.py:1)\"]}},\
                 {{\"name\":\"MainThread\",\"tid\":{pid},\"active\":false,\
                 \"frames\":[{frames}]}}],\"time_ms\":{begun}}}",
            rank + 3
        )
    };
    let reduce =
        r#""all_reduce (distributed_c10d.py:9)","train (train.py:8)","<module> (train.py:1)""#;
    let open = r#""load (data.py:7)","train (train.py:8)","<module> (train.py:1)""#;
    let sampler = r#""get (queues.py:1)","spawn_main (spawn.py:1)""#;
    let stalled = format!(
        "{{\"type\":\"stalled\",\"since_ms\":{},\"silent_s\":60.0,\"reason\":\"No \
             process has written, computed or sent anything.\",\"time_ms\":{begun}}}",
        begun - 60_000
    );
    let all = [
        base.trim_end(),
        &stack(0, 10, reduce),
        &stack(1, 11, open),
        &stack(1, 12, sampler),
        &stack(2, 13, reduce),
        &stalled,
    ];
    let verdict = of(&all.join("\n"));
    assert_eq!(verdict.outcome, RunOutcome::Waits);
    assert_eq!(account(&verdict.cause), TRAINER_1, "{}", verdict.cause.text);
    assert_eq!(
        verdict.cause.text,
        "trainer 1 on host 1 (10.77.0.2) is in train (train.py:8) load (data.py:7), while \
         trainers 0 and 2 wait in a collective operation for all others [train (train.py:8)]"
    );
    assert_eq!(verdict.cause.since_ms, Some(begun - 60_000));

    // it shows activity again, and is silent no longer than before
    let resumed = format!(
        "{{\"type\":\"resumed\",\"since_ms\":9,\"time_ms\":{}}}",
        begun + 1
    );
    let verdict = of(&[base.trim_end(), &stalled, &resumed].join("\n"));
    assert!(!verdict.cause.text.contains("written, computed or sent"));

    let named = stalled.replace(
        r#""time_ms""#,
        r#""culprit":{"host":2,"id":5,"role":"trainer","rank":2},"time_ms""#,
    );
    let verdict = of(&[base.trim_end(), &named].join("\n"));
    assert_eq!(account(&verdict.cause), Some((2, Some((Role::Trainer, 2)))));
    assert_eq!(
        verdict.cause.text,
        "trainer 2 on host 2 (10.77.0.3): No process has written, computed or sent anything"
    );

    let sample = |host: u32, cpu_s: f64, used: u64| {
        format!(
            "{{\"type\":\"sample\",\"host\":{host},\"time_ms\":{begun},\
                 \"interval_ms\":5000,\"cpu_s\":{cpu_s},\"cpus\":8,\
                 \"mem_used_bytes\":{used},\"mem_bytes\":1000000000}}"
        )
    };
    let healthy = recording("healthy");
    let samples = [
        sample(0, 5.0, 1),
        sample(1, 5.5, 990_000_000),
        sample(2, 20.0, 1),
    ];
    let verdict = of(&format!("{healthy}{}\n", samples.join("\n")));
    let texts: Vec<&str> = verdict.others.iter().map(|one| one.text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "host 2 (10.77.0.3) used 4.0 processors on average, the others 1.1",
            "the memory of host 1 (10.77.0.2) was full: 990 MB of 1.0 GB"
        ]
    );
}

#[test]
fn messages_that_users_look_up_come_with_what_to_do() {
    let table = [
        (
            "ncclInvalidUsage: Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 30",
            "CUDA_VISIBLE_DEVICES={local_rank}",
        ),
        ("No module named 'dgl'", "host-probe --conda NAME"),
        (
            "CUDA out of memory. Tried to allocate 2.00 GiB",
            "--min gpu",
        ),
        ("[Errno 98] Address already in use", "dgl-reap --list"),
    ];
    for (message, fix) in table {
        let text = recording("trainer-raises")
            .replace("rank 1 fails in epoch 1, as it was told to", message);
        let cause = of(&text).cause;
        assert!(cause.text.contains(message), "{}", cause.text);
        let known = cause.fix.as_ref().is_some_and(|found| found.contains(fix));
        assert!(known, "{message}: {:?}", cause.fix);
    }
    assert_eq!(of(&recording("trainer-raises")).cause.fix, None);
}

#[test]
fn advice_that_the_run_followed_is_not_given_again() {
    let text = recording("trainer-raises").replace(
        "RuntimeError: rank 1 fails in epoch 1, as it was told to",
        "RuntimeError: CUDA error: device-side assert triggered",
    );
    let fix = |text: &str| of(text).cause.fix.unwrap();
    let both = fix(&text);
    let followed = text.replace(r#""env":{}"#, r#""env":{"CUDA_LAUNCH_BLOCKING":"1"}"#);
    assert!(both.starts_with("run it once with dgl-env --env CUDA_LAUNCH_BLOCKING=1, "));
    assert_eq!(fix(&followed), both.split_once("; ").unwrap().1);
}

#[test]
fn what_nccl_gave_up_comes_with_how_to_analyse_it() {
    let text = recording("trainer-raises");
    let raised = "rank 1 fails in epoch 1, as it was told to";
    let signs = [
        "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)",
        "To avoid data inconsistency, we are taking the entire process down.",
        "Received a dump signal due to a collective timeout from rank 0",
        "NCCL communicator was aborted on rank 1. ",
    ];
    let found = |text: &str| {
        let all = of(text).others.into_iter();
        let mut nccl = all.filter(|one| one.text.starts_with("NCCL gave up"));
        (nccl.next(), nccl.count())
    };
    for sign in signs {
        let (finding, more) = found(&text.replace(raised, sign));
        let finding = finding.expect(sign);
        let place = "NCCL gave up an operation in trainer 1 on host 1 (10.77.0.2), which need not";
        assert!(finding.text.starts_with(place), "{}", finding.text);
        assert_eq!(more, 0);
        let fix = finding.fix.unwrap();
        assert!(fix.starts_with("let host-probe find the GPUs"), "{fix}");
    }
    assert_eq!(found(&text), (None, 0));

    for name in ["TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"] {
        let dumps = format!(r#""env":{{"{name}":"/my job/train_nccl_trace_rank_"}}"#);
        let text = text
            .replace(raised, signs[0])
            .replace(r#""env":{}"#, &dumps);
        let fix = found(&text).0.unwrap().fix.unwrap();
        let expected = "look at torch's dumps, '/my job/train_nccl_trace_rank_'N on each host: \
                        ipconf-check ip_config.txt | part-pull --workspace '/my job' --to dumps \
                        'train_nccl_trace_rank_*' && torchfrtrace --prefix train_nccl_trace_rank_ \
                        dumps (of torch 2.10 or later; man dgl-tools-trouble)";
        assert_eq!(fix, expected);
    }
}

#[expect(clippy::too_many_lines, reason = "it is a table of cases")]
/// Failures that only follow from another one, tries, and ends without a failure.
#[test]
fn what_dgl_spawn_noted_is_weighed() {
    let text = recording("trainer-raises");
    let echo = text.replace(
        "RuntimeError: rank 1 fails in epoch 1, as it was told to",
        "RuntimeError: [../gloo/pair.cc] Connection closed by peer [10.77.0.3]",
    );
    let raised = [
        "Traceback (most recent call last):",
        "  File \\\"train.py\\\", line 1, in <module>",
        "KeyError: 7",
    ]
    .map(|line| {
        format!(
            "{{\"type\":\"output\",\"id\":5,\"stream\":\"stderr\",\"line\":\"{line}\",\
             \"time_ms\":9000000000000}}"
        )
    });
    let verdict = of(&format!("{echo}{}\n", raised.join("\n")));
    assert_eq!(account(&verdict.cause), Some((2, Some((Role::Trainer, 2)))));
    let text_begin = "trainer 2 on host 2 (10.77.0.3) raised KeyError: 7 [train.py:1]; that ended \
                      the connections of others, of which one failed first: trainer 1";
    assert!(
        verdict.cause.text.starts_with(text_begin),
        "{}",
        verdict.cause.text
    );

    let summary = |rest: &str| {
        format!(
            "{}{{\"type\":\"summary\",\"ok\":false,{rest},\"elapsed_ms\":9}}\n",
            unfinished("trainer-hangs-in-barrier")
        )
    };
    let table = [
        (
            summary(r#""code":130,"cause":"signal""#),
            RunOutcome::Interrupted,
            "dgl-spawn got SIGINT",
        ),
        (
            summary(r#""code":74,"cause":"preflight""#),
            RunOutcome::NotStarted,
            "the checks before the start",
        ),
        (
            summary(r#""code":124,"cause":"timeout""#),
            RunOutcome::Failed,
            "its time limit was over; the records do not show",
        ),
        (
            summary(concat!(
                r#""code":124,"cause":"timeout","first_failure":{"host":1,"id":1,"#,
                r#""role":"server","rank":1,"error":"does not listen after 60 s"}"#
            )),
            RunOutcome::Failed,
            "server 1 on host 1 (10.77.0.2) does not listen after 60 s",
        ),
        (
            summary(concat!(
                r#""code":137,"cause":"process","first_failure":{"host":2,"id":5,"#,
                r#""role":"trainer","rank":2,"signal":"KILL","reaped":true}"#
            )),
            RunOutcome::Interrupted,
            "trainer 2 on host 2 (10.77.0.3) was ended by dgl-reap",
        ),
        (
            summary(concat!(
                r#""code":74,"cause":"servers","first_failure":{"host":2,"#,
                r#""role":"server","signal":"KILL"}"#
            )),
            RunOutcome::Failed,
            "the graph servers that it used have ended, first on host 2 (10.77.0.3): ended by \
             SIGKILL",
        ),
        (
            summary(r#""code":1,"cause":"process","first_failure":{"host":2,"code":1}"#),
            RunOutcome::Failed,
            "a process on host 2 (10.77.0.3) exited with status 1; the records do not say which",
        ),
        (
            summary(concat!(
                r#""code":137,"cause":"process","first_failure":{"host":2,"id":5,"#,
                r#""role":"trainer","rank":2,"signal":"KILL"}"#
            )),
            RunOutcome::Failed,
            "trainer 2 on host 2 (10.77.0.3) was ended by SIGKILL, which neither dgl-spawn nor",
        ),
        (
            summary(concat!(
                r#""code":139,"cause":"process","first_failure":{"host":2,"id":5,"#,
                r#""role":"trainer","rank":2,"signal":"SEGV"}"#
            )),
            RunOutcome::Failed,
            "trainer 2 on host 2 (10.77.0.3) was ended by SIGSEGV",
        ),
    ];
    for (text, outcome, text_begin) in table {
        let verdict = of(&text);
        assert_eq!(verdict.outcome, outcome, "{}", verdict.cause.text);
        assert!(
            verdict.cause.text.starts_with(text_begin),
            "{}",
            verdict.cause.text
        );
    }

    // the second try counts
    let first = recording("trainer-raises");
    let second: String = recording("healthy")
        .lines()
        .filter(|line| {
            !["host", "process"]
                .iter()
                .any(|kind| line.contains(&format!(r#""type":"{kind}""#)))
        })
        .map(|line| {
            // an hour later
            let mut record: serde_json::Value = serde_json::from_str(line).unwrap();
            if let Some(time_ms) = record["time_ms"].as_u64() {
                record["time_ms"] = (time_ms + 3_600_000).into();
            }
            format!("{record}\n")
        })
        .collect();
    let first: String = first
        .lines()
        .filter(|line| !line.contains(r#""type":"summary""#))
        .map(|line| format!("{line}\n"))
        .collect();
    let verdict = of(&(first + &second));
    assert_eq!(verdict.outcome, RunOutcome::EndedWell);
    let [tries] = &verdict.others[..] else {
        panic!("{:?}", verdict.others)
    };
    assert_eq!(tries.text, "this was try 2 of the job");
    assert!(
        tries.evidence[0].contains(r#""code":1"#),
        "{:?}",
        tries.evidence
    );
}

#[test]
fn a_failure_is_found_though_the_try_before_it_is_known_in_part() {
    // the host of trainer 1 was lost in the first try, so its end there is unknown
    let process = |id: u32| {
        format!(r#"{{"type":"process","id":{id},"of":2,"host":{id},"ip":"10.0.0.{id}","#,)
            + &format!(r#""role":"trainer","rank":{id},"env":{{}},"argv":["x"]}}"#)
    };
    let started = |id: u32, time_ms: u64| {
        format!(r#"{{"type":"started","id":{id},"host":{id},"role":"trainer","rank":{id},"#)
            + &format!(r#""pid":7,"time_ms":{time_ms}}}"#)
    };
    let exited = |id: u32, end: &str| {
        format!(r#"{{"type":"exited","id":{id},"host":{id},"role":"trainer","rank":{id},"#)
            + &format!(r#"{end},"elapsed_ms":50}}"#)
    };
    let records = [
        process(0),
        process(1),
        started(0, 1000),
        started(1, 1000),
        exited(0, r#""signal":"TERM","while_ending":true"#),
        started(0, 2000),
        started(1, 2000),
        exited(1, r#""code":3"#),
        exited(0, r#""signal":"TERM","while_ending":true"#),
    ];
    let verdict = of(&records.join("\n"));
    assert_eq!(account(&verdict.cause), TRAINER_1, "{}", verdict.cause.text);
}

#[test]
fn a_slow_rank_is_named_where_it_stands_out_and_nobody_where_none_does() {
    let named = of(&recording("slow-ddp-100")).others.remove(0);
    assert_eq!(account(&named), WORKER_3);
    let words = "worker 3 on host 1 (10.77.0.2) is in prepare (ddp.py:92) in 74 % of 200 samples; \
                 workers 0, 1, 2, 4 and 5 wait for all others in DDP's backward pass \
                 [train_slowly (ddp.py:102)] in 58 %";
    assert_eq!(named.text, words);
    for name in ["slow-ddp-20", "slow-ddp-0"] {
        let verdict = of(&recording(name));
        assert_eq!(
            (verdict.outcome, verdict.others),
            (RunOutcome::EndedWell, Vec::new()),
            "{name}"
        );
    }
}
