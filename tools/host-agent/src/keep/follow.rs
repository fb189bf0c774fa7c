//! Reports what a job that was left has done and does on this host, from the files that its keeper
//! writes: the journal and the logs of its processes, from their beginnings on. When nobody reads
//! the report any longer this ends, and the job does not.

use super::folder::{Folder, log_name};
use super::journal::{Ages, JOURNAL, Tail};
use super::orders;
use super::pipes::MessageReader;
use job::Role;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Deserialize;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use wire::codec::{self, Decoder};
use wire::keep::{Follow, Record};
use wire::supervise::{Output, Stream};
use wire::{Event, Failure, Request};

/// How often files are checked; those that grow fast are read without a pause.
const PAUSE: Duration = Duration::from_millis(200);
/// How often a sign of life is sent.
const ALIVE_PACE: Duration = Duration::from_secs(1);

/// Whether the launcher is gone to which [`tell`] reports in this process.
static LAUNCHER_IS_GONE: AtomicBool = AtomicBool::new(false);

/// Makes [`tell`] end; the job goes on.
pub fn launcher_is_gone() {
    LAUNCHER_IS_GONE.store(true, Ordering::Relaxed);
}

/// Carries out the request in a process of its own, whose command line shows what it does.
pub fn follow(wanted: &Follow) -> Result<Option<Event>, Failure> {
    let fault =
        |error: io::Error| Failure::new(format!("the job there cannot be followed: {error}"));
    let folder =
        Folder::of(&wanted.job, wanted.address).filter(|folder| folder.file("processes").exists());
    let Some(folder) = folder else {
        return Ok(Some(Event::NoJob));
    };
    let mut command = Command::new("/proc/self/exe");
    // so that `ps` shows the name of the program, not the file of /proc by which it was found
    command.arg0("host-agent").arg("follow").arg(folder.path());
    if wanted.records {
        command.arg("records");
    }
    let status = command.status().map_err(fault)?;
    match status.success() {
        true => Ok(None),
        false => Err(Failure::new(format!(
            "what followed the job there ended with status {}",
            shell_code(status)
        ))),
    }
}

/// The exit status as a shell reports it.
fn shell_code(status: std::process::ExitStatus) -> i32 {
    status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .unwrap_or(1)
}

/// `host-agent follow FOLDER [records]`: reports on stdout; orders come on stdin. If the job's
/// records are wanted, they come first, and the rest when the first request has come.
pub fn run(folder: &Path, records: bool) -> ExitCode {
    let folder = Folder::at(folder);
    if records {
        let text = std::fs::read_to_string(folder.file("processes")).unwrap_or_default();
        let records = text.lines().map(|line| {
            Event::Record(Record {
                record: line.to_owned(),
            })
        });
        if records
            .chain([Event::Ready])
            .try_for_each(|event| write_event(&event, &[]))
            .is_err()
        {
            return ExitCode::SUCCESS;
        }
    }
    let Ok(stdin) = io::stdin().as_fd().try_clone_to_owned() else {
        return ExitCode::FAILURE;
    };
    let mut orders = MessageReader::shared(stdin);
    while records && !orders.has_ended() && !matches!(orders.next::<Request>(), Ok(Some(_))) {
        orders.read();
    }
    Teller::new(&folder, Some(orders)).run()
}

/// Reports on a job that this launcher has just left; its orders reach the keeper in another way.
pub fn tell(folder: &Folder) -> ExitCode {
    Teller::new(folder, None).run()
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

struct Teller {
    journal: Tail,
    entries: Decoder,
    ages: Ages,
    logs: Vec<Tail>,
    /// Where orders for the keeper come from.
    orders: Option<MessageReader>,
    keeper: Option<UnixStream>,
    said_alive: Instant,
    /// The last event of the keeper, that everything has ended. It is reported last, too.
    over: Option<Event>,
}

impl Teller {
    fn new(folder: &Folder, orders: Option<MessageReader>) -> Teller {
        let records = std::fs::read_to_string(folder.file("processes")).unwrap_or_default();
        let log = |line: &str| {
            serde_json::from_str(line)
                .map(|LogOf { role, rank }| Tail::new(folder.file(&log_name(role, rank))))
                .ok()
        };
        let keeper = orders::connect(folder)
            .ok()
            .filter(|keeper| keeper.set_nonblocking(true).is_ok());
        Teller {
            journal: Tail::new(folder.file(JOURNAL)),
            entries: Decoder::default(),
            ages: Ages::of(folder),
            logs: records.lines().filter_map(log).collect(),
            orders,
            keeper,
            said_alive: Instant::now(),
            over: None,
        }
    }

    fn run(mut self) -> ExitCode {
        while let Ok(true) = self.turn() {}
        ExitCode::SUCCESS
    }

    /// Reports what is new; returns whether there may be more. Fails if nobody reads the report.
    fn turn(&mut self) -> io::Result<bool> {
        // the keeper's end is looked for first: what was written before it is then read after it
        // was seen
        let gone = self.keeper.is_none();
        let more = self.tell_journal()? | self.tell_logs()?;
        if (self.over.is_some() || gone) && !more {
            write_event(&self.over.take().unwrap_or(Event::KeeperGone), &[])?;
            return Ok(false);
        }
        if self.said_alive.elapsed() >= ALIVE_PACE {
            self.said_alive = Instant::now();
            write_event(&Event::Alive, &[])?;
        }
        Ok(self.wait(if more { Duration::ZERO } else { PAUSE }))
    }

    fn tell_journal(&mut self) -> io::Result<bool> {
        let block = self.journal.read();
        self.entries.push(&block);
        while let Ok(Some(message)) = self.entries.next_message::<Event>() {
            match message.head {
                Event::Past(past) if matches!(*past.what, Event::Over(_)) => {
                    self.over = Some(Event::Past(self.ages.tell(past)));
                }
                Event::Past(past) => write_event(&Event::Past(self.ages.tell(past)), &[])?,
                event => write_event(&event, &[])?,
            }
        }
        Ok(!block.is_empty())
    }

    fn tell_logs(&mut self) -> io::Result<bool> {
        let mut more = false;
        for (index, log) in (0..).zip(&mut self.logs) {
            let block = log.read();
            if !block.is_empty() {
                more = true;
                write_event(
                    &Event::Output(Output {
                        index,
                        stream: Stream::Stdout,
                    }),
                    &block,
                )?;
            }
        }
        Ok(more)
    }

    /// Waits for orders or the keeper's end, and takes them; returns whether the launcher is there.
    fn wait(&mut self, pause: Duration) -> bool {
        let mut fds = Vec::new();
        fds.extend(
            self.keeper
                .as_ref()
                .map(|keeper| PollFd::new(keeper.as_fd(), PollFlags::POLLIN)),
        );
        fds.extend(
            self.orders
                .as_ref()
                .map(|orders| PollFd::new(orders.as_fd(), PollFlags::POLLIN)),
        );
        let _ = poll(
            &mut fds,
            PollTimeout::try_from(pause.as_millis()).unwrap_or(PollTimeout::ZERO),
        );
        // the last of the orders, if there are any
        let ordered = self.orders.is_some() && fds.last().and_then(PollFd::any).unwrap_or(false);
        drop(fds);
        self.look_for_keeper();
        let here = self.orders.as_mut().is_none_or(|orders| {
            if ordered {
                orders.read();
            }
            !orders.has_ended()
        });
        while let Some(Ok(Some(message))) = self.orders.as_mut().map(MessageReader::next::<Request>)
        {
            if orders::is_order(&message.head)
                && let Some(keeper) = &mut self.keeper
            {
                let _ = keeper.write_all(&codec::encode(&message.head, &[]));
            }
        }
        here && !LAUNCHER_IS_GONE.load(Ordering::Relaxed)
    }

    fn look_for_keeper(&mut self) {
        let mut buffer = [0; 1024];
        let gone = match self
            .keeper
            .as_mut()
            .map(|keeper| io::Read::read(keeper, &mut buffer))
        {
            Some(Ok(0)) => true,
            Some(Err(error)) => !matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
            ),
            _ => false,
        };
        if gone {
            self.keeper = None;
        }
    }
}
