//! A job from its start to its end: [`launcher`] connects and starts, [`event_loop`] lives through
//! it, [`outcome`] tells how it ended, and where it failed the launcher perhaps starts it again.

pub mod event_loop;
pub mod hosts;
pub mod launcher;
pub mod outcome;
pub mod signals;
mod stall;
mod usage;
