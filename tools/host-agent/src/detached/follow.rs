//! Sends what the launcher of a detached job has written and writes on this host, from the
//! beginning. It ends when nothing reads from it; the job continues.

use super::folder::JobFolder;
use super::folder::{MESSAGES, RECORDS};
use super::pipes::MessageReader;
use super::tail::Tail;
use crate::output::EventOutput;
use host::readiness::readable;
use std::io::ErrorKind::{Interrupted, WouldBlock};
use std::io::{self, Read, Write};
use std::iter::once;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use wire::codec;
use wire::detached::{DetachedProcess, LauncherEnded};
use wire::job::JobOnHost;
use wire::supervise::{self, ProcessStream};
use wire::{Event, Failure, Request};

/// How often to check files; files that grow fast are read without a pause.
const PAUSE: Duration = Duration::from_millis(200);
/// The interval of heartbeats.
const ALIVE_PACE: Duration = Duration::from_secs(1);

/// Sends the records of a detached job.
pub fn send_records(wanted: &JobOnHost, output: &EventOutput) {
    match find(wanted).and_then(|folder| folder.processes().ok()) {
        Some(records) => records
            .into_iter()
            .for_each(|record| output.event(&Event::Record(DetachedProcess { record }))),
        None => output.event(&Event::NoJob),
    }
}

fn find(wanted: &JobOnHost) -> Option<JobFolder> {
    JobFolder::of(&wanted.name, wanted.address).filter(|folder| folder.processes().is_ok())
}

/// Turns into a process that follows the job, whose command line shows what it does. Returns the
/// answer to the request if that fails.
pub fn follow(wanted: &JobOnHost) -> Result<Event, Failure> {
    let Some(folder) = find(wanted) else {
        return Ok(Event::NoJob);
    };
    let mut command = Command::new("/proc/self/exe");
    // so that `ps` shows the name of the program, not its file in /proc
    command.arg0("host-agent").arg("follow").arg(folder.path());
    let error = command.exec();
    Err(Failure::new(format!(
        "the job there cannot be followed: {error}"
    )))
}

/// `host-agent follow FOLDER`: reports on stdout; orders come on stdin.
pub fn run(folder: &Path) -> ExitCode {
    match io::stdin().as_fd().try_clone_to_owned() {
        Ok(stdin) => report(&JobFolder::new(folder), MessageReader::shared(stdin, &[])),
        Err(_) => ExitCode::FAILURE,
    }
}

/// Reports a job on stdout, and passes signals on to its launcher.
pub fn report(folder: &JobFolder, orders: MessageReader) -> ExitCode {
    let launcher = folder.connect().ok();
    let mut reporter = FollowReporter {
        records: Tail::new(folder.file(RECORDS)),
        messages: Tail::new(folder.file(MESSAGES)),
        launcher: launcher.filter(|launcher| launcher.set_nonblocking(true).is_ok()),
        folder: folder.clone(),
        orders,
        output: Arc::default(),
    };
    let output = Arc::clone(&reporter.output);
    // in a thread, because the disk with the files may hang
    let alive = move || {
        while !output.is_closed() {
            output.event(&Event::Alive);
            thread::sleep(ALIVE_PACE);
        }
        std::process::exit(0);
    };
    let _ = thread::Builder::new().spawn(alive);
    loop {
        match reporter.turn() {
            Ok(true) => {}
            Ok(false) => return ExitCode::SUCCESS,
            Err(error) => {
                let problem = format!("the job there cannot be followed: {error}");
                let failed = Event::Failed(Failure::new(problem));
                reporter.output.event(&failed);
                return ExitCode::FAILURE;
            }
        }
    }
}

struct FollowReporter {
    records: Tail,
    messages: Tail,
    /// The connection to the launcher; `None` once it has ended.
    launcher: Option<UnixStream>,
    folder: JobFolder,
    /// The source of signals for the launcher.
    orders: MessageReader,
    output: Arc<EventOutput>,
}

impl FollowReporter {
    /// Reports what is new; returns whether more may follow and something reads the report. Fails
    /// if a file cannot be read.
    fn turn(&mut self) -> io::Result<bool> {
        // checked before the files are read, so that everything written before the end is reported
        let has_ended = !self.is_alive();
        let more = self.report_files()?;
        if has_ended && !more {
            let summary = self.folder.summary();
            let ended = Event::LauncherEnded(LauncherEnded { summary });
            self.output.event(&ended);
            return Ok(false);
        }
        self.wait(if more { Duration::ZERO } else { PAUSE });
        self.obey();
        Ok(!self.orders.has_ended() && !self.output.is_closed())
    }

    /// Sends messages before records that were written later, because a tool stops reading once it
    /// has received the start of all processes.
    fn report_files(&mut self) -> io::Result<bool> {
        let records = self.records.read()?;
        let mut more = !records.is_empty();
        loop {
            let messages = self.messages.read()?;
            if messages.is_empty() {
                break;
            }
            more = true;
            self.report_block(ProcessStream::Stderr, &messages);
        }
        if !records.is_empty() {
            self.report_block(ProcessStream::Stdout, &records);
        }
        Ok(more)
    }

    fn report_block(&self, stream: ProcessStream, block: &[u8]) {
        let output = Event::Output(supervise::Output { index: 0, stream });
        self.output.event_with(&output, block);
    }

    fn is_alive(&mut self) -> bool {
        let is_there =
            self.launcher
                .as_mut()
                .is_some_and(|launcher| match launcher.read(&mut [0; 1024]) {
                    Ok(count) => count > 0,
                    Err(error) => matches!(error.kind(), WouldBlock | Interrupted),
                });
        self.launcher.take_if(|_| !is_there);
        is_there
    }

    /// Waits for signals or the end of the launcher.
    fn wait(&mut self, pause: Duration) {
        let launcher = self.launcher.iter().map(AsFd::as_fd);
        if readable(once(self.orders.as_fd()).chain(launcher), Some(pause))[0] {
            self.orders.read();
        }
    }

    fn obey(&mut self) {
        while let Ok(Some(order)) = self.orders.next::<Request>() {
            if let (Some(launcher), Request::SignalLauncher(_)) = (&mut self.launcher, &order.head)
            {
                let _ = launcher.write_all(&codec::encode(&order.head, &[]));
            }
        }
    }
}
