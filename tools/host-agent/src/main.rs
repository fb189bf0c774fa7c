//! The part of dgl-tools that runs on the hosts: it reads requests on stdin and writes events on
//! stdout, one JSON object per line. The tools copy it to a host and start it; it works by hand,
//! too: `echo '{"do":"probe","python":{"command":"python3"}}' | host-agent`.
//!
//! This file reads requests and calls the module of each.

mod dial;
mod install;
mod watcher;

use agent::job::DescribedJob;
use agent::notes::{Note, WatcherLink};
use agent::output::EventOutput;
use agent::requests::{Next, Requests};
use agent::signals::{asking_to_end, unblock_signals};
use agent_checks::preflight::{Preflight, needs};
use agent_checks::probe;
use agent_supervise::{reap, servers};
use host::inherited::reset_signals;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;
use wire::{Event, Failure, Request};

/// The allocator of static builds; the workspace's Cargo.toml says why.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USAGE: &str =
    "host-agent does on a host what a tool of dgl-tools requests: requests on stdin, events on \
     stdout, a JSON object per line.

Usage: host-agent                 serves requests until its stdin ends
       host-agent serve TOKEN     the same; prints `TOKEN runs` first, for the tool that started it
       host-agent dial [FILE]     dials in to a tool that waits, with the ticket in FILE or on stdin
       host-agent private-shm     exits with 0 if a job can have a private /dev/shm here
       host-agent hash            prints the BLAKE3 hash of its own file
       host-agent --version

Example: echo '{\"do\":\"probe\",\"python\":{\"command\":\"python3\"}}' | host-agent";

fn main() -> ExitCode {
    // a reader of stacks depends on the memory of other processes
    host::panic::abort_on_panic(Some(agent_stacks::reader::THREAD));
    if let Err(error) = reset_signals(&asking_to_end()) {
        record::tell!("host-agent: signals: {error}");
        return ExitCode::FAILURE;
    }
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let words: Vec<&str> = args
        .iter()
        .map(|word| word.to_str().unwrap_or(""))
        .collect();
    match words[..] {
        ["run", _, _, ..] => agent_supervise::start::run(&args[1], &args[2], &args[3..]),
        ["fits", ..] => ExitCode::SUCCESS,
        ["engine", _, _, _] => dial::engine::watch(&args[1], &args[2], &args[3]),
        [] => watcher::watch(None),
        ["serve", token] => watcher::watch(Some(token)),
        ["session", notes, answers] => session(notes, answers, None),
        ["session", notes, answers, token] => session(notes, answers, Some(token)),
        ["dial"] => dial::dial(None),
        ["dial", source] => dial::dial(Some(source)),
        ["supervise", description, notes] => agent_supervise::supervise(description, notes),
        ["private-shm"] => private_shm(),
        ["hash"] => install::own_hash().map_or(ExitCode::FAILURE, |hash| print_line(&hash)),
        ["--version" | "-V"] => print_line(concat!("host-agent ", env!("CARGO_PKG_VERSION"))),
        ["--help" | "-h"] => print_line(USAGE),
        _ => {
            record::tell!(
                "host-agent: command line: unknown words\n  fix: host-agent --help lists them"
            );
            ExitCode::from(2)
        }
    }
}

fn private_shm() -> ExitCode {
    match agent_supervise::private_shm::make_shm() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn print_line(text: &str) -> ExitCode {
    println!("{text}");
    ExitCode::SUCCESS
}

struct ConversationState {
    watcher: WatcherLink,
    job: Option<DescribedJob>,
    /// Whether the watcher holds a claim for the job.
    has_claimed: bool,
    picked: reap::Picked,
    preflight: Preflight,
}

impl ConversationState {
    /// How long to wait for the next request. A launcher that has disappeared must not keep its
    /// claims.
    fn patience(&self) -> Option<Duration> {
        let claimed = self.job.as_ref().filter(|_| self.has_claimed)?;
        let limit = Duration::from_millis(claimed.job.host_timeout_ms);
        (!limit.is_zero()).then_some(limit)
    }

    fn release(&mut self) -> Result<(), Failure> {
        self.preflight = Preflight::default();
        self.has_claimed = false;
        self.watcher.ask(&Note::Release).map(drop)
    }
}

/// `host-agent session NOTES ANSWERS [TOKEN]`: serves the requests on stdin, as a child of its
/// watcher.
fn session(notes: &str, answers: &str, token: Option<&str>) -> ExitCode {
    let output = EventOutput::default();
    // the watcher's blocked signal mask is inherited
    let _ = unblock_signals();
    // without the watcher, its processes would not be ended
    let _ = set_pdeathsig(Signal::SIGTERM);
    let Ok(watcher) = WatcherLink::inherited(notes, answers) else {
        output.event(&Event::Failed(Failure::new("it has no pipes to a watcher")));
        return ExitCode::FAILURE;
    };
    if let Some(token) = token {
        output.mark(token);
        install::tidy();
    }
    let mut requests = Requests::default();
    let mut state = ConversationState {
        watcher,
        job: None,
        has_claimed: false,
        picked: reap::Picked::default(),
        preflight: Preflight::default(),
    };
    loop {
        let request = match requests.next_within(state.patience()) {
            Ok(Next::Request(request)) => request.head,
            Ok(Next::End | Next::Silence) => return ExitCode::SUCCESS,
            // the following requests cannot be decoded
            Err(malformed) => {
                output.event(&Event::Failed(Failure::new(malformed)));
                return ExitCode::from(65);
            }
        };
        let answer = match request {
            Request::File(first) => {
                return agent_files::serve(first, requests, output, &mut state.watcher);
            }
            Request::Start(start) => match state.job.take() {
                Some(DescribedJob { job, processes }) => {
                    let records = processes.into_iter().map(|process| process.record);
                    let description = (job, records.collect(), start, requests.into_rest());
                    let why = agent_supervise::become_supervisor(&description, state.watcher);
                    return handed_over(Err(why), output);
                }
                None => Err(Failure::new("there is no job to start")),
            },
            // not an answer to a request; it may be sent at any time
            Request::Alive => {
                output.event(&Event::Alive);
                continue;
            }
            request => carry_out(request, &mut state, &output),
        };
        output.event(&answer.map_or_else(Event::Failed, |()| Event::Done));
        if output.is_closed() {
            return ExitCode::from(74);
        }
    }
}

/// Returns the status of the process that has read stdin and written stdout in place of this one,
/// or reports why it was not started.
fn handed_over(status: Result<ExitCode, Failure>, output: EventOutput) -> ExitCode {
    status.unwrap_or_else(|failure| {
        output.event(&Event::Failed(failure));
        ExitCode::FAILURE
    })
}

fn described(job: &mut Option<DescribedJob>) -> Result<&mut DescribedJob, Failure> {
    job.as_mut()
        .ok_or_else(|| Failure::new("no job was described"))
}

fn carry_out(
    request: Request,
    state: &mut ConversationState,
    output: &EventOutput,
) -> Result<(), Failure> {
    match request {
        Request::Probe(probe) => output.event(&Event::Probed(Box::new(probe::probe(&probe)))),
        Request::Job(job) => {
            state.release()?;
            let processes = Vec::new();
            state.job = Some(DescribedJob { job, processes });
        }
        Request::Process(process) => described(&mut state.job)?.add(*process)?,
        Request::FindServers(wanted) => output.event(&servers::find(&wanted)?),
        Request::TakeGroup(servers) => output.event(&servers::take_group(&servers)?),
        Request::Claim => {
            let DescribedJob { job, processes } = described(&mut state.job)?;
            let note = Note::Claim(job.clone(), needs::claim(job, processes));
            let taken = state.watcher.ask(&note)?;
            state.has_claimed = taken.is_empty();
            taken
                .into_iter()
                .for_each(|taken| output.event(&Event::Taken(taken)));
        }
        Request::Confirm => drop(state.watcher.ask(&Note::Confirm)?),
        Request::Release => state.release()?,
        Request::Preflight(check) => {
            let described = described(&mut state.job)?;
            let found = state.preflight.examine(&check, described)?;
            found
                .into_iter()
                .for_each(|finding| output.event(&Event::Preflight(finding)));
        }
        Request::Start(_)
        | Request::End(_)
        | Request::Kill
        | Request::ReportStacks
        | Request::AwaitServersEnd
        | Request::Alive
        | Request::File(_) => {
            return Err(Failure::new("no job runs here"));
        }
        Request::ListJobs => reap::list(output),
        Request::FindRanks => agent_stacks::ranks::find()
            .into_iter()
            .for_each(|process| output.event(&Event::Rank(Box::new(process)))),
        Request::TakeStacks(_) | Request::RecordStacks(_) => agent_stacks::ask(&request, output),
        Request::PickProcesses(wanted) => state.picked.pick(&wanted),
        Request::SignalPicked(wanted) => state.picked.signal(&wanted, output)?,
        Request::EndJobs(wanted) => state.picked.end(&wanted, output),
        Request::RemoveStaleShm => output.event(&reap::remove_stale_shm()),
    }
    Ok(())
}
