//! Tools that compute, as far as it takes more than commands and what they print, which ../cases
//! has.

// a test that cannot go on fails
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// one cluster serves all steps of a test, and takes longer to start than they do
#![allow(clippy::too_many_lines)]

mod bind;
mod choose_hosts;
mod dgl_env;
mod environments;
mod flags;
mod host_swap;
