//! Copies files to their hosts: whole or not at all.

mod act;
mod args;
mod feed;
mod plan;
mod push;
mod relay;
mod show;
mod target;

use args::Args;
use record::jsonl::Stream;
use record::{Graph, Host};
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run("part-push", |args: Args| {
        let stream = Stream::from_stdin(args.connect.partial)?;
        args.connect.say_partial("part-push");
        let hosts: Vec<Host> = stream.require("ipconf-check")?;
        let workspace = stream
            .one::<Graph>()?
            .map(|graph| PathBuf::from(graph.workspace));
        let deliveries =
            plan::deliveries(&hosts, &stream.require("part-map")?, workspace.as_deref())?;
        let base = workspace.unwrap_or_else(|| plan::base(&deliveries));
        act::run(
            &args,
            &stream,
            &args.connect.choose(hosts)?,
            &deliveries,
            &base,
        )
    })
}
