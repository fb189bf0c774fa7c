//! What is installed, and hosts to rehearse on.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test that cannot go on fails

mod host_lab;
mod prefix;
