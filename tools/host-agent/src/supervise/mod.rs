//! The processes of a job while they live: started, watched, relayed, ended. Nothing of them is
//! left, whichever process is killed.
//!
//!     launcher ══ stdin, stdout ══> guardian ──> supervisor ──> host-agent run,
//!                                                               which becomes the process
//!
//! [`guardian`] is the process that was asked to start; [`watch`] is the supervisor's event loop;
//! [`end`] decides how the job is ended; [`members`] finds the processes of the job and signals
//! them; [`signs`] reports whether they give signs of life.

mod activity;
mod end;
mod exceptions;
mod gpus;
mod guardian;
mod listen;
mod members;
mod memory;
mod outbox;
pub mod private;
mod shm;
mod signals;
mod signs;
mod standing;
pub mod start;
mod usage;
mod watch;

pub use guardian::guard;
pub use signals::{asking_to_end, unblock_signals};
pub use watch::supervise;
