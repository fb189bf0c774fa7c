//! Files to hosts and back: what arrives, what is sent, what goes wrong on the way.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test that cannot go on fails

mod chains;
mod direct;
mod faults;
mod pull;
mod push;
