//! What connections tell of each recorded trial of tests/silence, beside the truth: a table and its
//! sums. `silence FILE…`; `--wrong` shows those that are not named.

use record::{Role, Stack};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::{self, Write as _};
use verdict::silence::Silence;

#[derive(Deserialize)]
struct Trial {
    operation: String,
    fault: String,
    /// The rank for which the others wait; `None` of a healthy job.
    rank: Option<u32>,
    /// Its role.
    role: Option<Role>,
    delay_ms: f64,
    size: u32,
    stacks: Vec<Stack>,
}

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    let mut sums: BTreeMap<&str, usize> = BTreeMap::new();
    for path in std::env::args().skip(1) {
        for line in std::fs::read_to_string(path)?.lines() {
            let trial: Trial = serde_json::from_str(line)?;
            let silence = Silence::of(&trial.stacks, None);
            let truth = trial
                .rank
                .map(|rank| (trial.role.unwrap_or(Role::Worker), rank));
            let result = match silence.culprit {
                None if truth.is_none() => "rightly abstained",
                None => "abstained",
                culprit if culprit == truth => "named",
                _ => "wrong",
            };
            *sums.entry(result).or_default() += 1;
            writeln!(
                out,
                "{result:18} {:>2} ranks {:>4} ms {:12} {:12} {:?}: {}",
                trial.size,
                trial.delay_ms,
                trial.operation,
                trial.fault,
                truth,
                silence.sentences.join("; ")
            )?;
        }
    }
    writeln!(out, "{sums:?}")
}
