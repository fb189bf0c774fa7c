//! What documents promise: the manual pages, completions, recipes, ARCHITECTURE.md.

// a test that cannot go on fails
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// one cluster serves all steps of a test, and takes longer to start than they do
#![allow(clippy::too_many_lines)]

mod architecture;
mod completions;
mod flags;
mod groups;
mod manual;
mod options;
mod readme;
mod recipes;
mod schema;
mod shown;
mod site;
