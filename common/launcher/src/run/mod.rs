//! A job from start to end: [`launcher`] connects and starts it, [`dispatcher`] decides while it
//! runs, [`executor`] talks to a host, [`events`] has what both exchange, and [`outcome`] reports
//! how it ended; if it failed, the launcher may start it again.

pub mod dispatcher;
pub mod events;
pub mod executor;
pub mod launcher;
pub mod outcome;
mod process_table;
pub mod signals;
mod stall;
