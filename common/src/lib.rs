//! What the tools share: the records and the stream they travel in, errors and exit statuses, and
//! the way to a host.

pub mod cli;
pub mod error;
pub mod exit;
pub mod host_client;
pub mod jsonl;
pub mod python;
pub mod quote;
pub mod record;
pub mod remote;
pub mod signal;
pub mod term;
