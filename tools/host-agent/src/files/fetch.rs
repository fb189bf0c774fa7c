//! Gets files by commands of the user's. Each command writes into a folder of its own in the stage,
//! and the file has its name only when the command has ended with 0 and the size is right.

use crate::output::SharedOutput;
use crate::processes::{end_processes, find_below};
use nix::sys::prctl::set_child_subreaper;
use parking_lot::Mutex;
use record::quote::sh;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::{self, PipeReader, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use transfer::folder::Folder;
use transfer::partial::{Finish, finish_written};
use wire::files::{Fetch, FileEvent, FileFault};

/// What the names of the folders in which commands write begin with.
pub const PREFIX: &str = "fetch.";
/// How long commands have to clean up after TERM.
pub const GRACE: Duration = Duration::from_secs(2);
/// How often to check whether a command has ended.
const PAUSE: Duration = Duration::from_millis(20);
/// How often to report the size of a file that grows.
const REPORTED: Duration = Duration::from_millis(500);
/// How long what a command has left running may hold its stderr.
const STDERR_CLOSES: Duration = Duration::from_millis(200);
/// How much of a command's stderr is kept.
const TAIL: usize = 2000;
/// How many of its last lines are reported.
const LINES: usize = 3;

/// The commands of a push on this host.
pub struct Fetches {
    /// Whether no more commands may be started. Whoever starts one holds the lock.
    is_over: Arc<Mutex<bool>>,
    threads: Vec<JoinHandle<()>>,
    output: Arc<SharedOutput>,
}

/// Where a file goes when it is whole.
pub struct Destination {
    /// The stage of the push.
    pub stage: Folder,
    /// The folder of the file.
    pub folder: Folder,
    /// The name of the file.
    pub name: OsString,
    /// What the file gets with its name.
    pub finish: Finish,
}

impl Fetches {
    pub fn new(output: Arc<SharedOutput>) -> Fetches {
        Fetches {
            is_over: Arc::default(),
            threads: Vec::new(),
            output,
        }
    }

    /// Starts a command; its result is reported when it has ended.
    pub fn begin(&mut self, fetch: Fetch, to: Destination) -> Result<(), FileFault> {
        // what commands leave running becomes a child of this process, and ends with the push
        set_child_subreaper(true).map_err(io::Error::from)?;
        let (is_over, output) = (Arc::clone(&self.is_over), Arc::clone(&self.output));
        let run = move || {
            let folder = format!("{PREFIX}{}", fetch.key);
            let result = run(&fetch, &folder, &to, &is_over, &output);
            let _ = to.stage.remove_all(&folder);
            output.send(FileEvent::landed(fetch.file.id, result));
        };
        self.threads.retain(|thread| !thread.is_finished());
        self.threads.push(thread::Builder::new().spawn(run)?);
        Ok(())
    }

    /// Ends all commands, and what they have started.
    pub fn end(&mut self) {
        if self.threads.is_empty() {
            return;
        }
        *self.is_over.lock() = true;
        end_processes(GRACE, || find_below(nix::unistd::getpid().as_raw()));
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn run(
    fetch: &Fetch,
    folder: &str,
    to: &Destination,
    is_over: &Mutex<bool>,
    output: &SharedOutput,
) -> Result<(), FileFault> {
    let problem = |problem: String| Err(FileFault::Command(problem));
    to.stage.make(folder, 0o700)?;
    let folder = to.stage.folder(folder)?;
    let (status, stderr) = ask(fetch, &folder, &to.name, is_over, output)?;
    if !status.success() {
        // as `exit status: 7` and `signal: 9 (SIGKILL)`
        let status = status.to_string().replacen(": ", " ", 1);
        return problem(format!("its command ended with {status}: {stderr}"));
    }
    let (wanted, meta) = (fetch.file.bytes, folder.stat(&to.name));
    match meta {
        Err(_) => return problem("its command ended with 0 and did not write {dst}".to_owned()),
        Ok(meta) if !meta.is_file() => return Err(FileFault::NoFile),
        Ok(meta) if meta.len() == 0 && wanted == 0 => {
            return problem("its command ended with 0 and wrote an empty file".to_owned());
        }
        Ok(meta) if wanted != 0 && meta.len() != wanted => {
            let bytes = meta.len();
            return problem(format!(
                "its command ended with 0 and wrote {bytes} bytes, and the file has {wanted}"
            ));
        }
        Ok(meta) => output.send(FileEvent::Fetched {
            id: fetch.file.id,
            bytes: meta.len(),
        }),
    }
    finish_written((&folder, &to.name), (&to.folder, &to.name), to.finish)?;
    if to.finish.fsync {
        to.folder.as_file()?.sync_all()?;
    }
    Ok(())
}

/// Runs a command to its end. Returns how it ended, and the last lines of its stderr.
fn ask(
    fetch: &Fetch,
    folder: &Folder,
    name: &OsStr,
    is_over: &Mutex<bool>,
    output: &SharedOutput,
) -> io::Result<(ExitStatus, String)> {
    let path = folder.real_path()?;
    let dst = sh(path.join(name).as_os_str().as_bytes());
    let words: Vec<&[u8]> = fetch.command.split("{dst}").map(str::as_bytes).collect();
    // before the command, which could not be left alone without a thread that reads
    let (reader, stderr) = io::pipe()?;
    let tail = Arc::new(Mutex::new(VecDeque::new()));
    let kept = Arc::clone(&tail);
    let reading = thread::Builder::new().spawn(move || keep_tail(reader, &kept))?;
    let mut command = Command::new("sh");
    command
        .arg("-c")
        .arg(OsStr::from_bytes(&words.join(&dst[..])))
        .envs(&fetch.env)
        .current_dir(path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr)
        .process_group(0);
    let mut child = {
        let is_over = is_over.lock();
        if *is_over {
            return Err(io::ErrorKind::Interrupted.into());
        }
        command.spawn()?
    };
    // the command holds the end of the pipe that the child writes to
    drop(command);
    let status = wait(&mut child, folder, fetch.file.id, output)?;
    let until = Instant::now() + STDERR_CLOSES;
    while !reading.is_finished() && Instant::now() < until {
        thread::sleep(PAUSE);
    }
    let tail: Vec<u8> = tail.lock().iter().copied().collect();
    let text = String::from_utf8_lossy(&tail);
    // a progress meter writes over its line
    let lines = text.split(['\n', '\r']).map(str::trim);
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    let last = lines[lines.len().saturating_sub(LINES)..].join(" | ");
    Ok((status, last))
}

fn wait(
    child: &mut Child,
    folder: &Folder,
    id: u32,
    output: &SharedOutput,
) -> io::Result<ExitStatus> {
    let mut reported = (Instant::now(), 0);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        thread::sleep(PAUSE);
        if reported.0.elapsed() >= REPORTED {
            // under whatever name the command writes until it is done
            let names = folder.names().unwrap_or_default();
            let sizes = names.iter().filter_map(|name| folder.stat(name).ok());
            let bytes = sizes.map(|meta| meta.len()).sum();
            if bytes > reported.1 {
                output.send(FileEvent::Fetched { id, bytes });
            }
            reported = (Instant::now(), bytes.max(reported.1));
        }
    }
}

fn keep_tail(mut stderr: PipeReader, tail: &Mutex<VecDeque<u8>>) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stderr.read(&mut buffer) {
        let mut tail = tail.lock();
        tail.extend(&buffer[..count]);
        let surplus = tail.len().saturating_sub(TAIL);
        tail.drain(..surplus);
    }
}
