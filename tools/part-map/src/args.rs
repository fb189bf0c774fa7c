//! The command line.

use clap::{Parser, ValueEnum};
use std::path::PathBuf;

/// Decides which file goes to which host and rewrites the partition config so that DGL can load it
/// there.
///
/// Reads host records and adds a graph record and a file record for each file. Nothing is copied;
/// part-push does that.
#[derive(Parser)]
#[command(
    version,
    after_long_help = "Examples:
  ipconf-check ip_config.txt |
    part-map --part-config out/g.json --workspace /data/job --script-folder code |
    part-push
  … | part-map --partitions out --workspace /data/job --script-folder code
  … | part-map --workspace /data/job --script-folder code        scripts alone
  … | part-map --part-config /nfs/job/data/g.json --workspace /nfs/job --parts shared
  … | part-map --part-config out/metadata.json --workspace /data/job \\
        --rel-data-path out --parts remote
  … | part-map --part-config out/g.json --workspace /data/job |
        jq -r 'select(.type==\"file\") | \"\\(.host) \\(.dst)\"'"
)]
pub struct Args {
    /// The partition config that DGL wrote
    #[arg(long, value_name = "FILE")]
    pub part_config: Option<PathBuf>,

    /// Without a config: a folder with part0, part1 … or part_0 … (GLT, PyG)
    #[arg(long, value_name = "DIR", conflicts_with = "part_config")]
    pub partitions: Option<PathBuf>,

    /// How many partitions each host gets: partition K goes to host K div P
    #[arg(long, hide_short_help = true, default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=4096), value_name = "P")]
    pub parts_per_host: u32,

    /// A file or folder of each host, as 'ranks/rank={host}.parquet'; relative to the folder of
    /// the config or of --partitions, or else to the working directory
    #[arg(long, hide_short_help = true, value_name = "PATTERN")]
    pub per_host: Vec<String>,

    /// The folder of the job on every host: absolute, or '~/…' after host-probe
    #[arg(long, value_name = "DIR")]
    pub workspace: PathBuf,

    /// Where the partitions are: here; partition K on host K already; or in a workspace that
    /// all hosts share (NFS)
    #[arg(long, value_enum, default_value_t = Parts::Local, value_name = "local|remote|shared",
        hide_possible_values = true)]
    pub parts: Parts,

    /// Which form of a partition's graph to copy; auto is what is there
    #[arg(long, hide_short_help = true, value_enum, default_value_t = GraphForm::Auto,
        value_name = "auto|dgl|graphbolt|both", hide_possible_values = true)]
    pub graph: GraphForm,

    /// Where the partitions go, relative to the workspace; with --parts remote, where they are
    /// [default: data, or the name of the --partitions folder]
    #[arg(long, hide_short_help = true, value_name = "DIR")]
    pub rel_data_path: Option<PathBuf>,

    /// The partition config's name on the hosts, or its absolute path [default: GRAPH_NAME.json]
    #[arg(long, hide_short_help = true, value_name = "NAME")]
    pub config_name: Option<PathBuf>,

    /// The name that ip_config gets in the workspace, or its absolute path; it is written afresh
    /// from the host records
    #[arg(
        long,
        hide_short_help = true,
        default_value = "ip_config.txt",
        value_name = "NAME"
    )]
    pub ip_config: PathBuf,

    /// A folder of scripts that goes into the workspace under its own name
    #[arg(long, value_name = "DIR")]
    pub script_folder: Vec<PathBuf>,

    /// One more file or folder for every host; DST is relative to the workspace, or absolute
    #[arg(long, value_name = "SRC[:DST]")]
    pub extra: Vec<String>,

    /// Leave out what matches, in script folders and extras: *.log, runs/**; with ! first, take
    /// what is left out: !.git, !*.pyc
    #[arg(long, value_name = "[!]GLOB")]
    pub exclude: Vec<String>,

    /// How the config names its files: 'config' for DGL 0.6 on, 'workspace' and 'absolute' from 0.5
    /// on
    #[arg(long, hide_short_help = true, value_enum, default_value_t = Paths::Config,
        value_name = "config|workspace|absolute", hide_possible_values = true)]
    pub paths: Paths,
}

/// How the rewritten config names its files. DGL 0.5 takes part files as they stand, later versions
/// relative to the config's folder; all take .npy maps relative to the working directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Paths {
    /// The config lies with the partitions, their paths relative to it.
    Config,
    /// The config lies in the workspace, all paths relative to that.
    Workspace,
    /// All paths absolute.
    Absolute,
}

/// Where the parts are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Parts {
    /// On this machine: part K is copied to host K.
    Local,
    /// Part K is on host K already, where the distributed partitioning pipeline left it.
    Remote,
    /// In the workspace, which all hosts share, or copied there once.
    Shared,
}

/// The form of a part's graph to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GraphForm {
    /// The form that exists.
    Auto,
    /// DGL's own.
    Dgl,
    /// Graphbolt's.
    Graphbolt,
    /// Both; the script chooses.
    Both,
}
