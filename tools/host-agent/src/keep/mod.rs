//! Jobs that outlive their launcher.
//!
//!     launcher ══ stdin, stdout ══> relay ══ socket pair ══> keeper ══ pipes ══> host-agent,
//!                                                              ║ TLS              which supervises
//!                                                            keeper of the first host, which leads
//!     launcher ══ stdin, stdout ══> follow ── Unix socket ──> keeper
//!                                      └── reads what the keeper writes: the journal, and a log
//!                                          for each process
//!
//! [`relay`] is the process that was asked to keep a job. [`keeper`] runs in a session of its own
//! and takes the launcher's place: for the agent that supervises it is the launcher, and when it is
//! gone that agent ends the job. [`listener`] lets the keepers of other hosts in. [`folder`],
//! [`journal`] and [`file_writer`] store what happens, [`follow`] reports it to whoever attaches,
//! and [`orders`] takes orders back to the keeper. [`servers`] handles persistent graph servers.

mod file_writer;
pub mod folder;
pub mod follow;
mod journal;
mod keeper;
mod listener;
mod orders;
mod pipes;
pub mod relay;
pub mod servers;

pub use keeper::keep;
