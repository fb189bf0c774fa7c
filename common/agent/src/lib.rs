//! What the parts of host-agent share: how a session reads [`requests`] and writes its [`output`],
//! the [`notes`] to its watcher, the [`job`] that a tool has described, the [`signals`] that are
//! meant for a job's processes, and how [`supervisors`] on this host are found and asked.

pub mod job;
pub mod notes;
pub mod output;
pub mod requests;
pub mod signals;
pub mod supervisors;
