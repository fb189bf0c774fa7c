//! Every schedule of faults: a launcher and its agents on simulated hosts, by simulated clocks, in
//! one thread. A seed decides the job, the faults, and the order of all that happens.
//!
//! What runs is the real code: the launcher's dispatcher and its executors, with the sessions
//! and the encoding of messages below them; the supervision of a host's processes, its outbox, and
//! how processes are ended. README.md says what is simulated, and what is not.
//!
//! [`copies`] has the schedules of pushes and pulls. For jobs, [`schedule`] draws a job and its
//! faults, [`world`] has the queue of what happens, [`connection`] and [`host`] are what the real
//! code sees of networks and hosts, [`run`] runs a schedule, and [`check`] has the invariants.

#![allow(
    clippy::unwrap_used,
    reason = "a simulator that is wrong ends, as a test does"
)]
#![allow(clippy::too_many_lines, reason = "as in other tests")]

pub mod check;
pub mod connection;
pub mod copies;
pub mod host;
pub mod random;
pub mod run;
pub mod schedule;
pub mod time;
pub mod world;
