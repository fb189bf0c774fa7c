//! Reports what a detached job has done and does on this host, from the files that its keeper
//! writes: the journal and the logs of its processes, from their beginnings on. When nobody reads
//! the report any longer this ends, and the job does not.

use super::folder::Folder;
use super::journal::{Ages, KeptJob, Tail};
use super::pipes::MessageReader;
use crate::open_files;
use crate::output::Output;
use job::Role;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Deserialize;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::Duration;
use wire::codec;
use wire::job::JobOnHost;
use wire::keep::Record;
use wire::supervise::{self, Stream};
use wire::{Event, Failure, Request};

/// How often files are checked; those that grow fast are read without a pause.
const PAUSE: Duration = Duration::from_millis(200);
/// How often a sign of life is sent.
const ALIVE_PACE: Duration = Duration::from_secs(1);

/// Sends the records of a detached job.
pub fn send_records(wanted: &JobOnHost, output: &mut Output) {
    match find(wanted).and_then(|folder| folder.records().ok()) {
        Some(records) => records
            .into_iter()
            .for_each(|record| output.event(&Event::Record(Record { record }))),
        None => output.event(&Event::NoJob),
    }
}

fn find(wanted: &JobOnHost) -> Option<Folder> {
    Folder::of(&wanted.name, wanted.address).filter(|folder| folder.records().is_ok())
}

/// Becomes a process that reports the job, whose command line shows what it does. Returns the
/// answer if it cannot.
pub fn follow(wanted: &JobOnHost) -> Result<Event, Failure> {
    let Some(folder) = find(wanted) else {
        return Ok(Event::NoJob);
    };
    let mut command = Command::new("/proc/self/exe");
    // so that `ps` shows the name of the program, not the file of /proc by which it was found
    command.arg0("host-agent").arg("follow").arg(folder.path());
    let error = command.exec();
    Err(Failure::new(format!(
        "the job there cannot be followed: {error}"
    )))
}

/// `host-agent follow FOLDER`: reports on stdout; orders come on stdin.
pub fn run(folder: &Path) -> ExitCode {
    match io::stdin().as_fd().try_clone_to_owned() {
        Ok(stdin) => report(&Folder::at(folder), MessageReader::shared(stdin, &[])),
        Err(_) => ExitCode::FAILURE,
    }
}

/// Reports a job on stdout, and takes orders for its keeper.
pub fn report(folder: &Folder, orders: MessageReader) -> ExitCode {
    // a host may run thousands of processes
    open_files::raise_limit();
    let log = |line: String| {
        let LogOf { role, rank } = serde_json::from_str(&line).ok()?;
        Some(Tail::new(folder.file(&record::log_name(role, rank))))
    };
    let records = match folder.records() {
        Ok(records) => records,
        Err(error) => return fail(&error),
    };
    let mut reporter = Reporter {
        job: KeptJob::of(folder),
        ages: Ages::of(folder),
        logs: records.into_iter().filter_map(log).collect(),
        orders,
        over: None,
    };
    // also while the disk with the files does not answer
    let alive = || {
        while write_event(&Event::Alive, &[]).is_ok() {
            thread::sleep(ALIVE_PACE);
        }
        std::process::exit(0);
    };
    let _ = thread::Builder::new().spawn(alive);
    loop {
        match reporter.turn() {
            Ok(true) => {}
            Ok(false) => return ExitCode::SUCCESS,
            Err(error) => return fail(&error),
        }
    }
}

fn fail(error: &io::Error) -> ExitCode {
    let problem = format!("the job there cannot be followed: {error}");
    // nobody may read the report any longer
    let _ = write_event(&Event::Failed(Failure::new(problem)), &[]);
    ExitCode::FAILURE
}

fn write_event(event: &Event, body: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(&codec::encode(event, body))?;
    out.flush()
}

/// The fields of a record that make up the name of its log.
#[derive(Deserialize)]
struct LogOf {
    role: Role,
    rank: u32,
}

struct Reporter {
    job: KeptJob,
    ages: Ages,
    logs: Vec<Tail>,
    /// Where orders for the keeper come from.
    orders: MessageReader,
    /// The last event of the keeper, that everything has ended. It is reported last, too.
    over: Option<Event>,
}

impl Reporter {
    /// Reports what is new; returns whether there may be more. Fails if nobody reads the report, or
    /// a file cannot be read.
    fn turn(&mut self) -> io::Result<bool> {
        // the keeper's end is looked for first: what was written before it is then read after it
        // was seen
        let gone = self.job.keeper().is_none();
        let more = self.report_journal()? | self.report_logs()?;
        if (self.over.is_some() || gone) && !more {
            write_event(&self.over.take().unwrap_or(Event::KeeperGone), &[])?;
            return Ok(false);
        }
        self.wait(if more { Duration::ZERO } else { PAUSE });
        self.obey();
        Ok(!self.orders.has_ended())
    }

    fn report_journal(&mut self) -> io::Result<bool> {
        let entries = self.job.read()?;
        let more = entries.is_some();
        for past in entries.into_iter().flatten() {
            let is_over = matches!(*past.what, Event::Over(_));
            let event = Event::Past(self.ages.date(past));
            if is_over {
                self.over = Some(event);
            } else {
                write_event(&event, &[])?;
            }
        }
        Ok(more)
    }

    fn report_logs(&mut self) -> io::Result<bool> {
        let mut more = false;
        for (index, log) in (0..).zip(&mut self.logs) {
            let block = log.read()?;
            if !block.is_empty() {
                more = true;
                let stream = Stream::Stdout;
                write_event(&Event::Output(supervise::Output { index, stream }), &block)?;
            }
        }
        Ok(more)
    }

    /// Waits for orders or the keeper's end.
    fn wait(&mut self, pause: Duration) {
        let input = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut fds = vec![input(self.orders.as_fd())];
        fds.extend(self.job.wait_for().map(input));
        let pause = PollTimeout::try_from(pause.as_millis()).unwrap_or(PollTimeout::ZERO);
        let _ = poll(&mut fds, pause);
        if fds[0].any().unwrap_or(false) {
            self.orders.read();
        }
    }

    /// Passes orders on to the keeper, which obeys those to end the job.
    fn obey(&mut self) {
        while let Ok(Some(order)) = self.orders.next::<Request>() {
            if let Some(keeper) = self.job.keeper() {
                let _ = keeper.write_all(&codec::encode(&order.head, &[]));
            }
        }
    }
}
