//! Finds the files of script directories and extras as `scp -r` does: links are followed, empty
//! directories and permissions kept.

use crate::args::Args;
use globset::{Glob, GlobSet, GlobSetBuilder};
use partition::files::{FileItem, FileSource, inspect, is_missing};
use partition::format::FileFormat;
use record::error::{Fault, Report};
use record::term;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use walkdir::WalkDir;

/// Never copied: version control, caches, virtual environments (whose absolute paths work on no
/// other machine), and the records of dgl.mk, which change meanwhile.
const NEVER: [&str; 5] = [".git", "__pycache__", "*.pyc", ".venv", ".dgl-run"];

/// Device and inode.
pub type Identity = (u64, u64);

/// By default, takes everything but Python environments.
#[derive(Default)]
pub struct ScriptChoice {
    exclude: GlobSet,
    include: GlobSet,
    graph: HashMap<Identity, PathBuf>,
    /// Other names of the graph's files in directories.
    of_graph: RefCell<BTreeMap<PathBuf, PathBuf>>,
    /// Special files and broken links in directories, and what they are.
    left_out: RefCell<BTreeMap<PathBuf, &'static str>>,
    /// Python environments below the directories.
    environments: RefCell<BTreeSet<PathBuf>>,
}

impl ScriptChoice {
    /// Reads `--exclude`; files of the graph are left out too.
    pub fn new(args: &Args, graph: HashMap<Identity, PathBuf>) -> Result<ScriptChoice, Report> {
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
            ..ScriptChoice::default()
        })
    }

    /// Whether a file in a directory is one of the graph's.
    fn is_of_graph(&self, path: &Path, identity: Identity) -> bool {
        let Some(planned) = self.graph.get(&identity) else {
            return false;
        };
        let real = |planned: &Path| {
            let folder = planned.parent()?.canonicalize().ok()?;
            Some(folder.join(planned.file_name()?))
        };
        let planned = std::path::absolute(planned).unwrap_or_else(|_| planned.clone());
        if path != planned && real(&planned).is_none_or(|planned| path != planned) {
            let names = (path.to_owned(), planned);
            self.of_graph.borrow_mut().extend([names]);
        }
        true
    }

    /// What to warn about.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        let warnings = [self.left_out(), self.environments(), self.names_of_graph()];
        warnings.into_iter().flatten()
    }

    /// Warns about files that scripts expect under a name that the graph's plan does not give them.
    fn names_of_graph(&self) -> Option<String> {
        let of_graph = self.of_graph.borrow();
        let (path, planned) = of_graph.first_key_value()?;
        let more = term::and_more(of_graph.len(), " of the graph's files");
        Some(format!(
            "left out {}: it is a link to {}, which goes to its hosts under that name \
             only{more}\n  fix: make a copy of it, if scripts need it under this name",
            path.display(),
            planned.display()
        ))
    }

    fn leave_out(&self, path: &Path, what: &'static str) {
        self.left_out.borrow_mut().insert(path.to_owned(), what);
    }

    /// Warns about special files and broken links in directories.
    fn left_out(&self) -> Option<String> {
        let left_out = self.left_out.borrow();
        let (path, what) = left_out.first_key_value()?;
        let more = term::and_more(left_out.len(), " that have no content");
        Some(format!("left out {}: it is {what}{more}", path.display()))
    }

    /// Warns about Python environments that were left out.
    fn environments(&self) -> Option<String> {
        let environments = self.environments.borrow();
        let first = environments.first()?.display();
        let more = term::and_more(environments.len(), "");
        Some(format!(
            "left out {first}{more}: a Python environment works only where it was made\n  fix: \
             make one on the hosts and name it with host-probe --venv; --exclude '!NAME' copies it"
        ))
    }

    /// By its path below the directory, by its name, or as a Python environment.
    pub fn takes(&self, path: &Path, folder: &Path) -> bool {
        let below = path.strip_prefix(folder).unwrap_or(path);
        let matches = |globs: &GlobSet| {
            globs.is_match(below) || below.file_name().is_some_and(|name| globs.is_match(name))
        };
        if matches(&self.include) {
            return true;
        }
        if matches(&self.exclude) {
            return false;
        }
        // one that the user names itself is wanted
        let is_environment = path != folder && is_environment(path);
        if is_environment {
            self.environments.borrow_mut().insert(path.to_owned());
        }
        !is_environment
    }
}

/// Whether a directory is an environment of venv, virtualenv, uv or conda.
fn is_environment(folder: &Path) -> bool {
    folder.join("pyvenv.cfg").is_file() || folder.join("conda-meta").is_dir()
}

/// Linux's error of a link that leads to itself.
const ELOOP: i32 = 40;
const SPECIAL: &str = "neither a file nor a directory";

const QUOTE: &str = "it is a pattern: [*] stands for a star, [[] for a bracket, [{] for a brace";

fn globs<'a>(patterns: impl Iterator<Item = &'a str>) -> Result<GlobSet, Report> {
    let wrong = |error: globset::Error| Fault::usage("--exclude", error.to_string()).fix(QUOTE);
    let mut set = GlobSetBuilder::new();
    for glob in Report::collect(patterns.map(|pattern| Glob::new(pattern).map_err(wrong)))? {
        set.add(glob);
    }
    Ok(set.build().map_err(wrong)?)
}

/// The path on the hosts of an argument's destination.
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
            format!("cannot copy {location}, which has no name"),
        );
        return Err(fault
            .fix("choose a directory below it, or use --extra SRC:DST")
            .report());
    };
    walk(&real, &resolve(&name)?, "script", choice)
}

/// A directory's name as scp sees it: that of the link itself, and for `.` and `..` that of the
/// directory.
pub fn name_of(folder: &Path) -> Option<PathBuf> {
    let real = || Some(folder.canonicalize().ok()?.file_name()?.to_owned());
    folder
        .file_name()
        .map(ToOwned::to_owned)
        .or_else(real)
        .map(PathBuf::from)
}

/// SRC or SRC:DST, a file or a directory.
fn one_extra(
    extra: &str,
    resolve: Resolve<'_>,
    choice: &ScriptChoice,
) -> Result<Vec<FileItem>, Report> {
    let is_whole = match Path::new(extra).symlink_metadata() {
        Err(error) => !is_missing(&error),
        Ok(_) => true,
    };
    let (src, dst) = match extra.rsplit_once(':') {
        Some((src, dst)) if !is_whole => (PathBuf::from(src), Some(dst)),
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
    let dst = match dst {
        None => name,
        // as with cp, a directory as the destination of a file
        Some(dst) if !real.is_dir() && (["", "."].contains(&dst) || dst.ends_with('/')) => {
            Path::new(dst).join(name)
        }
        Some(dst) => PathBuf::from(dst),
    };
    file_or_folder(&real, &resolve(&dst)?, "extra", choice)
}

pub fn file_or_folder(
    real: &Path,
    dst: &Path,
    kind: &'static str,
    choice: &ScriptChoice,
) -> Result<Vec<FileItem>, Report> {
    let meta = real.metadata().map_err(|error| {
        Fault::unreachable(real.display().to_string(), error.to_string()).fix("make it readable")
    })?;
    if meta.is_dir() {
        walk(real, dst, kind, choice)
    } else if !meta.is_file() {
        let fault = Fault::data(real.display().to_string(), format!("is {SPECIAL}"));
        Err(fault.fix("name a file or a directory").report())
    } else {
        let here = inspect(real, FileFormat::Any)?;
        Ok(vec![FileItem::new(
            kind,
            dst.to_owned(),
            FileSource::Copied(here),
        )])
    }
}

/// If all files of a directory are left out, the empty directory is made, so that a script that
/// writes into `runs/` finds it.
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
                let path = error.path().unwrap_or(folder);
                // links are among the errors, and may be excluded
                if choice.takes(path, folder) {
                    match without_content(&error) {
                        Some(what) => choice.leave_out(path, what),
                        None => report.push(unreadable(path, &error)),
                    }
                }
                continue;
            }
        };
        filled.extend(entry.path().parent().map(Path::to_owned));
        let dst = dst.join(entry.path().strip_prefix(folder).unwrap_or(entry.path()));
        if entry.file_type().is_dir() {
            folders.push((entry.into_path(), dst));
        } else if !entry.file_type().is_file() {
            choice.leave_out(entry.path(), SPECIAL);
        } else if let Some(here) = report.keep(inspect(entry.path(), FileFormat::Any))
            && !choice.is_of_graph(entry.path(), here.identity)
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

/// What has no content, if that is the error: a link that leads to nothing, or to a directory that
/// contains it.
fn without_content(error: &walkdir::Error) -> Option<&'static str> {
    if error.loop_ancestor().is_some() {
        return Some("a symbolic link to a directory above it");
    }
    let io = error.io_error()?;
    let is_link = error.path()?.is_symlink();
    match io.raw_os_error() {
        _ if !is_link => None,
        Some(ELOOP) => Some("a symbolic link in a loop"),
        _ if is_missing(io) => Some("a broken symbolic link"),
        _ => None,
    }
}

fn unreadable(path: &Path, error: &walkdir::Error) -> Fault {
    let problem = error.io_error().map(ToString::to_string);
    let problem = problem.unwrap_or_else(|| error.to_string());
    Fault::unreachable(path.display().to_string(), problem)
        .fix("correct it, or leave it out with --exclude")
}
