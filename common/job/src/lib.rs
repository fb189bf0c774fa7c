//! The life of a job: state machines that open nothing and ask no clock.
//!
//! [`JobLife`] receives what happens, in order, and returns what to do on all hosts.
//! [`Supervision`] does the same for the processes of one host.

mod job_events;
mod job_life;
mod model;
mod outbox;
mod pause;
mod stall;
mod supervision;
mod termination;

pub use job_events::Step;
pub use job_life::{JobEnd, JobLife, ProcessId, SERVERS_LINGER};
pub use model::{JobMember, JobStalled, Progress};
pub use outbox::Outbox;
pub use pause::{PauseWatch, heartbeat};
pub use record::Role;
pub use stall::{SHORTEST_STALL, StallStep, StallWatch};
pub use supervision::{SURVEY_LIMIT, SupervisedHost, Supervision};
pub use termination::{STACKS_TIME, Termination, TerminationStep};
pub use wire::ending::{Cause, Ending, JobFailure, Limit, Loss, Reason, Rules, StallRule};
