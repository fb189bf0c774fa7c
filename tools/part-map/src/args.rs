//! The command line.

use clap::{Parser, ValueEnum};
use std::path::PathBuf;

/// Decides which file goes to which host and rewrites the partition config so that DGL can load it there.
///
/// Reads host records and adds a graph record and a file record for each file. Nothing is copied; part-push does that.
#[derive(Parser)]
#[command(
    version,
    after_long_help = "Examples:
  ipconf-check ip_config.txt |
    part-map --part-config out/g.json --workspace /data/job --script-folder code |
    part-push
  … | part-map --part-config out/g.json --workspace /data/job |
    jq -r 'select(.type==\"file\") | \"\\(.host) \\(.dst)\"'"
)]
pub struct Args {
    /// The partition config that DGL wrote [without it: scripts only]
    #[arg(long, value_name = "FILE")]
    pub part_config: Option<PathBuf>,

    /// The folder of the job on every host, absolute
    #[arg(long, value_name = "DIR")]
    pub workspace: PathBuf,

    /// Where the partitions go, relative to the workspace
    #[arg(long, default_value = "data", value_name = "DIR")]
    pub rel_data_path: PathBuf,

    /// The partition config's name on the hosts [default: GRAPH_NAME.json]
    #[arg(long, hide_short_help = true, value_name = "NAME")]
    pub config_name: Option<String>,

    /// The name that ip_config gets in the workspace; it is written afresh from the host records
    #[arg(long, hide_short_help = true, default_value = "ip_config.txt", value_name = "NAME")]
    pub ip_config: PathBuf,

    /// A folder of scripts that goes into the workspace under its own name
    #[arg(long, value_name = "DIR")]
    pub script_folder: Vec<PathBuf>,

    /// One more file or folder for every host; DST is relative to the workspace
    #[arg(long, value_name = "SRC[:DST]")]
    pub extra: Vec<String>,

    /// Leave out what matches, in script folders and extras: *.log, runs/**
    #[arg(long, value_name = "GLOB")]
    pub exclude: Vec<String>,

    /// How the config names its files: 'config' for DGL 0.6 on, 'workspace' and 'absolute' for all versions
    #[arg(long, value_enum, default_value_t = Paths::Config, value_name = "config|workspace|absolute", hide_possible_values = true)]
    pub paths: Paths,
}

/// How the rewritten config names its files. DGL 0.5 takes part files as they stand, later versions relative to the config's folder;
/// all take .npy maps relative to the working directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Paths {
    /// The config lies with the partitions, their paths relative to it.
    Config,
    /// The config lies in the workspace, all paths relative to that.
    Workspace,
    /// All paths absolute.
    Absolute,
}
