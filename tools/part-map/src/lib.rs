//! Plans the files that go to each host, from host records and a partition config. `versions`,
//! `layout`, `numbered` and `plan` map values to values; `disk` and `scripts` only read files.

pub mod args;
pub mod disk;
pub mod layout;
pub mod numbered;
pub mod plan;
pub mod scripts;
pub mod versions;

pub use args::Args;

use args::PartsLocation;
use disk::Below;
use layout::Layout;
use numbered::{NumberedNames, PARTS};
use partition::PartConfig;
use partition::files::{self, FileItem, FileSource, path_on_hosts};
use plan::{FilePlan, Present};
use record::Host;
use record::error::{Fault, Report};
use record::exit::Exit;
use record::jsonl::{self, Stream};
use record::term;
use scripts::{Identity, ScriptChoice};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// As many bytes are worth a warning if they are copied more than once.
const MUCH: u64 = 10 << 20;

pub fn main(args: Args) -> Result<Exit, Report> {
    let stream = Stream::from_stdin(false)?;
    let plan = map(&args, &stream.require("ipconf-check")?)?;
    for warning in &plan.warnings {
        record::tell!("part-map: warning: {warning}");
    }
    let graph = plan.graph.iter().map(jsonl::line);
    let workspace = plan.workspace.iter().map(jsonl::line);
    let files = plan.files.iter().map(jsonl::line);
    jsonl::print(Some(&stream), graph.chain(workspace).chain(files))?;
    Ok(Exit::Done)
}

/// Plans the hosts' files, and the graph as it will be there.
pub fn map(args: &Args, hosts: &[Host]) -> Result<FilePlan, Report> {
    if args.parts_per_host > 1 && args.partitions.is_none() && args.part_config.is_none() {
        return Err(
            Fault::usage("--parts-per-host", "is for partitions, and none are named")
                .fix(
                    "leave it out, or add --partitions or --part-config; --per-host gives each \
                     host one file or directory",
                )
                .report(),
        );
    }
    let layout = Layout::new(args, hosts, &data_folder(args))?;
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
    let own = own_files(args, hosts, &layout, config.as_ref(), &mut warnings);
    items.extend(report.keep(own).unwrap_or_default());
    let workspace = Some(layout.workspace.as_path());
    let resolve = |path: &Path| path_on_hosts("--extra", path, workspace, hosts);
    let identities = identities.into_iter().chain(items.iter().filter_map(part));
    let found = ScriptChoice::new(args, identities.collect()).and_then(|choice| {
        let found = scripts::find(args, &resolve, &choice);
        warnings.extend(choice.warnings());
        found
    });
    items.extend(report.keep(found).unwrap_or_default());
    report.check()?;
    warnings.extend(several_names(&items));
    let is_shared = layout.parts == PartsLocation::Shared;
    if is_shared {
        let mut workspace = Below::new(&layout.workspace);
        plan::share(&mut items, &layout.workspace, |file| {
            workspace.path_of(file)
        });
    }
    let is_config =
        |config: &PartConfig| disk::is_same_file(&layout.config(&config.graph_name), &config.file);
    let present = Present {
        shared_config: is_shared && config.as_ref().is_some_and(is_config),
        files: items.iter().all(disk::is_present),
    };
    let plan = plan::plan(config.as_ref(), dropped, hosts, &layout, present, items)?;
    warnings.extend(plan.warnings);
    Ok(FilePlan { warnings, ..plan })
}

/// Where the partitions go below the workspace, unless `--rel-data-path` is given.
fn data_folder(args: &Args) -> PathBuf {
    match (&args.partitions, &args.part_config) {
        (Some(folder), _) => scripts::name_of(folder).unwrap_or_else(|| "data".into()),
        (None, Some(_)) => "data".into(),
        (None, None) => PathBuf::new(),
    }
}

/// Warns about much content that is copied once for each of its names: links are followed, and hard
/// links are names of one file.
fn several_names(items: &[FileItem]) -> Option<String> {
    let mut first_names: HashMap<_, &FileItem> = HashMap::new();
    let (mut bytes, mut pairs) = (0, Vec::new());
    for item in items {
        let FileSource::Copied(here) = &item.source else {
            continue;
        };
        let first = *first_names
            .entry((item.host, here.identity))
            .or_insert(item);
        if first.dst != item.dst {
            bytes += here.bytes;
            pairs.push((&first.dst, &item.dst));
        }
    }
    let (one, other) = pairs.first().filter(|_| bytes >= MUCH)?;
    let more = term::and_more(pairs.len(), "");
    Some(format!(
        "{} are copied more than once, because they have several names: {} and {} are links to one \
         file{more}\n  fix: leave one of them out with --exclude, if the job needs only the other",
        term::bytes(bytes),
        one.display(),
        other.display()
    ))
}

/// The identity and the path of a file that only its hosts get.
fn part(item: &FileItem) -> Option<(Identity, PathBuf)> {
    match &item.source {
        FileSource::Copied(here) if item.host.is_some() => Some((here.identity, here.path.clone())),
        _ => None,
    }
}

fn own_files(
    args: &Args,
    hosts: &[Host],
    layout: &Layout,
    config: Option<&PartConfig>,
    warnings: &mut Vec<String>,
) -> Result<Vec<FileItem>, Report> {
    let is_remote = layout.parts == PartsLocation::Remote;
    let mut sets = numbered::from_user(&args.per_host, is_remote)?;
    let choice = ScriptChoice::new(args, HashMap::new())?;
    let items = if let Some(folder) = &args.partitions {
        let (chosen, others): (Vec<_>, Vec<_>) =
            sets.into_iter().partition(NumberedNames::are_parts);
        sets = others;
        let mut forms = PARTS.map(str::to_owned).to_vec();
        forms.sort_by_key(|form| !chosen.iter().any(|set| set.forms.contains(form)));
        let parts = NumberedNames {
            location: folder.display().to_string(),
            forms,
            per_host: args.parts_per_host,
            may_be_absent: is_remote,
        };
        let items = disk::below_folder(folder, args, &choice)?;
        if is_remote && chosen.is_empty() {
            warnings.extend(parts.assumed(&items));
        }
        sets.push(parts);
        items
    } else {
        let folder = config.map_or(Path::new("."), |config| &config.folders[0]);
        let found = sets
            .iter()
            .map(|set| disk::per_host_files(folder, set, &choice));
        Report::collect(found)?.into_iter().flatten().collect()
    };
    warnings.extend(choice.warnings());
    let mut items = numbered::assign(&sets, items, hosts.len())?;
    for item in &mut items {
        if item.host.is_some() && is_remote {
            item.source = FileSource::OnHost;
        }
        item.dst = layout.data.join(&item.dst);
    }
    Ok(items)
}

#[derive(Default)]
struct GraphFiles {
    items: Vec<FileItem>,
    /// What the config names and what is beside it, if scripts may be among them.
    identities: HashMap<Identity, PathBuf>,
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
    plan::check_count(config, hosts, args.parts_per_host)?;
    let mut warnings = report
        .keep(versions::check(config, args.paths, hosts))
        .unwrap_or_default();
    warnings.extend(plan::both_forms(config, args.graph));
    let dropped = report.keep(plan::dropped(config, args.graph)).flatten();
    let mut wanted = plan::wanted(config, layout, args.parts_per_host, disk::path);
    let choice = ScriptChoice::default();
    let beside = report.keep(disk::graphstorm_files(&config.folders[0], &choice));
    warnings.extend(choice.warnings());
    wanted.extend(plan::beside_config(
        config,
        layout,
        beside.unwrap_or_default(),
    ));
    let identities = if args.script_folder.is_empty() && args.extra.is_empty() {
        HashMap::new()
    } else {
        disk::identities(&config.file, &wanted)
    };
    wanted.retain(|wanted| plan::is_copied(wanted, layout.parts, dropped));
    let fix = "run partition_graph again, or correct the path; it is relative to the directory of \
        the config";
    let mut items = report.keep(files::find(wanted, fix)).unwrap_or_default();
    if layout.parts == PartsLocation::Remote {
        let there = report.keep(plan::on_their_hosts(
            config,
            layout,
            args.parts_per_host,
            dropped,
        ));
        items.extend(there.unwrap_or_default());
    }
    Ok(GraphFiles {
        items,
        identities,
        dropped,
        warnings,
    })
}
