//! The command line.

use clap::Parser;
use std::path::PathBuf;

/// Decides which chunk of a graph goes to which host that partitions it, and rewrites their
/// metadata so that DGL's distributed partitioning pipeline finds them there.
///
/// Reads host records and adds a workspace record and a file record for each file. Nothing is
/// copied; part-push does that.
#[derive(Parser)]
#[command(
    version,
    after_long_help = "Examples:
  ipconf-check ip_config.txt |
    chunk-map --metadata chunked/metadata.json --assignment parts --workspace /data/job |
    part-push > pushed.jsonl
  dgl-env --role worker -- python3 distpartitioning/data_proc_pipeline.py \\
    --world-size {world_size} --num-parts 4 --graph-name g --input-dir /data/job/chunks \\
    --schema metadata.json --partitions-dir assignment --output /data/job/data \\
    --process-group-timeout 1800 < pushed.jsonl | dgl-spawn"
)]
pub struct Args {
    /// The metadata of the chunks, as DGL's chunk_graph.py writes it
    #[arg(long, value_name = "FILE")]
    pub metadata: PathBuf,

    /// The folder of the job on every host, absolute
    #[arg(long, value_name = "DIR")]
    pub workspace: PathBuf,

    /// Where chunks and metadata go, relative to the workspace
    #[arg(long, default_value = "chunks", value_name = "DIR")]
    pub rel_data_path: PathBuf,

    /// A folder with a file TYPE.txt for each type of nodes, as part-assign writes it; it is
    /// checked, and goes to every host as 'assignment' beside the metadata
    #[arg(long, value_name = "DIR")]
    pub assignment: Option<PathBuf>,
}
