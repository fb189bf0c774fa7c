//! The command line.

use clap::{ArgGroup, Parser};
use std::path::PathBuf;

/// Writes down which node of a graph in chunks goes to which partition, as DGL's distributed
/// partitioning pipeline reads it: a file TYPE.txt for each type of nodes, a line a node.
///
/// Prints how many nodes of each type each partition gets: type, partition, nodes.
#[derive(Parser)]
#[command(
    version,
    override_usage = "part-assign --metadata FILE --num-parts N --to DIR --random\n       \
        part-assign --metadata FILE --num-parts N --to DIR --given FILE…\n       \
        part-assign --metadata FILE --num-parts N --to DIR --parmetis FILE",
    group(ArgGroup::new("how").required(true).args(["random", "given", "parmetis"])),
    after_long_help = "Examples:
  part-assign --metadata chunked/metadata.json --num-parts 4 --random --to parts
  part-assign --metadata chunked/metadata.json --num-parts 4 \\
    --given paper=paper.npy --given author=author.txt --to parts
  part-assign --metadata chunked/metadata.json --num-parts 4 --parmetis g_part.4 --to parts"
)]
pub struct Args {
    /// The metadata of the chunks, as DGL's chunk_graph.py writes it
    #[arg(long, value_name = "FILE")]
    pub metadata: PathBuf,

    /// The number of partitions
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000), value_name = "N")]
    pub num_parts: u32,

    /// Draw a partition for each node; the same seed draws the same ones [default: 0]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "0",
        value_name = "SEED")]
    pub random: Option<u64>,

    /// Take them from a file with a partition for each node, text or .npy; once for each type of
    /// nodes
    #[arg(long, value_name = "[TYPE=]FILE")]
    pub given: Vec<String>,

    /// Take them from the output of ParMETIS' pm_dglpart, which has a node and its partition on
    /// each line
    #[arg(long, value_name = "FILE")]
    pub parmetis: Option<PathBuf>,

    /// The folder to write into
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
}
