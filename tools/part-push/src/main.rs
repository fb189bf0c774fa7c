//! Copies files to their hosts: whole or not at all.

mod act;
mod args;
mod plan;
mod site;

use args::Args;
use common::cli;
use common::jsonl::Stream;
use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run("part-push", |args: Args| {
        let stream = Stream::from_stdin(args.connect.partial)?;
        args.connect.say_partial("part-push");
        let hosts = args.connect.choose(stream.some("ipconf-check")?)?;
        let deliveries = plan::deliveries(&hosts, &stream.some("part-map")?)?;
        act::run(&args, &stream, &hosts, &deliveries)
    })
}
