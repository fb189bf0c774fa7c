//! Copies files to their hosts; each arrives completely or not at all. [`plan`] maps values to
//! values; `act` reaches the hosts.

mod act;
mod args;
mod blocks;
pub mod chain;
mod compression;
mod connection;
mod context;
mod feed;
mod hand_on;
pub mod plan;
mod push;
mod reporter;
mod target;
mod turn;

pub use args::Args;

use record::error::Report;
use record::exit::Exit;
use record::jsonl::Stream;
use record::{Graph, Host, Workspace};
use std::path::PathBuf;

pub fn main(args: Args) -> Result<Exit, Report> {
    let stream = Stream::from_stdin(args.connect.partial)?;
    args.connect.say_partial("part-push");
    let hosts: Vec<Host> = stream.require("ipconf-check")?;
    let graph = stream.one::<Graph>()?.map(|graph| graph.workspace);
    let workspace = graph.or(stream.one::<Workspace>()?.map(|of_job| of_job.workspace));
    let workspace = workspace.map(PathBuf::from);
    let files = stream.require("part-map")?;
    let deliveries = plan::deliveries(&hosts, &files, workspace.as_deref())?;
    // there may be 100,000 file records, and the deliveries have what is needed
    drop(files);
    let base = workspace.unwrap_or_else(|| plan::base(&deliveries));
    let hosts = args.connect.choose(hosts)?;
    act::run(&args, &stream, &hosts, &deliveries, &base)
}
