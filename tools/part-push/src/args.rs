//! The command line.

use clap::{Parser, ValueEnum};
use cli::{ConnectArgs, CopyArgs};

/// Copies files to their hosts; each file arrives whole or not at all.
///
/// Reads host and file records and adds a pushed record for each delivery. What is there already
/// with the same size and time is skipped. Content goes by direct connections where they can be
/// made, and otherwise through ssh.
#[derive(Parser)]
#[command(
    version,
    after_long_help = "Examples:
  ipconf-check ip_config.txt | host-probe |
    part-map --part-config out/g.json --workspace '~/job' | part-push
  … | part-push --host 2        to one host again
  … | part-push --dry-run"
)]
pub struct Args {
    /// Compare checksums, even of files with the same size and time
    ///
    /// Every file is read completely on both sides.
    #[arg(long)]
    pub verify: bool,

    /// Write each file to the disk before it is renamed, and its directory afterwards
    ///
    /// It then survives a power failure.
    #[arg(long)]
    pub fsync: bool,

    /// Hosts to copy to at once
    ///
    /// This is also the maximum length of a chain of hosts.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..),
        value_name = "N")]
    pub jobs: u16,

    /// How files are copied.
    #[command(flatten)]
    pub copy: CopyArgs,

    /// Compress with zstd during the transfer [auto: where that is faster]
    #[arg(long, value_enum, default_value_t = CompressWhen::Auto, value_name = "auto|always|never",
        hide_possible_values = true)]
    pub compress: CompressWhen,

    /// How hosts are reached.
    // last: its heading would stand over all that follows
    #[command(flatten)]
    pub connect: ConnectArgs,
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
    /// If that makes the copy faster. The first 4 MB to a host are sent uncompressed to measure the
    /// link; from then on data is compressed where a sample shows that this takes less than 0.8 of
    /// the time. Nothing is compressed on a link of 500 MB/s or more.
    Auto,
    /// Everything is compressed.
    Always,
    /// Nothing is compressed.
    Never,
}
