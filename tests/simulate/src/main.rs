//! Runs schedules of faults: `simulate [--copies] [--seeds N] [--hosts M] [--first SEED]
//! [--trace]`.

#![allow(clippy::unwrap_used, reason = "a wrong argument ends it")]

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use simulate::copies;
use simulate::run::run;
use simulate::schedule::Schedule;
use std::collections::BTreeMap;
use std::ops::Range;
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str, otherwise: u64| {
        let position = words.iter().position(|word| word == name);
        let value = position.and_then(|position| words.get(position + 1));
        value.map_or(otherwise, |value| value.parse().unwrap())
    };
    let is_of_copies = words.iter().any(|word| word == "--copies");
    let hosts = number("--hosts", if is_of_copies { 4 } else { 8 });
    let seeds = number("--seeds", 1000);
    let (first, trace) = (
        number("--first", 0),
        words.iter().any(|word| word == "--trace"),
    );
    // the launcher's executor of each host has a descriptor
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
    if is_of_copies {
        return copies(first..first + seeds, hosts as usize, trace);
    }
    let begun = Instant::now();
    let (mut failed, mut steps, mut hours) = (0, 0, 0.0);
    let mut ends: BTreeMap<String, u32> = BTreeMap::new();
    for seed in first..first + seeds {
        let run = run(Schedule::new(seed, hosts as usize), trace);
        if let Some(text) = &run.trace {
            print!("{text}");
        }
        steps += run.steps;
        hours += run.time as f64 / 3.6e9;
        let end = run.end.split(',').next().unwrap_or_default();
        *ends.entry(end.to_owned()).or_default() += 1;
        failed += u64::from(report(seed, &run.violations));
    }
    let took = begun.elapsed().as_secs_f64();
    println!("{seeds} schedules of {hosts} hosts in {took:.1} s, {hours:.1} hours, {steps} steps");
    println!("ends: {ends:?}");
    println!("{failed} break an invariant");
    ExitCode::from(u8::from(failed > 0))
}

fn copies(seeds: Range<u64>, hosts: usize, trace: bool) -> ExitCode {
    let begun = Instant::now();
    let count = seeds.end - seeds.start;
    let (mut failed, mut steps) = (0, 0);
    for seed in seeds {
        let run = copies::run(seed, hosts, trace);
        if let Some(text) = &run.trace {
            print!("{text}");
        }
        steps += run.steps;
        failed += u64::from(report(seed, &run.violations));
    }
    let took = begun.elapsed().as_secs_f64();
    println!("{count} schedules of copies to {hosts} hosts in {took:.1} s, {steps} steps");
    println!("{failed} break an invariant");
    ExitCode::from(u8::from(failed > 0))
}

/// Says what is wrong with a schedule, if anything is.
fn report(seed: u64, violations: &[String]) -> bool {
    for what in violations {
        println!("seed {seed}: {what}");
    }
    !violations.is_empty()
}
