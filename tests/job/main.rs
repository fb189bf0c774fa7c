//! A job from the checks before its start to the report on its end.

// a test that cannot go on fails
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// one cluster serves all steps of a test, and takes longer to start than they do
#![allow(clippy::too_many_lines)]

mod any;
mod checks;
mod dry_run;
mod faults;
mod leave;
mod lifetime;
mod preflight;
mod programs;
mod pythons;
mod reap;
mod report;
mod spawn;
mod stacks;
mod stall;
mod supervise;
mod terminal;
mod two_jobs;
mod why;
mod workers;
