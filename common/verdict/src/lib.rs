//! Why a job ended, or what it waits for, from its records, in three steps that map values to
//! values: the evidence that each process gave, the judgement who was first and what only followed
//! from that, and the advice.

mod account;
pub mod advice;
pub mod evidence;
mod findings;
mod job;
mod judgement;
mod nccl;
mod run;
mod show;
pub mod silence;
mod skew;
pub mod syntax;
mod wait;

pub use findings::{Finding, Outcome, Verdict};
pub use job::{Job, Life, ProcessHistory};
pub use judgement::verdict;
pub use run::Run;
pub use show::{since, text};
