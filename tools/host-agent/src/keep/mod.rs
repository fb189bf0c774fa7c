//! Jobs that outlive their launcher.
//!
//!     launcher ══ stdin, stdout ══> relay ══ socket pair ══> keeper ══ pipes ══> host-agent,
//!                                                              ║ TLS              which supervises
//!                                                            keeper of the first host, which leads
//!     launcher ══ stdin, stdout ══> follow ── Unix socket ──> keeper
//!                                      └── reads what the keeper writes: the journal, and a log
//!                                          for each process
//!
//! [`relay`] is the process that was asked to keep a job; [`keeper`] is one in a session of its own
//! that takes the launcher's place: to the agent that supervises it is the launcher, and when it is
//! gone that agent ends the job. [`leader`] is the policy of the first host, [`guests`] how the
//! others come to it; [`folder`] and [`journal`] are what is written down; [`follow`] tells it to
//! whoever comes back, and [`orders`] is the way back to the keeper. [`servers`] are jobs that
//! other jobs use.

mod folder;
pub mod follow;
mod guests;
mod journal;
mod keeper;
mod leader;
mod orders;
mod pipes;
pub mod relay;
pub mod servers;

pub use keeper::keep;
