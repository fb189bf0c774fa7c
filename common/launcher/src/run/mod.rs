//! A job from its start to its end: [`launcher`] connects and starts it, [`event_loop`] runs it,
//! [`outcome`] reports how it ended; if it failed, the launcher may start it again.

pub mod event_loop;
pub mod hosts;
pub mod launcher;
mod moment;
pub mod outcome;
pub mod records;
pub mod signals;
mod stall;
mod usage;
