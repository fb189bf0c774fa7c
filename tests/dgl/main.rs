//! What only DGL, torch or GraphStorm themselves can show.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test that cannot go on fails

mod graphstorm;
mod partitioning;
mod servers;
mod training;
mod versions;
