//! What documents promise: the manual pages, completions, recipes, the schema, the site; and what
//! is linked.

// a test that cannot go on fails
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// one cluster serves all steps of a test, and takes longer to start than they do
#![allow(clippy::too_many_lines)]

mod completions;
mod linked;
mod manual;
mod map;
mod options;
mod readme;
mod recipes;
mod schema;
mod shown;
mod site;
