//! The command line.

use clap::{Parser, ValueEnum};
use std::path::PathBuf;

/// Checks an ip_config file as DGL reads it and prints a record for each host.
///
/// A line of the file is a host and, if it is not the default, a port. A host is an IPv4 address or
/// a name that ssh knows, with a user before it where that is needed: ann@gpu1. Names are looked up
/// here, once, as ssh does. Blank lines, comments (#), tabs and Windows line ends are accepted.
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
  scontrol show hostnames | ipconf-check -
  ipconf-check hosts.csv                 with a header, as cloud consoles and spreadsheets write it
  ipconf-check --emit ip_config messy.txt > ip_config.txt"
)]
pub struct Args {
    /// The ip_config or CSV file; - or nothing is stdin
    pub file: Option<PathBuf>,

    /// The port of each host whose line has none
    ///
    /// This is also DGL's default. If you choose another port, let DGL read the ip_config that
    /// part-map(1) writes: it has a port on every line.
    #[arg(long, default_value_t = record::DEFAULT_PORT,
        value_parser = clap::value_parser!(u16).range(1..),
        value_name = "PORT")]
    pub default_port: u16,

    /// Graph servers on each host; they use the host's port and the following ones
    ///
    /// No port may exceed 65535.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..),
        value_name = "N")]
    pub num_servers: u16,

    /// What to print: records, or an ip_config that DGL can read
    #[arg(long, value_enum, default_value_t = Emit::Jsonl, value_name = "jsonl|ip_config",
        hide_possible_values = true)]
    pub emit: Emit,

    /// What variables say about logins: names are looked up as ssh does.
    #[command(flatten)]
    pub settings: cli::Settings,
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
