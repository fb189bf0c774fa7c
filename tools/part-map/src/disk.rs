//! Finds files of the graph that the config does not name, and other names of its files on this
//! machine.

use crate::args::{Args, PartsLocation};
use crate::numbered::{self, HOST, NumberedNames};
use crate::scripts::{self, Identity, ScriptChoice};
use partition::files::{self, FileItem, FileSource, WantedFile};
use record::error::{Fault, Report};
use std::collections::{BTreeSet, HashMap};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use walkdir::WalkDir;

/// The files that GraphStorm writes beside its config, without naming them in it, and reads there
/// on the hosts: statistics of labels, the users' ids of nodes (seen with 0.4.2), how the graph was
/// constructed, which goes into saved models (0.5), features for WholeGraph (its source).
const GRAPHSTORM: [&str; 7] = [
    "node_label_stats.json",
    "edge_label_stats.json",
    "node_mapping.pt",
    "edge_mapping.pt",
    "raw_id_mappings",
    "data_transform_new.json",
    "wholegraph",
];

/// Relative to the config's directory, with every file of these directories.
pub fn graphstorm_files(folder: &Path, choice: &ScriptChoice) -> Result<BTreeSet<PathBuf>, Report> {
    let found = GRAPHSTORM.iter().map(|name| {
        let path = folder.join(name);
        // a link that leads nowhere is not missing
        match path.canonicalize() {
            Ok(real) => scripts::file_or_folder(&real, Path::new(name), "map", choice),
            Err(error) if files::is_missing(&error) && !path.is_symlink() => Ok(Vec::new()),
            Err(error) => Err(files::unreadable(&path, &error).report()),
        }
    });
    // --exclude leaves out none of them
    let correctable = |Report(faults)| {
        let fix = "correct it, or remove it from the directory of the config";
        Report(
            faults
                .into_iter()
                .map(|fault: Fault| fault.fix(fix))
                .collect(),
        )
    };
    let items = Report::collect(found).map_err(correctable)?;
    let items = items.into_iter().flatten();
    let files = items.filter(|item| item.source != FileSource::Folder);
    Ok(files.map(|item| item.dst).collect())
}

/// The graph's files on this machine by their identities, including its config, so that they are
/// not copied to every host as scripts.
pub fn identities(config: &Path, wanted: &[WantedFile]) -> HashMap<Identity, PathBuf> {
    let of = |path: &Path| Some((identity(path)?, path.to_owned()));
    wanted
        .iter()
        .filter_map(|wanted| of(path(wanted)?))
        .chain(of(config))
        .collect()
}

fn identity(path: &Path) -> Option<Identity> {
    let meta = std::fs::metadata(path).ok()?;
    Some((meta.dev(), meta.ino()))
}

/// The path of a file that is copied. A fault is reported when it is.
pub fn path(wanted: &WantedFile) -> Option<&Path> {
    wanted.path().ok()?.map(PathBuf::as_path)
}

/// Whether both paths lead to one file.
pub fn is_same_file(path: &Path, other: &Path) -> bool {
    identity(path).is_some_and(|file| Some(file) == identity(other))
}

/// Whether its destination is the same file on this machine, if a config names it.
pub fn is_present(item: &FileItem) -> bool {
    item.key.is_none()
        || match &item.source {
            FileSource::Copied(here) => identity(&item.dst) == Some(here.identity),
            source => *source == FileSource::InPlace,
        }
}

/// A directory that is found below any of its names: links, other mounts, `..`.
pub struct Below {
    folder: Option<Identity>,
    /// The relative paths of directories that were looked up.
    known: HashMap<PathBuf, Option<PathBuf>>,
}

impl Below {
    pub fn new(folder: &Path) -> Below {
        let folder = identity(folder);
        let known = HashMap::new();
        Below { folder, known }
    }

    /// The path of a file relative to the directory, if it is below.
    pub fn path_of(&mut self, file: &Path) -> Option<PathBuf> {
        let (parent, name) = (file.parent()?, file.file_name()?);
        if !self.known.contains_key(parent) {
            let below = self
                .find(parent)
                .or_else(|| self.find(&parent.canonicalize().ok()?));
            self.known.insert(parent.to_owned(), below);
        }
        Some(self.known.get(parent)?.as_ref()?.join(name))
    }

    fn find(&self, folder: &Path) -> Option<PathBuf> {
        let is_this = |above: &&Path| self.folder.is_some() && identity(above) == self.folder;
        let below = folder
            .strip_prefix(folder.ancestors().find(is_this)?)
            .ok()?;
        let is_plain = below
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        is_plain.then(|| below.to_owned())
    }
}

/// The files below the `--partitions` directory, relative to it; none if the hosts have the parts.
pub fn below_folder(
    folder: &Path,
    args: &Args,
    choice: &ScriptChoice,
) -> Result<Vec<FileItem>, Report> {
    let location = folder.display().to_string();
    match folder.canonicalize() {
        Ok(real) if real.is_dir() => scripts::walk(&real, Path::new(""), "map", choice),
        Ok(_) => Err(
            Fault::usage("--partitions", format!("{location} is not a directory"))
                .fix("name the directory that contains part0")
                .report(),
        ),
        Err(error) if args.parts == PartsLocation::Remote && files::is_missing(&error) => {
            Ok(Vec::new())
        }
        Err(error) => Err(Fault::unreachable(location, error.to_string())
            .did_you_mean(folder)
            .fix("correct --partitions, or add --parts remote if the hosts have the parts")
            .report()),
    }
}

/// The files that `--per-host` names below a directory, relative to it.
pub fn per_host_files(
    folder: &Path,
    set: &NumberedNames,
    choice: &ScriptChoice,
) -> Result<Vec<FileItem>, Report> {
    let mut report = Report::default();
    let mut items = Vec::new();
    for form in &set.forms {
        let names = Path::new(form).iter();
        let above: PathBuf = names
            .clone()
            .take_while(|name| !name.to_string_lossy().contains(HOST))
            .collect();
        let varying = names.clone().nth(above.iter().count()).unwrap_or_default();
        for entry in WalkDir::new(folder.join(above))
            .min_depth(1)
            .max_depth(1)
            .sort_by_file_name()
        {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    let path = error.path().unwrap_or(folder);
                    let problem = error.io_error().filter(|error| !files::is_missing(error));
                    report
                        .0
                        .extend(problem.map(|error| files::unreadable(path, error)));
                    continue;
                }
            };
            let name = entry.file_name().to_str().zip(varying.to_str());
            let Some(number) = name.and_then(|(name, form)| numbered::number(form, name)) else {
                continue;
            };
            let dst = PathBuf::from(numbered::fill(form, number));
            let path = folder.join(&dst);
            match path.canonicalize() {
                Ok(real) => {
                    let found = scripts::file_or_folder(&real, &dst, "partition", choice);
                    items.extend(report.keep(found).unwrap_or_default());
                }
                // that its host has none is found later
                Err(error) if files::is_missing(&error) => {}
                Err(error) => report.push(files::unreadable(&path, &error)),
            }
        }
    }
    report.check().map(|()| items)
}
