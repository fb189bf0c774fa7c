//! Several tools together: pipelines, the scripts that stand for them, messages.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test that cannot go on fails

mod dgl_mk;
mod drop_in;
mod endings;
mod gs_launch;
mod messages;
mod stages;
mod whole;
