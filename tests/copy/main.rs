//! Files to hosts and back: what arrives, what is sent, what goes wrong on the way.

// a test that cannot go on fails
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// one cluster serves all steps of a test, and takes longer to start than they do
#![allow(clippy::too_many_lines)]

mod arrival;
mod chains;
mod direct;
mod faults;
mod fetch;
mod lab;
mod links;
mod local;
mod odd_files;
mod open_directories;
mod partial_files;
mod pull;
mod room;
mod sent;
mod silence;
mod turns;
mod writing;
