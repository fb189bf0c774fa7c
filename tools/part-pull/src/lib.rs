//! Brings results back from the hosts. [`plan`] maps values to values; `act` reaches the hosts.

mod act;
mod args;
mod listing;
pub mod local;
pub mod plan;
mod pull;

pub use args::Args;

use record::error::{Fault, Report};
use record::exit::Exit;
use record::jsonl::Stream;
use record::{Graph, Workspace};
use std::path::PathBuf;

pub fn main(args: Args) -> Result<Exit, Report> {
    let stream = Stream::from_stdin(args.connect.partial)?;
    args.connect.say_partial("part-pull");
    let hosts = args.connect.choose(stream.require("ipconf-check")?)?;
    let alone = stream.one::<Workspace>()?.map(|alone| alone.workspace);
    let of_graph = stream.one::<Graph>()?.map(|graph| graph.workspace);
    let of_stream = of_graph.or(alone).map(PathBuf::from);
    let missing = || {
        Fault::usage(
            "--workspace",
            "is missing, and no graph or workspace record in the input has it",
        )
    };
    let workspace = args
        .workspace
        .clone()
        .or(of_stream)
        .ok_or_else(|| missing().fix("give the directory of the job on the hosts"))?;
    let wanted = plan::wanted(&args.patterns)?;
    act::run(&args, &stream, &hosts, &workspace, &wanted)
}
