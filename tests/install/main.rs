//! What is installed, and hosts to rehearse on.

// a test that cannot go on fails
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// one cluster serves all steps of a test, and takes longer to start than they do
#![allow(clippy::too_many_lines)]

mod dist;
mod host_lab;
mod prefix;
