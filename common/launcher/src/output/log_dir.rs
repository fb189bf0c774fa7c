//! The directory of `--log-dir`: a log file for each process, and run.jsonl with all records, with
//! which dgl-why and dgl-report can explain a run that was watched on a terminal.

use record::Process;
use record::error::Fault;
use record::jsonl::Head;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader, BufWriter, Read as _, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use transfer::folder::{Folder, NEW_FOLDER};
use transfer::lock::FileLock;

const RECORDS: &str = "run.jsonl";
/// Records have the values of `--env`, perhaps secrets.
const RECORDS_MODE: u32 = 0o600;
/// Before the umask.
const LOG_MODE: u32 = 0o666;
/// How many bytes of records a host may cause by its reports: a thousand stalls of a large host.
const MAX_REPORTS: u64 = 256 << 20;

/// In bytes; no record of these tools is as long.
const MAX_RECORD: u64 = 64 << 20;

/// A file and its name; `None` once it could not be written.
type LogFile = Option<(String, BufWriter<File>)>;

/// The open files; empty without `--log-dir`. The file of records is locked, so that a running
/// job's files are not moved away.
#[derive(Default)]
pub struct LogDir {
    records: LogFile,
    _lock: Option<FileLock>,
    logs: BTreeMap<u32, LogFile>,
    /// The bytes of each host's reports.
    reports: BTreeMap<u32, u64>,
    /// Messages for the user that were not shown yet.
    pub notices: Vec<String>,
    pub has_failed: bool,
}

impl LogDir {
    /// Creates the directory if necessary, moves away an earlier run's files, and opens this run's.
    /// If they cannot all be open at once, nothing is moved.
    pub fn open(folder: Option<&Path>, processes: &[Process]) -> Result<LogDir, Fault> {
        let Some(folder) = folder else {
            return Ok(LogDir::default());
        };
        let count = processes.len() + 1;
        let unusable =
            |problem: String| unreachable(problem).fix("name a directory in which you can write");
        reserve_descriptors(count).map_err(|error| {
            unreachable(format!("{count} files cannot be open at once: {error}"))
                .fix("raise the limit of open files on this machine: ulimit -n")
        })?;
        let folder = Folder::open_or_make(folder).map_err(|fault| {
            unreachable(fault.here())
                .fix("name the real path of a directory in which you can write")
        })?;
        if is_in_use(&folder).map_err(|error| unusable(error.to_string()))? {
            return Err(taken());
        }
        let names = processes.iter().map(log_name).collect();
        set_earlier_run_aside(&folder, names).map_err(|error| unusable(error.to_string()))?;
        let open = |name: String, mode: u32| match folder.open_log(&name, mode) {
            Ok(file) => Ok(Some((name, BufWriter::new(file)))),
            Err(error) => Err(unusable(format!("{name}: {error}"))),
        };
        let records = open(RECORDS.to_owned(), RECORDS_MODE)?;
        // before the logs are opened: until then, another launcher takes them for an earlier run's
        let lock = match &records {
            Some((_, file)) => lock(file.get_ref())?,
            None => None,
        };
        if let Some((_, file)) = &records
            && lock.is_some()
            && was_moved(&folder, file.get_ref())
        {
            return Err(taken());
        }
        let log = |process: &Process| Ok((process.id, open(log_name(process), LOG_MODE)?));
        Ok(LogDir {
            logs: processes.iter().map(log).collect::<Result<_, Fault>>()?,
            _lock: lock,
            records,
            reports: BTreeMap::new(),
            notices: Vec::new(),
            has_failed: false,
        })
    }

    /// Writes records of output, perhaps only at the next [`LogDir::flush`].
    pub fn write_output_records(&mut self, records: impl FnOnce() -> Vec<u8>) {
        let written = write(&mut self.records, |file| file.write_all(&records()));
        self.note(written);
    }

    /// Writes other records at once, so that killing this program does not lose them.
    pub fn write_records(&mut self, records: &[u8]) {
        let written = write(&mut self.records, |file| {
            file.write_all(records).and_then(|()| file.flush())
        });
        self.note(written);
    }

    /// Writes a record that a host may cause without limit, within its budget.
    pub fn write_report(&mut self, host: u32, record: &[u8]) {
        let bytes = self.reports.entry(host).or_default();
        let was_full = *bytes > MAX_REPORTS;
        *bytes += record.len() as u64;
        if *bytes <= MAX_REPORTS {
            self.write_records(record);
        } else if !was_full {
            let megabytes = MAX_REPORTS >> 20;
            self.notices.push(format!(
                "dgl-spawn: --log-dir: host {host} has reported more than {megabytes} MB of \
                 stacks and stalls; {RECORDS} gets no more of them"
            ));
        }
    }

    /// Writes whole lines to a process's log.
    pub fn write_lines(&mut self, id: u32, lines: &[u8]) {
        if let Some(log) = self.logs.get_mut(&id) {
            let written = write(log, |file| file.write_all(lines));
            self.note(written);
        }
    }

    pub fn flush(&mut self) {
        let files = self.logs.values_mut().chain([&mut self.records]);
        let written: Vec<_> = files.map(|file| write(file, BufWriter::flush)).collect();
        written.into_iter().for_each(|written| self.note(written));
    }

    fn note(&mut self, written: Result<(), String>) {
        self.has_failed |= written.is_err();
        self.notices.extend(written.err());
    }
}

/// Writes to a file that has not failed yet; an error is the message about one that fails now.
fn write(
    file: &mut LogFile,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), String> {
    let Some((name, open)) = file else {
        return Ok(());
    };
    let Err(error) = write(open) else {
        return Ok(());
    };
    let message = format!("dgl-spawn: --log-dir: {name}: {error}; it is no longer written");
    // dropping the writer would try to write the buffered bytes again
    if let Some((_, open)) = file.take() {
        drop(open.into_parts());
    }
    Err(message)
}

/// `None` for what is no regular file, such as a link to /dev/null, and without locks.
fn lock(records: &File) -> Result<Option<FileLock>, Fault> {
    if !records.metadata().is_ok_and(|meta| meta.is_file()) {
        return Ok(None);
    }
    match FileLock::take(records) {
        Ok(lock) => Ok(Some(lock)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(taken()),
        Err(_) => Ok(None),
    }
}

/// Whether another launcher has taken the file for an earlier run's before it was locked.
fn was_moved(folder: &Folder, records: &File) -> bool {
    let id = |meta: &Metadata| (meta.dev(), meta.ino());
    match folder.stat(RECORDS) {
        // a link is not moved
        Ok(named) if named.is_symlink() => false,
        Ok(named) => records.metadata().is_ok_and(|open| id(&open) != id(&named)),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

fn taken() -> Fault {
    unreachable("a running job writes its logs there".to_owned())
        .fix("name another directory, or wait until that job has finished")
}

fn unreachable(problem: String) -> Fault {
    Fault::unreachable("--log-dir", problem)
}

fn reserve_descriptors(count: usize) -> io::Result<()> {
    let null = File::open("/dev/null")?;
    let more = (1..count).map(|_| null.try_clone());
    more.collect::<io::Result<Vec<File>>>().map(drop)
}

fn log_name(process: &Process) -> String {
    record::log_name(process.role, process.rank)
}

fn is_in_use(folder: &Folder) -> io::Result<bool> {
    // it may be missing, or something that the user put there
    folder
        .file(RECORDS)
        .map_or(Ok(false), |records| FileLock::is_taken(&records))
}

/// Moves an earlier run's files, and those named like this run's logs, to a new directory, run-1,
/// run-2 and so on, so that all logs beside it belong to this run. Anything but regular files, such
/// as a FIFO that the user made, is left alone.
fn set_earlier_run_aside(folder: &Folder, mut names: BTreeSet<String>) -> io::Result<()> {
    if let Ok(records) = folder.file(RECORDS) {
        names.extend(logs_of_run(&records)?);
    }
    names.insert(RECORDS.to_owned());
    let mut files = Vec::new();
    for name in names {
        match folder.stat(&name) {
            Ok(found) if found.is_file() => files.push(name),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    if files.is_empty() {
        return Ok(());
    }
    let numbers = folder.names()?.into_iter().filter_map(|name| {
        let name = name.to_string_lossy();
        name.strip_prefix("run-")?.parse().ok()
    });
    let last_run: u32 = numbers.max().unwrap_or_default();
    let aside = (last_run.saturating_add(1)..u32::MAX)
        .map(|number| format!("run-{number}"))
        .find_map(|aside| match folder.make_new(&aside, NEW_FOLDER) {
            // another launcher made this directory
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
            made => Some(made.and_then(|()| folder.folder(&aside))),
        })
        .unwrap_or_else(|| Err(io::ErrorKind::AlreadyExists.into()))?;
    // another user may have put another directory in its place, whose files would be replaced
    if !aside.names()?.is_empty() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    for name in files {
        match folder.rename(&name, &aside, &name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            moved => moved?,
        }
    }
    Ok(())
}

/// The logs of a run's processes, by its records. Only dgl-spawn's own files may be moved: others
/// have similar names, like the slurm-12345.log of a batch job. Another user may have put a file
/// there that has no lines.
fn logs_of_run(records: &File) -> io::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    let mut input = BufReader::new(records);
    loop {
        let mut line = Vec::new();
        let read = (&mut input).take(MAX_RECORD).read_until(b'\n', &mut line)?;
        if read == 0 || read as u64 == MAX_RECORD {
            break;
        }
        match Head::parse(&line).map(|head| head.r#type).as_deref() {
            Ok("process") => {
                let process = serde_json::from_slice(&line).ok();
                names.extend(process.as_ref().map(log_name));
            }
            // the records of the input come first
            Ok("started") => break,
            _ => {}
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A job that began a moment earlier has opened the records, but not yet its logs.
    #[test]
    fn records_that_another_job_has_locked_are_refused_before_the_logs_are_opened() {
        let path = std::env::temp_dir().join(format!("dgl-tools-taken-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        // a link is not moved away
        let target = path.join("elsewhere");
        std::os::unix::fs::symlink(&target, path.join(RECORDS)).unwrap();
        let taken = FileLock::take(&File::create(&target).unwrap()).unwrap();
        let process = Process::new(0, 0, record::IpAddr::default(), record::Role::Trainer, 0);
        let open = || LogDir::open(Some(&path), std::slice::from_ref(&process)).map(drop);
        assert_eq!(open().unwrap_err().problem, super::taken().problem);
        assert!(!path.join("trainer-0.log").exists());
        drop(taken);
        assert!(open().is_ok());
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn records_that_another_job_has_moved_are_not_its_own() {
        let path = std::env::temp_dir().join(format!("dgl-tools-moved-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        let folder = Folder::open(&path).unwrap();
        let file = folder.create(RECORDS, b"").unwrap();
        assert!(!was_moved(&folder, &file));
        std::fs::rename(path.join(RECORDS), path.join("run-1")).unwrap();
        assert!(was_moved(&folder, &file));
        folder.create(RECORDS, b"").unwrap();
        assert!(was_moved(&folder, &file));
        std::fs::remove_dir_all(path).unwrap();
    }

    /// A sparse file of another user costs no disk space.
    #[test]
    fn records_without_lines_are_not_read_into_memory() {
        let path = std::env::temp_dir().join(format!("dgl-tools-long-{}", std::process::id()));
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .unwrap();
        file.set_len(1 << 40).unwrap();
        assert_eq!(logs_of_run(&file).unwrap(), BTreeSet::new());
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_a_host_reports_has_a_budget_and_one_message() {
        let path = std::env::temp_dir().join(format!("dgl-tools-log-dir-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        std::os::unix::fs::symlink("/dev/null", path.join(RECORDS)).unwrap();
        let mut logs = LogDir::open(Some(&path), &[]).unwrap();
        let report = vec![b'x'; 1 << 20];
        (0..MAX_REPORTS >> 20).for_each(|_| logs.write_report(7, &report));
        assert_eq!(logs.notices, [""; 0]);
        (0..3).for_each(|_| logs.write_report(7, &report));
        logs.write_report(8, &report);
        assert_eq!(logs.notices.len(), 1, "{:?}", logs.notices);
        assert!(logs.notices[0].contains("host 7 has reported more than 256 MB"));
        assert!(!logs.has_failed);
        std::fs::remove_dir_all(path).unwrap();
    }
}
