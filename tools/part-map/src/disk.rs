//! What part-map reads from the disk: whether files are there and can be read, how large and how old they are, what is in folders.

use crate::args::Args;
use crate::plan::{Found, Wanted, relative};
use common::error::{Fault, Report};
use globset::{Glob, GlobSet, GlobSetBuilder};
use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use walkdir::WalkDir;

/// What nobody wants on the hosts: version control, caches, virtual environments (their absolute paths work on no other machine).
const NEVER: [&str; 4] = [".git", "__pycache__", "*.pyc", ".venv"];

/// Finds what the config names; all that is missing is reported at once.
pub fn find(wanted: Vec<Wanted>) -> Result<Vec<Found>, Report> {
    let mut report = Report::default();
    let mut found = Vec::new();
    for wanted in wanted {
        let src = wanted.candidates.iter().find(|candidate| candidate.is_file()).cloned();
        match src {
            Some(src) => found.extend(report.keep(look(&src, wanted).map_err(Report::from))),
            None if !wanted.required => {}
            None => {
                let fault = Fault::data(&wanted.key, format!("no such file: {}", wanted.candidates[0].display()));
                report.push(fault.fix("run partition_graph again, or correct the path; it is relative to the folder of the config"));
            }
        }
    }
    report.check()?;
    Ok(found)
}

fn look(src: &Path, wanted: Wanted) -> Result<Found, Fault> {
    let failed = |error: std::io::Error| Fault::unreachable(src.display().to_string(), error.to_string());
    let meta = File::open(src).and_then(|file| file.metadata()).map_err(failed)?;
    if meta.len() == 0 && wanted.kind == "partition" {
        let fault = Fault::data(src.display().to_string(), "is empty: partitioning did not end, or its disk was full");
        return Err(fault.fix("run partition_graph again"));
    }
    Ok(Found {
        src: std::path::absolute(src).map_err(failed)?,
        bytes: meta.len(),
        mtime_s: meta.mtime(),
        mtime_nsec: u32::try_from(meta.mtime_nsec()).unwrap_or(0),
        mode: meta.mode() & 0o777,
        wanted,
    })
}

/// The files of script folders and extras.
pub fn scripts(args: &Args) -> Result<Vec<Found>, Report> {
    let mut report = Report::default();
    let exclude = globs(&args.exclude)?;
    let mut found = Vec::new();
    for folder in &args.script_folder {
        let place = folder.display().to_string();
        match folder.canonicalize() {
            Ok(real) if real.is_dir() => match real.file_name() {
                Some(name) => found.extend(report.keep(walk(&real, Path::new(name), "script", &exclude)).unwrap_or_default()),
                None => report.push(Fault::usage("--script-folder", format!("{place} has no name of its own"))),
            },
            Ok(_) => {
                report
                    .push(Fault::usage("--script-folder", format!("{place} is not a folder")).fix("a single file goes with --extra FILE"));
            }
            Err(error) => report.push(Fault::unreachable(place, error.to_string()).fix("correct --script-folder")),
        }
    }
    for extra in &args.extra {
        found.extend(report.keep(one_extra(extra, &exclude)).unwrap_or_default());
    }
    report.check()?;
    Ok(found)
}

/// SRC or SRC:DST, a file or a folder.
fn one_extra(extra: &str, exclude: &GlobSet) -> Result<Vec<Found>, Report> {
    let (src, dst) = match extra.rsplit_once(':') {
        Some((src, dst)) if !Path::new(extra).exists() => (PathBuf::from(src), Some(PathBuf::from(dst))),
        _ => (PathBuf::from(extra), None),
    };
    let missing = |error: std::io::Error| Fault::unreachable(src.display().to_string(), error.to_string()).fix("correct --extra");
    let real = src.canonicalize().map_err(missing)?;
    let name = src.file_name().or(real.file_name()).map(PathBuf::from).unwrap_or_default();
    let dst = relative("--extra", &dst.unwrap_or(name))?;
    match real.is_dir() {
        true => walk(&real, &dst, "extra", exclude),
        false => Ok(vec![look(&real, Wanted { host: None, kind: "extra", candidates: vec![], dst, key: String::new(), required: true })?]),
    }
}

/// The files below a folder, links followed as scp -r does.
fn walk(folder: &Path, dst: &Path, kind: &'static str, exclude: &GlobSet) -> Result<Vec<Found>, Report> {
    let mut report = Report::default();
    let mut found = Vec::new();
    let excluded = |path: &Path| {
        let below = path.strip_prefix(folder).unwrap_or(path);
        exclude.is_match(below) || below.file_name().is_some_and(|name| exclude.is_match(name))
    };
    let entries = WalkDir::new(folder).min_depth(1).follow_links(true).sort_by_file_name().into_iter();
    for entry in entries.filter_entry(|entry| !excluded(entry.path())) {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                let place = error.path().unwrap_or(folder).display().to_string();
                let problem = error.io_error().map_or_else(|| error.to_string(), ToString::to_string);
                report.push(Fault::unreachable(place, problem).fix("correct it, or leave it out with --exclude"));
                continue;
            }
        };
        if entry.file_type().is_dir() {
            continue;
        }
        if !entry.file_type().is_file() {
            let fault = Fault::data(entry.path().display().to_string(), "is neither a file nor a folder");
            report.push(fault.fix("leave it out with --exclude"));
            continue;
        }
        let below = entry.path().strip_prefix(folder).unwrap_or(entry.path());
        let wanted = Wanted { host: None, kind, candidates: vec![], dst: dst.join(below), key: String::new(), required: true };
        found.extend(report.keep(look(entry.path(), wanted).map_err(Report::from)));
    }
    report.check()?;
    Ok(found)
}

fn globs(patterns: &[String]) -> Result<GlobSet, Report> {
    let mut set = GlobSetBuilder::new();
    let mut report = Report::default();
    for pattern in NEVER.into_iter().chain(patterns.iter().map(String::as_str)) {
        match Glob::new(pattern) {
            Ok(glob) => drop(set.add(glob)),
            Err(error) => report.push(Fault::usage("--exclude", error.to_string())),
        }
    }
    report.check()?;
    set.build().map_err(|error| Fault::usage("--exclude", error.to_string()).report())
}

/// Partitions that lie in a script folder do not go to every host as scripts too.
pub fn without_partitions(scripts: Vec<Found>, partitions: Vec<Found>) -> Vec<Found> {
    let taken: HashSet<PathBuf> = partitions.iter().filter_map(|found| found.src.canonicalize().ok()).collect();
    let others = scripts.into_iter().filter(|found| !taken.contains(&found.src.canonicalize().unwrap_or_default()));
    let others: Vec<Found> = others.collect();
    partitions.into_iter().chain(others).collect()
}
