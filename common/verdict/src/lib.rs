//! Finds from a job's records why it ended or what it waits for, in three steps that map values to
//! values: each process's evidence; the judgement which process was first and which failures only
//! followed; and the advice.

mod account;
pub mod advice;
mod findings;
mod job;
mod judgement;
pub mod logs;
mod nccl;
mod run;
mod shell;
mod show;
pub mod silence;
mod skew;
mod wait;
mod words;

pub use findings::{Conclusion, JobFinding, RunOutcome};
pub use job::{JobHistory, Life, ProcessHistory};
pub use judgement::verdict;
pub use run::Run;
pub use show::{since, text};
pub use wait::first_raiser;
