//! dgl-why on the records of a run of real DGL that break off; tests/cases/dgl_why.txt has what it
//! says of whole recordings.

#![allow(clippy::unwrap_used)] // a test that cannot go on fails

use record::jsonl::Head;
use record::run;
use verdict::{JobHistory, Run, RunOutcome, verdict};

/// Wherever the records end, there is a verdict, and it never reports a failure of a healthy run.
#[test]
fn records_that_break_off_anywhere() {
    let text = include_str!("recordings/healthy.jsonl");
    let lines: Vec<&str> = text.lines().collect();
    for count in 1..=lines.len() {
        let text = lines[..count].join("\n") + "\n";
        let mut run = Run::new(0);
        let add = |head: &Head, text: &[u8]| run.record(head, text);
        run::read_input("dgl-why", "records", text.as_bytes(), add).unwrap();
        let verdict = verdict(&JobHistory::of(&run).unwrap());
        assert_ne!(verdict.outcome, RunOutcome::Failed, "{count}");
        if verdict.outcome == RunOutcome::Waits {
            let text = &verdict.cause.text;
            let is_start = text.contains("listen") || text.contains("not started yet");
            assert!(is_start, "{count}: {text}");
        }
    }
}
