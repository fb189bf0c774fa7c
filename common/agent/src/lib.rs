//! What the parts of host-agent share: how a session reads [`requests`] and writes its [`output`],
//! the [`notes`] to its watcher, the [`job`] that a tool has described, and the [`signals`] that
//! are meant for the processes of a job.

pub mod job;
pub mod notes;
pub mod output;
pub mod requests;
pub mod signals;
