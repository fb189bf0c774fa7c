//! From an ip_config, and what else says where the hosts are, to host records.

pub mod args;
pub mod login;
pub mod plan;
pub mod text;
