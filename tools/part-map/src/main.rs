//! Decides which file goes to which host and under which name, and rewrites the partition config to
//! match.

use part_map::args::Args;
use record::exit::Exit;
use record::jsonl::{self, Stream};
use std::borrow::Cow;
use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run("part-map", |args: Args| {
        let stream = Stream::from_stdin(false)?;
        let plan = part_map::map(&args, &stream.require("ipconf-check")?)?;
        plan.warnings
            .iter()
            .for_each(|warning| eprintln!("part-map: warning: {warning}"));
        let graph = plan
            .graph
            .iter()
            .map(|graph| Cow::Owned(jsonl::line(graph)));
        jsonl::print(
            Some(&stream),
            graph.chain(plan.files.iter().map(|file| Cow::Owned(jsonl::line(file)))),
        )?;
        Ok(Exit::Done)
    })
}
