//! Several tools together: pipelines, the scripts that stand for them, messages.

// a test that cannot go on fails
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// one cluster serves all steps of a test, and takes longer to start than they do
#![allow(clippy::too_many_lines)]

mod choose_hosts;
mod dgl_env;
mod dgl_mk;
mod drop_in;
mod endings;
mod environments;
mod gs_launch;
mod left_by_0_4_0;
mod messages;
mod stages;
mod whole;
