//! The life of a job: state machines that open nothing and ask no clock.
//!
//! [`JobLife`] receives what happens, in order, and returns the [`JobAction`] to take.
//! [`Supervision`] does the same for the processes of one host.

mod engine;
mod machine;
mod model;
mod outbox;
mod pause;
mod stall;
mod supervision;
mod termination;

pub use engine::Step;
pub use machine::{JobLife, ProcessId, SERVERS_LINGER};
pub use model::{JobAction, JobMember, JobStalled, Progress};
pub use outbox::Outbox;
pub use pause::{PauseWatch, heartbeat};
pub use record::Role;
pub use stall::{SHORTEST_STALL, StallStep, StallWatch};
pub use supervision::{Machine, SURVEY_LIMIT, Supervision};
pub use termination::{STACKS_TIME, Termination, TerminationStep};
pub use wire::ending::{Cause, Ending, JobFailure, Limit, Loss, Reason, Rules, StallRule};
