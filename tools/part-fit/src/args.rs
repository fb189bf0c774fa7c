//! The command line.

use clap::{Parser, ValueEnum};
use cli::counts::{PerHost, graph_format, per_host};
use cli::{NamedSize, OutputFormat, named_size};
use std::path::PathBuf;

/// Works out what memory each partition needs on its host, and whether it fits.
///
/// Reads host records with what host-probe found, and the partitions that part-map's records name,
/// or --part-config. Adds a fit record for each partition. Where one does not fit, nothing is
/// printed but what is missing, and the pipeline stops before the first byte is copied.
#[derive(Parser)]
#[command(
    version,
    after_long_help = "Examples:
  ipconf-check ip_config.txt | host-probe |
    part-map --part-config out/g.json --workspace /data/job --script-folder code |
    part-fit --num-trainers 8 --num-samplers 4 --mem trainer=3G | part-push > pushed.jsonl
  ipconf-check ip_config.txt | host-probe |
    part-fit --part-config out/g.json --num-trainers 8 --format human
  … | part-fit --num-trainers 8 --graph-format csc,coo --warn-only |
    jq -r 'select(.type==\"fit\") | [.id, .load_bytes, .run_bytes] | @tsv'"
)]
pub struct Args {
    /// The partition config [default: the one of part-map's records]
    ///
    /// The files are then those that the records name. After `part-map --parts remote` or `--parts
    /// shared` they are not in the records; this option is needed then, and the files must be
    /// readable on this machine.
    #[arg(long, value_name = "FILE")]
    pub part_config: Option<PathBuf>,

    /// Trainers on each host, or N,N,… with one number for each; gpus: one per GPU
    ///
    /// `gpus` takes the number that host-probe(1) counted.
    #[arg(long, value_parser = per_host, default_value = "1", value_name = "N|gpus")]
    pub num_trainers: PerHost,

    /// Samplers of each trainer
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1024),
        value_name = "N")]
    pub num_samplers: u32,

    /// Graph servers on each host
    ///
    /// The first one loads the data, and the others share it.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024),
        value_name = "N")]
    pub num_servers: u16,

    /// Sparse formats that servers make of the graph, as in dgl-env: csc, coo, csr
    ///
    /// Each further format takes 60 percent of the first, in memory and in `/dev/shm`.
    #[arg(long, default_value = "csc", value_parser = graph_format, value_name = "LIST")]
    pub graph_format: String,

    /// Which form of the graph the script loads [auto: where there are both, what needs more]
    #[arg(long, hide_short_help = true, value_enum, default_value_t = LoadedGraphForm::Auto,
        value_name = "auto|dgl|graphbolt", hide_possible_values = true)]
    pub graph: LoadedGraphForm,

    /// Memory that only the script determines, as trainer=3G,sampler=1G; shm=2G for what it puts
    /// into /dev/shm; process=1G for any process without data, in place of what was measured
    ///
    /// - `trainer`: What a trainer needs beyond DGL, torch, a small model and small batches:
    ///   for a larger model, larger batches and caches. The *exited* record of an earlier run has
    ///   the trainer's whole memory in *max_rss_bytes*, including what it mapped of `/dev/shm`.
    ///
    /// - `sampler`: The same for a sampler.
    ///
    /// - `shm`: What the script itself puts into `/dev/shm` of a host: DistTensors, embeddings,
    ///   states of sparse optimizers.
    ///
    /// - `process`: The memory of any process of the job before it has data, including DGL and
    ///   torch. It replaces all measured values of [THE MODEL].
    ///
    /// The first three are 0 by default.
    #[arg(long, value_delimiter = ',', value_name = "NAME=SIZE[,…]",
        value_parser = named_size(&["trainer", "sampler", "shm", "process"]))]
    pub mem: Vec<NamedSize>,

    /// Report what does not fit as a warning, and go on
    #[arg(long)]
    pub warn_only: bool,

    /// What to print: records, or a table for people [auto: a table on a terminal]
    #[arg(long, value_enum, default_value_t = OutputFormat::Auto, value_name = "auto|human|jsonl",
        hide_possible_values = true)]
    pub format: OutputFormat,
}

/// The form of the graph that the servers load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LoadedGraphForm {
    /// The form that exists; if both do, the one that needs more.
    Auto,
    /// DGL's own form.
    Dgl,
    /// Graphbolt's form.
    Graphbolt,
}
