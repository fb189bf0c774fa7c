//! Finds the files of script folders and extras by the rules of `scp -r`: links are followed, and
//! empty folders and permissions are kept.

use crate::args::Args;
use crate::disk::look;
use crate::format::Format;
use crate::layout::Place;
use crate::plan::{Item, Source};
use globset::{Glob, GlobSet, GlobSetBuilder};
use record::error::{Fault, Report};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use walkdir::WalkDir;

/// Names that nobody wants on the hosts: version control, caches, and virtual environments (whose
/// absolute paths work on no other machine).
const NEVER: [&str; 4] = [".git", "__pycache__", "*.pyc", ".venv"];

/// Decides which files are taken.
pub struct Choice {
    exclude: GlobSet,
    include: GlobSet,
    /// The files of the graph, by device and inode.
    graph: HashSet<(u64, u64)>,
}

impl Choice {
    /// Reads `--exclude` and `--include`; files of the graph are left out too.
    pub fn new(args: &Args, graph: HashSet<(u64, u64)>) -> Result<Choice, Report> {
        let never = NEVER
            .into_iter()
            .chain(args.exclude.iter().map(String::as_str));
        let mut report = Report::default();
        let exclude = report.keep(globs("--exclude", never));
        let include = report.keep(globs("--include", args.include.iter().map(String::as_str)));
        report.check()?;
        Ok(Choice {
            exclude: exclude.unwrap_or_default(),
            include: include.unwrap_or_default(),
            graph,
        })
    }

    /// Whether a file is taken, by its path below the folder or by its name.
    fn takes(&self, path: &Path, folder: &Path) -> bool {
        let below = path.strip_prefix(folder).unwrap_or(path);
        let matches = |globs: &GlobSet| {
            globs.is_match(below) || below.file_name().is_some_and(|name| globs.is_match(name))
        };
        !matches(&self.exclude) || matches(&self.include)
    }
}

const QUOTE: &str = "it is a pattern: [*] stands for a star, [[] for a bracket, [{] for a brace";

fn globs<'a>(option: &str, patterns: impl Iterator<Item = &'a str>) -> Result<GlobSet, Report> {
    let mut set = GlobSetBuilder::new();
    let mut report = Report::default();
    for pattern in patterns {
        match Glob::new(pattern) {
            Ok(glob) => drop(set.add(glob)),
            Err(error) => report.push(Fault::usage(option, error.to_string()).fix(QUOTE)),
        }
    }
    report.check()?;
    set.build()
        .map_err(|error| Fault::usage(option, error.to_string()).fix(QUOTE).report())
}

/// The files of script folders and extras, which go to every host. A relative destination is below
/// the workspace.
pub fn find(args: &Args, to: &Place<'_>, choice: &Choice) -> Result<Vec<Item>, Report> {
    let mut report = Report::default();
    let mut items = Vec::new();
    for folder in &args.script_folder {
        items.extend(
            report
                .keep(script_folder(folder, to, choice))
                .unwrap_or_default(),
        );
    }
    for extra in &args.extra {
        items.extend(
            report
                .keep(one_extra(extra, to, choice))
                .unwrap_or_default(),
        );
    }
    report.check()?;
    Ok(items)
}

fn script_folder(folder: &Path, to: &Place<'_>, choice: &Choice) -> Result<Vec<Item>, Report> {
    let place = folder.display().to_string();
    let real = folder.canonicalize().map_err(|error| {
        Fault::unreachable(&place, error.to_string())
            .did_you_mean(folder)
            .fix("correct --script-folder")
    })?;
    if !real.is_dir() {
        return Err(
            Fault::usage("--script-folder", format!("{place} is not a folder"))
                .fix("a single file goes with --extra FILE")
                .report(),
        );
    }
    // as scp: the name of the link itself, and the name of the folder for `.` and `..`
    let Some(name) = folder.file_name().or(real.file_name()) else {
        let fault = Fault::usage("--script-folder", format!("{place} has no name of its own"));
        return Err(fault
            .fix("name a folder in it, or --extra SRC:DST")
            .report());
    };
    walk(&real, &to.path(Path::new(name))?, "script", choice)
}

/// The files of an argument SRC or SRC:DST, a file or a folder.
fn one_extra(extra: &str, to: &Place<'_>, choice: &Choice) -> Result<Vec<Item>, Report> {
    let (src, dst) = match extra.rsplit_once(':') {
        Some((src, dst)) if !Path::new(extra).exists() => {
            (PathBuf::from(src), Some(PathBuf::from(dst)))
        }
        _ => (PathBuf::from(extra), None),
    };
    let missing = |error: std::io::Error| {
        Fault::unreachable(src.display().to_string(), error.to_string())
            .did_you_mean(&src)
            .fix("correct --extra")
    };
    let real = src.canonicalize().map_err(missing)?;
    let name = src
        .file_name()
        .or(real.file_name())
        .map(PathBuf::from)
        .unwrap_or_default();
    let dst = to.path(&dst.unwrap_or(name))?;
    match real.is_dir() {
        true => walk(&real, &dst, "extra", choice),
        false => Ok(vec![Item {
            host: None,
            kind: "extra",
            dst,
            key: None,
            source: Source::Copied(look(&real, Format::Any)?),
        }]),
    }
}

/// The files below a folder. A folder of which nothing is left is made, so that a script that
/// writes into `runs/` finds it.
fn walk(
    folder: &Path,
    dst: &Path,
    kind: &'static str,
    choice: &Choice,
) -> Result<Vec<Item>, Report> {
    let item = |dst: PathBuf, source: Source| Item {
        host: None,
        kind,
        dst,
        key: None,
        source,
    };
    let mut report = Report::default();
    let mut items = Vec::new();
    let mut folders = Vec::new();
    // folders that are not empty
    let mut filled: HashSet<PathBuf> = HashSet::new();
    let entries = WalkDir::new(folder)
        .follow_links(true)
        .sort_by_file_name()
        .into_iter();
    for entry in entries.filter_entry(|entry| choice.takes(entry.path(), folder)) {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                // a link that leads nowhere may be left out too
                if error.path().is_none_or(|path| choice.takes(path, folder)) {
                    report.push(unreadable(folder, &error));
                }
                continue;
            }
        };
        filled.extend(entry.path().parent().map(Path::to_owned));
        let dst = dst.join(entry.path().strip_prefix(folder).unwrap_or(entry.path()));
        if entry.file_type().is_dir() {
            folders.push((entry.into_path(), dst));
        } else if !entry.file_type().is_file() {
            let fault = Fault::data(
                entry.path().display().to_string(),
                "is neither a file nor a folder",
            );
            report.push(fault.fix("leave it out with --exclude"));
        } else if let Some(here) =
            report.keep(look(entry.path(), Format::Any).map_err(Report::from))
            && !choice.graph.contains(&here.identity)
        {
            items.push(item(dst, Source::Copied(here)));
        }
    }
    report.check()?;
    let empty = folders
        .into_iter()
        .filter(|(path, _)| !filled.contains(path));
    items.extend(empty.map(|(_, dst)| item(dst, Source::Folder)));
    Ok(items)
}

fn unreadable(folder: &Path, error: &walkdir::Error) -> Fault {
    let place = error.path().unwrap_or(folder).display().to_string();
    let problem = match (error.loop_ancestor(), error.io_error()) {
        (Some(above), _) => format!(
            "is a link to {}, in which it lies: it has no end",
            above.display()
        ),
        (None, Some(error)) => error.to_string(),
        (None, None) => error.to_string(),
    };
    Fault::unreachable(place, problem).fix("correct it, or leave it out with --exclude")
}
