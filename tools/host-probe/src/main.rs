//! Logs in once to each host and adds what it is and has to its record.

mod act;
mod args;
mod plan;

use args::Args;
use record::jsonl::Stream;
use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run("host-probe", |args: Args| {
        let stream = Stream::from_stdin(args.connect.partial)?;
        args.connect.say_partial("host-probe");
        let hosts = args.connect.choose(stream.require("ipconf-check")?)?;
        act::run(&args, &stream, &hosts)
    })
}
