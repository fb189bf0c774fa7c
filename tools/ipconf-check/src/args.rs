//! The command line.

use clap::{Parser, ValueEnum};
use std::path::PathBuf;

/// Checks an ip_config file as DGL reads it and prints a host record a line.
///
/// A line of the file is an IPv4 address and, if it is not the default, a port. Blank lines,
/// comments (#), tabs and Windows line ends are understood here; DGL itself stops reading at a line
/// that it cannot use, without an error.
///
/// A file whose first line is a header is read as CSV, with commas, semicolons or tabs. A column
/// ip, address, private ip address or internal ip has the addresses. Columns port, name and login
/// may be beside it; all others are ignored.
#[derive(Parser)]
#[command(
    version,
    after_long_help = "Examples:
  ipconf-check ip_config.txt
  ipconf-check --num-servers 4 ip_config.txt | host-probe
  scontrol show hostnames | ipconf-check --resolve -
  ipconf-check hosts.csv                 with a header, as cloud consoles and spreadsheets write it
  ipconf-check --emit ip_config messy.txt > ip_config.txt"
)]
pub struct Args {
    /// The ip_config or CSV file; - or nothing is stdin
    pub file: Option<PathBuf>,

    /// The port of hosts whose line has none
    #[arg(long, default_value_t = record::DEFAULT_PORT,
        value_parser = clap::value_parser!(u16).range(1..),
        value_name = "PORT")]
    pub default_port: u16,

    /// Graph servers per host; each needs a port of its own, from the host's port on
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..),
        value_name = "N")]
    pub num_servers: u16,

    /// Accept host names too, and look up their IPv4 addresses
    #[arg(long)]
    pub resolve: bool,

    /// What to print: records, or an ip_config that DGL can read
    #[arg(long, value_enum, default_value_t = Emit::Jsonl, value_name = "jsonl|ip_config",
        hide_possible_values = true)]
    pub emit: Emit,
}

/// What to print.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Emit {
    /// Records.
    Jsonl,
    /// A clean ip_config.
    #[value(name = "ip_config")]
    IpConfig,
}
