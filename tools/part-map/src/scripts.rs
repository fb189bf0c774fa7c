//! Finds the files of script directories and extras by the rules of `scp -r`: links are followed,
//! and empty directories and permissions are kept.

use crate::args::Args;
use globset::{Glob, GlobSet, GlobSetBuilder};
use partition::files::{FileItem, FileSource, inspect};
use partition::format::FileFormat;
use record::error::{Fault, Report};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use walkdir::WalkDir;

/// Names that are never copied: version control, caches, and virtual environments (whose absolute
/// paths work on no other machine).
const NEVER: [&str; 4] = [".git", "__pycache__", "*.pyc", ".venv"];

pub struct ScriptChoice {
    exclude: GlobSet,
    include: GlobSet,
    graph: HashSet<(u64, u64)>,
}

impl ScriptChoice {
    /// Reads `--exclude`; files of the graph are left out too.
    pub fn new(args: &Args, graph: HashSet<(u64, u64)>) -> Result<ScriptChoice, Report> {
        let (taken, left_out): (Vec<_>, Vec<_>) = args
            .exclude
            .iter()
            .map(String::as_str)
            .partition(|word| word.starts_with('!'));
        let taken = taken.iter().map(|word| &word[1..]);
        let mut report = Report::default();
        let exclude = report.keep(globs(NEVER.into_iter().chain(left_out)));
        let include = report.keep(globs(taken));
        report.check()?;
        Ok(ScriptChoice {
            exclude: exclude.unwrap_or_default(),
            include: include.unwrap_or_default(),
            graph,
        })
    }

    /// Whether a file is taken, by its path below the directory or by its name.
    pub fn takes(&self, path: &Path, folder: &Path) -> bool {
        let below = path.strip_prefix(folder).unwrap_or(path);
        let matches = |globs: &GlobSet| {
            globs.is_match(below) || below.file_name().is_some_and(|name| globs.is_match(name))
        };
        !matches(&self.exclude) || matches(&self.include)
    }
}

const QUOTE: &str = "it is a pattern: [*] stands for a star, [[] for a bracket, [{] for a brace";

fn globs<'a>(patterns: impl Iterator<Item = &'a str>) -> Result<GlobSet, Report> {
    let wrong = |error: globset::Error| Fault::usage("--exclude", error.to_string()).fix(QUOTE);
    let mut set = GlobSetBuilder::new();
    for glob in Report::collect(patterns.map(|pattern| Glob::new(pattern).map_err(wrong)))? {
        set.add(glob);
    }
    Ok(set.build().map_err(wrong)?)
}

/// Finds the path on the hosts of an argument's destination.
pub type Resolve<'a> = &'a dyn Fn(&Path) -> Result<PathBuf, Fault>;

pub fn find(
    args: &Args,
    resolve: Resolve<'_>,
    choice: &ScriptChoice,
) -> Result<Vec<FileItem>, Report> {
    let extras = args.extra.iter();
    let found = args
        .script_folder
        .iter()
        .map(|folder| script_folder(folder, resolve, choice))
        .chain(extras.map(|extra| one_extra(extra, resolve, choice)));
    Ok(Report::collect(found)?.into_iter().flatten().collect())
}

fn script_folder(
    folder: &Path,
    resolve: Resolve<'_>,
    choice: &ScriptChoice,
) -> Result<Vec<FileItem>, Report> {
    let location = folder.display().to_string();
    let real = folder.canonicalize().map_err(|error| {
        Fault::unreachable(&location, error.to_string())
            .did_you_mean(folder)
            .fix("correct --script-folder")
    })?;
    if !real.is_dir() {
        return Err(
            Fault::usage("--script-folder", format!("{location} is not a directory"))
                .fix("a single file goes with --extra FILE")
                .report(),
        );
    }
    let Some(name) = name_of(folder) else {
        let fault = Fault::usage(
            "--script-folder",
            format!("{location} has no name of its own"),
        );
        return Err(fault
            .fix("name a directory in it, or --extra SRC:DST")
            .report());
    };
    walk(&real, &resolve(&name)?, "script", choice)
}

/// The name of a directory by scp's rules: that of the link itself, and for `.` and `..` that of
/// the directory.
pub fn name_of(folder: &Path) -> Option<PathBuf> {
    let real = || Some(folder.canonicalize().ok()?.file_name()?.to_owned());
    folder
        .file_name()
        .map(ToOwned::to_owned)
        .or_else(real)
        .map(PathBuf::from)
}

/// The files of an argument SRC or SRC:DST, a file or a directory.
fn one_extra(
    extra: &str,
    resolve: Resolve<'_>,
    choice: &ScriptChoice,
) -> Result<Vec<FileItem>, Report> {
    let (src, dst) = match extra.rsplit_once(':') {
        Some((src, dst)) if !Path::new(extra).exists() => {
            (PathBuf::from(src), Some(PathBuf::from(dst)))
        }
        _ => (PathBuf::from(extra), None),
    };
    let real = src.canonicalize().map_err(|error| {
        Fault::unreachable(src.display().to_string(), error.to_string())
            .did_you_mean(&src)
            .fix("correct --extra")
    })?;
    let name = src
        .file_name()
        .or(real.file_name())
        .map(PathBuf::from)
        .unwrap_or_default();
    let dst = resolve(&dst.unwrap_or(name))?;
    file_or_folder(&real, &dst, "extra", choice)
}

pub fn file_or_folder(
    real: &Path,
    dst: &Path,
    kind: &'static str,
    choice: &ScriptChoice,
) -> Result<Vec<FileItem>, Report> {
    if real.is_dir() {
        walk(real, dst, kind, choice)
    } else {
        let here = inspect(real, FileFormat::Any)?;
        Ok(vec![FileItem::new(
            kind,
            dst.to_owned(),
            FileSource::Copied(here),
        )])
    }
}

/// The files below a directory. If all files of a directory are left out, the empty directory is
/// made, so that a script that writes into `runs/` finds it.
pub fn walk(
    folder: &Path,
    dst: &Path,
    kind: &'static str,
    choice: &ScriptChoice,
) -> Result<Vec<FileItem>, Report> {
    let item = |dst: PathBuf, source: FileSource| FileItem::new(kind, dst, source);
    let mut report = Report::default();
    let mut items = Vec::new();
    let mut folders = Vec::new();
    // directories that are not empty
    let mut filled: HashSet<PathBuf> = HashSet::new();
    for entry in WalkDir::new(folder)
        .follow_links(true)
        .sort_by_file_name()
        .into_iter()
        .filter_entry(|entry| choice.takes(entry.path(), folder))
    {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                // a dangling link may be left out too
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
                "is neither a file nor a directory",
            );
            report.push(fault.fix("leave it out with --exclude"));
        } else if let Some(here) = report.keep(inspect(entry.path(), FileFormat::Any))
            && !choice.graph.contains(&here.identity)
        {
            items.push(item(dst, FileSource::Copied(here)));
        }
    }
    report.check()?;
    let empty = folders
        .into_iter()
        .filter(|(path, _)| !filled.contains(path));
    items.extend(empty.map(|(_, dst)| item(dst, FileSource::Folder)));
    Ok(items)
}

fn unreadable(folder: &Path, error: &walkdir::Error) -> Fault {
    let location = error.path().unwrap_or(folder).display().to_string();
    let problem = match (error.loop_ancestor(), error.io_error()) {
        (Some(above), _) => format!(
            "is a link to {}, which contains it, so it has no end",
            above.display()
        ),
        (None, Some(error)) => error.to_string(),
        (None, None) => error.to_string(),
    };
    Fault::unreachable(location, problem).fix("correct it, or leave it out with --exclude")
}
