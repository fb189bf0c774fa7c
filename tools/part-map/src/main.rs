//! Decides which file goes to which host and under which name, and rewrites the partition config to match.

mod args;
mod config;
mod disk;
mod plan;

use args::Args;
use common::cli;
use common::error::Report;
use common::exit::Exit;
use common::jsonl::{self, Stream};
use common::record::Host;
use config::PartConfig;
use std::borrow::Cow;
use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run("part-map", |args: Args| {
        let stream = Stream::from_stdin(false)?;
        let hosts: Vec<Host> = stream.some("ipconf-check")?;
        let layout = plan::Layout::new(&args)?;
        let config = args.part_config.as_deref().map(PartConfig::read).transpose()?;
        // a wrong number makes everything else pointless
        config.iter().try_for_each(|config| plan::check_count(config, &hosts))?;
        let mut report = Report::default();
        let wanted = report.keep(plan::wanted(config.as_ref(), &layout)).unwrap_or_default();
        let scripts = report.keep(disk::scripts(&args)).unwrap_or_default();
        let found = report.keep(disk::find(wanted));
        report.check()?;
        let found = disk::without_partitions(scripts, found.unwrap_or_default());
        let plan = plan::plan(config.as_ref(), &hosts, &layout, found)?;
        let graph = plan.graph.iter().map(|graph| Cow::Owned(jsonl::line(graph)));
        jsonl::print(Some(&stream), graph.chain(plan.files.iter().map(|file| Cow::Owned(jsonl::line(file)))))?;
        Ok(Exit::Done)
    })
}
