//! Files of the graph that no config names, and under what other names its files are here.

use crate::args::{Args, Parts};
use crate::fetch::{self, Known, Listing};
use crate::numbered::{self, HOST, Numbered};
use crate::scripts::{self, Choice};
use partition::files::{Item, WantedFile, inspect};
use record::error::{Fault, Report};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use walkdir::WalkDir;

/// The files that GraphStorm puts beside its config, although no config names them, and looks for
/// there on the hosts: statistics of labels, the users' ids of nodes (seen with 0.4.2), how the
/// graph was constructed, which goes into saved models (0.5), features for WholeGraph (its source).
const OF_GRAPHSTORM: [&str; 7] = [
    "node_label_stats.json",
    "edge_label_stats.json",
    "node_mapping.pt",
    "edge_mapping.pt",
    "raw_id_mappings",
    "data_transform_new.json",
    "wholegraph",
];

/// GraphStorm's files beside a config or in a listing, relative to its folder. A folder that cannot
/// be listed is reported when one of its files is missed.
pub fn of_graphstorm(folder: &Path, listing: Option<&Listing>) -> BTreeSet<PathBuf> {
    let files = |name: &&str| {
        let walk = WalkDir::new(folder.join(name)).sort_by_file_name();
        let found = walk.into_iter().filter_map(Result::ok);
        found.filter(|entry| entry.path().is_file())
    };
    let here = OF_GRAPHSTORM
        .iter()
        .flat_map(files)
        .filter_map(|entry| Some(entry.path().strip_prefix(folder).ok()?.to_owned()));
    let listed = listing.into_iter().flat_map(BTreeMap::keys).cloned();
    let is_one = |path: &PathBuf| OF_GRAPHSTORM.iter().any(|name| path.starts_with(name));
    here.chain(listed.filter(is_one)).collect()
}

/// The identities of the graph's files on this machine, including its config. If they lie in a
/// script folder, they are not copied to every host as scripts.
pub fn identities(config: &Path, wanted: &[WantedFile]) -> HashSet<(u64, u64)> {
    let of = |path: &Path| {
        std::fs::metadata(path)
            .ok()
            .map(|meta| (meta.dev(), meta.ino()))
    };
    let named = wanted
        .iter()
        .filter_map(|wanted| wanted.candidates.iter().find_map(|path| of(path)));
    named.chain(of(config)).collect()
}

/// Reads the `--listing`.
pub fn listing(args: &Args) -> Result<Option<Listing>, Report> {
    let Some(path) = &args.listing else {
        return Ok(None);
    };
    let location = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| {
        Fault::unreachable(&location, error.to_string())
            .did_you_mean(path)
            .fix("correct --listing")
    })?;
    fetch::parse(&location, &text).map(Some)
}

/// The parts of a graph that hosts fetch, and what is not here. What is here says its size. The
/// rest of the wanted files is copied from here.
pub fn fetched(
    command: &str,
    wanted: &mut Vec<WantedFile>,
    folder: &Path,
    listing: Option<&Listing>,
) -> Result<Vec<Item>, Report> {
    let mut report = Report::default();
    let mut items = Vec::new();
    wanted.retain(|file| {
        let here = file.candidates.iter().find(|path| path.is_file());
        if here.is_some() && file.item.kind != "partition" {
            return true;
        }
        let path = below(&file.candidates[0], folder);
        let listed = listing.map(|listing| listing.get(&path));
        let known = match (here, listed) {
            (Some(here), _) => inspect(here, file.format).map(|here| {
                Some(Known {
                    bytes: Some(here.bytes),
                    ..listed.flatten().cloned().unwrap_or_default()
                })
            }),
            (None, Some(None)) if file.required => Err(Fault::data(
                path.display().to_string(),
                "is not in the listing",
            )
            .fix("list the folder of the config, or correct the path in it")),
            (None, Some(listed)) => Ok(listed.cloned()),
            (None, None) => Ok(file.required.then(Known::default)),
        };
        let known = report.keep(known.map_err(Report::from)).flatten();
        items.extend(known.map(|known| Item {
            source: fetch::source(command, &path, &known),
            ..file.item.clone()
        }));
        false
    });
    report.check().map(|()| items)
}

/// A path relative to the folder of the config. DGL writes absolute ones, too, of which the last
/// two names count.
fn below(path: &Path, folder: &Path) -> PathBuf {
    let names: Vec<&OsStr> = path.iter().collect();
    let last = || names[names.len().saturating_sub(2)..].iter().collect();
    path.strip_prefix(folder)
        .map_or_else(|_| last(), Path::to_owned)
}

/// The files of a listing, relative to the folder that it lists.
pub fn listed(command: &str, listing: &Listing, choice: &Choice) -> Vec<Item> {
    let is_taken = |path: &Path| {
        let mut all = path.ancestors();
        all.all(|path| choice.takes(path, Path::new("")))
    };
    let taken = listing.iter().filter(|(path, _)| is_taken(path));
    let item = |(path, known): (&PathBuf, &Known)| {
        Item::new("map", path.clone(), fetch::source(command, path, known))
    };
    taken.map(item).collect()
}

/// The files below the `--partitions` folder, relative to it. Where their hosts have the parts,
/// there may be nothing here.
pub fn below_folder(folder: &Path, args: &Args, choice: &Choice) -> Result<Vec<Item>, Report> {
    let location = folder.display().to_string();
    match folder.canonicalize() {
        Ok(real) if real.is_dir() => scripts::walk(&real, Path::new(""), "map", choice),
        Ok(_) => Err(
            Fault::usage("--partitions", format!("{location} is not a folder"))
                .fix("name the folder in which part0 lies")
                .report(),
        ),
        Err(_) if args.parts == Parts::Remote => Ok(Vec::new()),
        Err(error) => Err(Fault::unreachable(location, error.to_string())
            .did_you_mean(folder)
            .fix("correct --partitions, or say with --listing what --fetch can get")
            .report()),
    }
}

/// The files that `--per-host` names below a folder, relative to it.
pub fn of_each_host(folder: &Path, set: &Numbered, choice: &Choice) -> Result<Vec<Item>, Report> {
    let mut report = Report::default();
    let mut items = Vec::new();
    for form in &set.forms {
        let names = Path::new(form).iter();
        let is_fixed = |name: &&OsStr| !name.to_string_lossy().contains(HOST);
        let above: PathBuf = names.clone().take_while(is_fixed).collect();
        let varying = names.clone().nth(above.iter().count()).unwrap_or_default();
        let entries = WalkDir::new(folder.join(above)).min_depth(1).max_depth(1);
        for entry in entries.sort_by_file_name() {
            let found = entry.ok().and_then(|entry| {
                let name = entry.file_name().to_str()?.to_owned();
                numbered::number(varying.to_str()?, &name)
            });
            let Some(number) = found else { continue };
            let dst = PathBuf::from(numbered::fill(form, number));
            if let Ok(real) = folder.join(&dst).canonicalize() {
                let found = scripts::file_or_folder(&real, &dst, "partition", choice);
                items.extend(report.keep(found).unwrap_or_default());
            }
        }
    }
    report.check().map(|()| items)
}
