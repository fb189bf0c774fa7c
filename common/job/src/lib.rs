//! The life of a job: a state machine that opens nothing and asks no clock.
//!
//! [`Job`] is told what happens, in the order in which it happens, and answers with the [`Action`]
//! that is to be taken. The same machine decides in a launcher that stays attached and, for a job
//! that outlives its launcher, in the agent of the first host.

mod engine;
mod machine;
mod model;
mod pause;
mod stall;

pub use engine::Step;
pub use machine::{Job, ONE_SIGNAL, ProcessId, SERVERS_LINGER};
pub use model::{Action, Mode, Progress};
pub use pause::{PauseWatch, heartbeat};
pub use record::Role;
pub use stall::{SHORTEST_STALL, StallStep, StallWatch};
pub use wire::ending::{
    Cause, Ending, Exit, ExitStatus, JobFailure, Limit, Loss, Reason, Rules, StallRule,
};
pub use wire::keep::Member;
