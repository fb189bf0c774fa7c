//! The output of a job for users and programs: records or tagged lines on stdout, a log file for
//! each process, and a status line on a terminal.

pub mod fold;
pub mod lines;
pub mod log_dir;
pub mod queue;
pub mod sink;
pub mod status;
