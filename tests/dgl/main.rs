//! What only DGL, torch, GraphStorm or GLT themselves can show.

// a test that cannot go on fails
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// one cluster serves all steps of a test, and takes longer to start than they do
#![allow(clippy::too_many_lines)]

mod glt;
mod graphstorm;
mod host_swap;
mod partitioning;
mod servers;
mod training;
mod versions;
