//! Tools that compute: records in, records out.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test that cannot go on fails

mod bind;
mod choose_hosts;
mod dgl_env;
mod environments;
mod flags;
mod host_swap;
mod ipconf_check;
mod part_fit;
mod part_map;
