//! A session with the agent of a host. A [`channel::Channel`] carries its bytes: a login of the
//! crate `remote`, or a connection that the agent made itself.

pub mod buffered_channel;
pub mod channel;
mod fault;
pub mod reasons;
mod running_clock;
mod session;
pub mod signal;
mod tls_channel;
mod token;

pub use buffered_channel::{Body, Waker};
pub use fault::{HostFault, UnknownKey, report};
pub use running_clock::RunningClock;
pub use session::{Session, SessionEvent};
pub use tls_channel::TlsChannel;
pub use token::{random_token, session_token};

use std::time::Duration;

/// Longer than any working agent needs, but a host's file system may hang.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(60);
