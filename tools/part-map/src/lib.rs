//! From host records and a partition config to the files that go to each host. `config`, `maps`,
//! `format`, `suits`, `layout` and `plan` map values to values; `disk` and `scripts` read files,
//! and write none.

pub mod args;
pub mod disk;
pub mod format;
pub mod layout;
pub mod plan;
pub mod scripts;
pub mod suits;

pub use args::Args;

use args::Parts;
use layout::{Layout, Place};
use partition::PartConfig;
use plan::{Item, Plan};
use record::Host;
use record::error::Report;
use record::exit::Exit;
use record::jsonl::{self, Stream};
use scripts::Choice;
use std::borrow::Cow;
use std::collections::HashSet;

/// Runs the tool.
pub fn main(args: Args) -> Result<Exit, Report> {
    let stream = Stream::from_stdin(false)?;
    let plan = map(&args, &stream.require("ipconf-check")?)?;
    plan.warnings
        .iter()
        .for_each(|warning| record::tell!("part-map: warning: {warning}"));
    let graph = plan.graph.iter().map(jsonl::line);
    let workspace = plan.workspace.iter().map(jsonl::line);
    let of_job = graph.chain(workspace).map(Cow::Owned);
    jsonl::print(
        Some(&stream),
        of_job.chain(plan.files.iter().map(|file| Cow::Owned(jsonl::line(file)))),
    )?;
    Ok(Exit::Done)
}

/// Plans the files that go to the hosts, and the graph as it will be there.
pub fn map(args: &Args, hosts: &[Host]) -> Result<Plan, Report> {
    let layout = Layout::new(args, hosts)?;
    let config = args
        .part_config
        .as_deref()
        .map(PartConfig::read)
        .transpose()?;
    let mut report = Report::default();
    let GraphFiles {
        mut items,
        identities,
        dropped,
        mut warnings,
    } = match &config {
        Some(config) => graph_files(args, hosts, &layout, config, &mut report)?,
        None => GraphFiles::default(),
    };
    let to = Place {
        option: "--extra",
        below: Some(&layout.workspace),
        hosts,
    };
    let found = Choice::new(args, identities).and_then(|choice| scripts::find(args, &to, &choice));
    items.extend(report.keep(found).unwrap_or_default());
    report.check()?;
    if layout.parts == Parts::Shared {
        let real = layout
            .workspace
            .canonicalize()
            .unwrap_or_else(|_| layout.workspace.clone());
        plan::share(&mut items, &layout.workspace, &real);
    }
    let plan = plan::plan(config.as_ref(), dropped, hosts, &layout, items)?;
    warnings.extend(plan.warnings);
    Ok(Plan { warnings, ..plan })
}

/// The files of the graph, and what was found about them.
#[derive(Default)]
struct GraphFiles {
    items: Vec<Item>,
    /// Device and inode of each, if scripts may be among them.
    identities: HashSet<(u64, u64)>,
    /// The form of the graph that is not wanted.
    dropped: Option<&'static str>,
    warnings: Vec<String>,
}

fn graph_files(
    args: &Args,
    hosts: &[Host],
    layout: &Layout,
    config: &PartConfig,
    report: &mut Report,
) -> Result<GraphFiles, Report> {
    // a wrong number makes everything else pointless
    plan::check_count(config, hosts)?;
    let suits = report.keep(suits::check(config, args.paths, hosts));
    let mut warnings = suits.unwrap_or_default();
    warnings.extend(plan::both_forms(config, args.graph));
    let dropped = report.keep(plan::dropped(config, args.graph)).flatten();
    let mut wanted = plan::wanted(config, layout);
    let beside = config
        .folders
        .first()
        .map(|folder| disk::of_graphstorm(folder));
    let beside = beside.unwrap_or_default();
    wanted.extend(plan::beside_config(config, layout, beside));
    let identities = match args.script_folder.is_empty() && args.extra.is_empty() {
        true => HashSet::new(),
        false => disk::identities(&config.file, &wanted),
    };
    let copied = wanted
        .into_iter()
        .filter(|wanted| wanted.is_copied(layout.parts, dropped));
    let mut items = report.keep(disk::find(copied)).unwrap_or_default();
    if layout.parts == Parts::Remote {
        let there = report.keep(plan::on_their_hosts(config, layout, dropped));
        items.extend(there.unwrap_or_default());
    }
    Ok(GraphFiles {
        items,
        identities,
        dropped,
        warnings,
    })
}
