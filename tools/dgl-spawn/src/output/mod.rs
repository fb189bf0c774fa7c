//! What people and programs see of a job: records or tagged lines on stdout, a file a process, and
//! one line of status on a terminal.

pub mod fold;
pub mod lines;
pub mod queue;
pub mod sink;
pub mod status;
