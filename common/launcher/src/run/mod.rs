//! A job from its start to its end: [`launcher`] connects and starts it, [`event_loop`] runs it,
//! [`outcome`] reports how it ended; if it failed, the launcher may start it again.

mod end_times;
pub mod event_loop;
pub mod events;
pub mod executor;
mod host_states;
pub mod launcher;
mod multiplexer;
pub mod outcome;
mod process_table;
mod profile_timer;
pub mod records;
pub mod signals;
mod stall;
mod stall_reporter;
