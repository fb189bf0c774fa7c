//! What documents promise: the manual pages, completions, recipes, ARCHITECTURE.md.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test that cannot go on fails

mod architecture;
mod completions;
mod flags;
mod manual;
mod recipes;
