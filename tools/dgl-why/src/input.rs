//! Reads the records or the logs of a job.

use record::error::{Fault, Report};
use record::jsonl::Head;
use record::run;
use std::collections::{HashSet, VecDeque};
use std::fs::{self, File, Metadata};
use std::io::{self, BufRead as _, ErrorKind, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use transfer::lock::FileLock;
use verdict::logs::{LogFile, Logs};
use verdict::{JobHistory, Run};
use walkdir::{DirEntry, WalkDir};

/// Records have a shorter first line; that of a log may have no end.
const MAX_FIRST_LINE: u64 = 64 << 10;
/// Deeper directories have no logs, but perhaps checkpoints.
const MAX_DEPTH: usize = 6;

const TOOL: &str = "dgl-why";
const INPUT: &str = "name a log, a directory of logs, or dgl-spawn's run.jsonl";

/// From the job's records, which are one file, or else from its logs.
pub fn history(paths: &[PathBuf]) -> Result<JobHistory, Report> {
    if let [path] = paths {
        let records = path.join("run.jsonl");
        if records.is_file() {
            let is_being_written = is_being_written(&records);
            let mut run = Run::new(0);
            run::read(TOOL, Some(&records), |head, text| run.record(head, text))?;
            return of_records(&run, is_being_written);
        }
    }
    let (mut seen, mut files) = (HashSet::new(), Vec::new());
    for path in paths {
        add_files(path, &mut seen, &mut files).map_err(|error| unreadable(path, &error))?;
    }
    match paths.first() {
        None => files.push("-".into()),
        Some(path) if files.is_empty() => {
            let fault = Fault::data(path.display().to_string(), "this directory has no files");
            return Err(fault.fix(INPUT).report());
        }
        Some(_) => {}
    }
    let is_alone = files.len() == 1;
    let mut logs = Logs::default();
    let mut is_empty = true;
    for (path, file) in LogFile::of(&files) {
        let is_being_written = is_alone && is_being_written(&path);
        let mut input = run::open(Some(&path), INPUT)?;
        let mut first = Vec::new();
        (&mut input)
            .take(MAX_FIRST_LINE)
            .read_until(b'\n', &mut first)
            .map_err(|error| unreadable(&path, &error))?;
        is_empty &= first.is_empty();
        let is_record = Head::parse(&first).is_ok() || matches!(first.trim_ascii(), b"{" | b"");
        let is_text = is_alone || !first.contains(&0);
        let input = io::Cursor::new(first).chain(input);
        if is_alone && is_record && !is_empty {
            let mut run = Run::new(0);
            run::read_input(TOOL, &file.name, input, |head, text| run.record(head, text))?;
            return of_records(&run, is_being_written);
        } else if is_text {
            logs.read(&file, input)
                .map_err(|error| unreadable(&path, &error))?;
        }
    }
    if is_empty {
        let problem = if is_alone {
            "it is empty"
        } else {
            "it is empty, and so are the others"
        };
        let first = run::name_of(files.first().map(PathBuf::as_path));
        return Err(Fault::data(first, problem).fix(INPUT).report());
    }
    Ok(logs.history())
}

fn of_records(run: &Run, is_being_written: bool) -> Result<JobHistory, Report> {
    Ok(JobHistory {
        is_being_written,
        ..JobHistory::of(run)?
    })
}

/// dgl-spawn locks the records in its `--log-dir` as long as it runs. Asked before they are read,
/// because it may end meanwhile.
fn is_being_written(path: &Path) -> bool {
    let file = match path.to_str() {
        Some("-") => io::stdin().as_fd().try_clone_to_owned().map(File::from),
        // opening a FIFO may wait for a writer
        _ if path.is_file() => File::open(path),
        _ => return false,
    };
    file.is_ok_and(|file| FileLock::is_taken(&file).unwrap_or(false))
}

/// Adds a file, or a directory's files in the order of their names. Links are followed, but each
/// file is added once, whatever names lead to it, and by a link only if no other name does.
fn add_files(
    path: &Path,
    seen: &mut HashSet<(u64, u64)>,
    files: &mut Vec<PathBuf>,
) -> io::Result<()> {
    if !path.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    let (mut found, mut file_links) = (Vec::new(), Vec::new());
    let mut entered = HashSet::new();
    // links to directories wait until all other names were seen; depths count from `path`
    let mut waiting = VecDeque::from([(path.to_owned(), 0)]);
    while let Some((root, above)) = waiting.pop_front() {
        let mut is_new = |folder: &Path| {
            let meta = fs::metadata(folder);
            meta.is_ok_and(|meta| entered.insert(id(&meta)))
        };
        // a directory at the greatest depth is not entered, but may be at another place
        if above >= MAX_DEPTH || !is_new(&root) {
            continue;
        }
        let is_listed = |entry: &DirEntry| {
            let is_deep = above + entry.depth() >= MAX_DEPTH;
            !entry.file_type().is_dir() || !is_deep && is_new(entry.path())
        };
        let walk = WalkDir::new(root).min_depth(1).sort_by_file_name();
        for entry in walk.into_iter().filter_entry(is_listed) {
            let entry = match entry {
                Err(error) if error.io_error().is_some_and(is_missing) => continue,
                entry => entry?,
            };
            let is_link = entry.path_is_symlink();
            match fs::metadata(entry.path()) {
                Ok(meta) if meta.is_file() && is_link => {
                    file_links.push((id(&meta), entry.into_path()));
                }
                Ok(meta) if meta.is_file() && seen.insert(id(&meta)) => {
                    found.push(entry.into_path());
                }
                Ok(meta) if meta.is_dir() && is_link => {
                    let depth = above + entry.depth();
                    waiting.push_back((entry.into_path(), depth));
                }
                Ok(_) => {}
                // a link that leads nowhere or to itself
                Err(error) if is_link && error.kind() != ErrorKind::PermissionDenied => {}
                Err(error) if is_missing(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
    file_links.retain(|(id, _)| seen.insert(*id));
    found.extend(file_links.into_iter().map(|(_, path)| path));
    found.sort();
    files.append(&mut found);
    Ok(())
}

fn is_missing(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound
}

/// The device and inode.
fn id(meta: &Metadata) -> (u64, u64) {
    (meta.dev(), meta.ino())
}

fn unreadable(path: &Path, error: &io::Error) -> Report {
    Fault::unreachable(run::name_of(Some(path)), error.to_string())
        .fix(INPUT)
        .report()
}
