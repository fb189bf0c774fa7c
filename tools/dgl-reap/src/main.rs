//! Lists or ends what a job has left on its hosts.

mod act;
mod args;
mod plan;

use args::Args;
use common::cli;
use common::jsonl::Stream;
use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run("dgl-reap", |args: Args| {
        let stream = Stream::from_stdin(args.connect.partial)?;
        args.connect.say_partial("dgl-reap");
        let hosts = args.connect.choose(stream.some("ipconf-check")?)?;
        act::run(&args, &stream, &hosts)
    })
}
