//! The command line.

use clap::{Parser, ValueEnum};
use std::path::PathBuf;

/// Decides which file goes to which host: scripts, data, and the partitions of a graph.
///
/// Reads host records and adds a file record for each file. A partition config is rewritten so that
/// DGL can load it there. Nothing is copied; part-push does that.
#[derive(Parser)]
#[command(
    version,
    after_long_help = "Examples:
  ipconf-check ip_config.txt | host-probe |
    part-map --part-config out/g.json --workspace '~/job' --script-folder code |
    part-push
  … | part-map --partitions out --workspace '~/job' --script-folder code
  … | part-map --workspace '~/job' --script-folder code        scripts alone
  … | part-map --workspace '~/job' --per-host 'shards/{host}.npz'
  … | part-map --part-config /nfs/job/data/g.json --workspace /nfs/job --parts shared
  … | part-map --part-config out/metadata.json --workspace '~/job' \\
        --rel-data-path out --parts remote
  … | part-map --part-config out/g.json --workspace '~/job' |
        jq -r 'select(.type==\"file\") | \"\\(.host) \\(.dst)\"'"
)]
pub struct Args {
    /// The partition config that DGL wrote
    #[arg(long, value_name = "FILE")]
    pub part_config: Option<PathBuf>,

    /// Without a config: a directory with part0, part1 … (GLT, PyG)
    ///
    /// See [Partitions without a config].
    #[arg(long, value_name = "DIR", conflicts_with = "part_config")]
    pub partitions: Option<PathBuf>,

    /// How many partitions each host gets: with 2, host 0 has partitions 0 and 1, and so on
    ///
    /// For workers only, because DGL's graph servers need one partition on each host.
    #[arg(long, hide_short_help = true, default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=4096), value_name = "P")]
    pub parts_per_host: u32,

    /// A file or directory for each host, as in 'shards/{host}.npz'
    ///
    /// `{host}` stands for the number of the host. The path is relative to the directory of the
    /// config or of `--partitions`, or else to the working directory. On the host it is relative to
    /// the directory of the partitions, or else to the workspace. There must be a file for each
    /// host, and none with another number.
    #[arg(long, value_name = "PATTERN")]
    pub per_host: Vec<String>,

    /// The job's directory on every host: absolute, or '~/…' if host-probe runs before part-map
    ///
    /// It is the working directory of the job's processes. `~/` is the home directory that
    /// host-probe(1) found; it must be the same on all hosts.
    ///
    /// Other paths on the hosts are relative to the workspace, absolute, or begin with `~/`. They
    /// may not contain `..` or lead out of the workspace.
    #[arg(long, value_name = "DIR")]
    pub workspace: PathBuf,

    /// Where the partitions are: here; partition K on host K already; or in a workspace that all
    /// hosts share (NFS)
    ///
    /// See [Partitions that are on the hosts already].
    #[arg(long, value_enum, default_value_t = PartsLocation::Local,
        value_name = "local|remote|shared", hide_possible_values = true)]
    pub parts: PartsLocation,

    /// Which form of each partition's graph to copy: DGL's, Graphbolt's or both [auto: all that
    /// exist]
    ///
    /// Every partition must have this form; the rewritten config names no other.
    #[arg(long, hide_short_help = true, value_enum, default_value_t = GraphForm::Auto,
        value_name = "auto|dgl|graphbolt|both", hide_possible_values = true)]
    pub graph: GraphForm,

    /// Where the partitions go, relative to the workspace; with --parts remote, where they are
    /// [default: data, or the name of the --partitions directory]
    #[arg(long, hide_short_help = true, value_name = "DIR")]
    pub rel_data_path: Option<PathBuf>,

    /// The partition config's name on the hosts, or its absolute path [default: GRAPH_NAME.json]
    #[arg(long, hide_short_help = true, value_name = "NAME")]
    pub config_name: Option<PathBuf>,

    /// The name of ip_config in the workspace, or its absolute path; part-map writes it from the
    /// host records
    ///
    /// Every line has a port.
    #[arg(
        long,
        hide_short_help = true,
        default_value = "ip_config.txt",
        value_name = "NAME"
    )]
    pub ip_config: PathBuf,

    /// A directory of scripts that goes into the workspace under its own name
    ///
    /// As with `scp -r`, symbolic links are followed, and permissions and empty directories are
    /// kept. Sockets, FIFOs, devices and broken links are omitted, with a warning, and so are
    /// Python environments (with `pyvenv.cfg` or `conda-meta`), which work only where they were
    /// made. Content with several names, by links, is copied once for each; a warning names the
    /// first if that is more than 10 MB. Files of the graph are omitted, because each host gets
    /// only its own partition; a warning names the first that has another name here, by a link.
    #[arg(long, value_name = "DIR")]
    pub script_folder: Vec<PathBuf>,

    /// Another file or directory for every host; DST is relative to the workspace, or absolute
    ///
    /// By default, `DST` is the last component of `SRC`. It follows the last colon, unless a file
    /// has the whole argument as its name. If `DST` is empty or ends with a slash, it is a
    /// directory for the file.
    #[arg(long, value_name = "SRC[:DST]")]
    pub extra: Vec<String>,

    /// Leave out matching files of directories, such as *.log or runs/**; with a leading !, include
    /// them, as in !.git
    ///
    /// The pattern is compared with the path below the directory and with the name alone. `.git`,
    /// `__pycache__`, `*.pyc`, `.venv` and `.dgl-run` are always omitted, unless a pattern with !
    /// includes them, as in `--exclude '!.git'`.
    #[arg(long, value_name = "[!]GLOB")]
    pub exclude: Vec<String>,

    /// How the config names its files: 'config' for DGL 0.6 and later, 'workspace' or 'absolute'
    /// for DGL 0.5 and later
    ///
    /// See [Paths in the config].
    #[arg(long, hide_short_help = true, value_enum, default_value_t = Paths::Config,
        value_name = "config|workspace|absolute", hide_possible_values = true)]
    pub paths: Paths,
}

/// How the rewritten config names its files. DGL 0.5 takes part files as they stand, later versions
/// relative to the config's directory; all take .npy maps relative to the working directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Paths {
    /// The config is in the directory of the partitions, with paths relative to that directory, for
    /// DGL 0.6 and later.
    Config,
    /// The config is in the workspace, with paths relative to it.
    Workspace,
    /// All paths are absolute.
    Absolute,
}

/// Where the parts are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PartsLocation {
    /// On this machine: partition K is copied to host K.
    Local,
    /// Partition K is on host K already, for instance from DGL's distributed partitioning.
    Remote,
    /// All hosts share the workspace: the partitions are in it, or are copied to it once.
    Shared,
}

/// The form of a part's graph to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GraphForm {
    /// What exists; if both forms do, both are copied, with a warning.
    Auto,
    /// DGL's own (*part_graph*).
    Dgl,
    /// Graphbolt's (*part_graph_graphbolt*), from DGL 2.1 on.
    Graphbolt,
    /// Both, for a script that chooses between them.
    Both,
}
