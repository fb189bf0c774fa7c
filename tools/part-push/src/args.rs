//! The command line.

use clap::{Parser, ValueEnum};
use cli::{Connect, CopyArgs};

/// Copies files to their hosts; each is there completely or not at all.
///
/// Reads host and file records and adds a pushed record for each delivery. What is there already
/// with the same size and time is skipped. Content goes by direct connections where they can be
/// made, and otherwise through ssh.
#[derive(Parser)]
#[command(
    version,
    after_long_help = "Examples:
  ipconf-check ip_config.txt |
    part-map --part-config out/g.json --workspace /data/job | part-push
  … | part-push --host 2        to one host again
  … | part-push --dry-run"
)]
pub struct Args {
    /// Compare checksums, also of files that are there already
    #[arg(long)]
    pub verify: bool,

    /// Write each file to the disk before it is renamed, and its folder afterwards
    #[arg(long)]
    pub fsync: bool,

    /// Hosts to copy to at once
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..),
        value_name = "N")]
    pub jobs: u16,

    /// How files are copied.
    #[command(flatten)]
    pub copy: CopyArgs,

    /// Compress for the transfer with zstd [auto: where that is faster]
    #[arg(long, value_enum, default_value_t = CompressWhen::Auto, value_name = "auto|always|never",
        hide_possible_values = true)]
    pub compress: CompressWhen,

    /// How hosts are reached.
    // last: its heading would stand over all that follows
    #[command(flatten)]
    pub connect: Connect,
}

impl CompressWhen {
    /// Whether to compress; `None` if that is to be decided by measuring.
    pub fn wish(self) -> Option<bool> {
        match self {
            CompressWhen::Auto => None,
            CompressWhen::Always => Some(true),
            CompressWhen::Never => Some(false),
        }
    }
}

/// When to compress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CompressWhen {
    /// If it makes the copy faster.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}
