//! The launcher of a detached job on its first host. A tool sends it the job and has the agents of
//! all hosts connect to it. Once all have connected, it no longer needs the tool.

use super::callers::Callers;
use super::folder::{JobFolder, LauncherLock, MESSAGES, PROCESSES, RECORDS};
use super::orders;
use crate::dial::back;
use crate::output::EventOutput;
use crate::requests::{Next, Requests};
use host::open_files;
use host::processes;
use launcher::detached::DetachedJob;
use launcher::detached::start::LauncherListen;
use launcher::output::sink::OutputSink;
use launcher::plan::SplitProcesses;
use launcher::run::launcher::{Launcher, own_fault};
use launcher::run::signals::Signals;
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout};
use record::Process;
use record::error::Report;
use record::exit::Exit;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use wire::detached::{Detached, Launch};
use wire::preflight::Finding;
use wire::{Event, Failure, Request};

/// How often to check whether the agents of all hosts have connected.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// How long the tool may be silent before the agents have connected.
const TOOL_LIMIT: Duration = Duration::from_secs(300);
/// How long a launcher may take to end after the processes of its job.
const END_LIMIT: Duration = Duration::from_secs(5);
/// The most bytes of a plan, enough for 10,000 processes with long commands.
const MAX_PLAN: usize = 256 << 20;

/// A launcher that has its job and waits for the agents.
struct Prepared {
    job: DetachedJob,
    split: SplitProcesses,
    callers: Callers,
    sink: OutputSink,
    folder: JobFolder,
    listening: LauncherListen,
    _lock: LauncherLock,
}

/// `host-agent launch`: serves the tool behind stdin and stdout, a socket, and then the job.
pub fn launch() -> ExitCode {
    open_files::raise_limit();
    let output = EventOutput::default();
    // the answer to the request that started it
    output.event(&Event::Done);
    let Some(prepared) = prepare(&output) else {
        return ExitCode::SUCCESS;
    };
    let folder = prepared.folder.clone();
    output.event(&Event::Detached(Detached {
        folder: folder.path().into(),
    }));
    if let Err(error) = leave_tool(&folder, prepared.job.log_dir.is_some()) {
        output.event(&Event::Failed(Failure::new(error.to_string())));
        return ExitCode::FAILURE;
    }
    match run(prepared) {
        Ok(exit) => exit.into(),
        Err(report) => {
            report.print("dgl-spawn");
            report.exit().into()
        }
    }
}

/// Receives the job and waits for the agents of all hosts; `None` if the tool is gone before that.
fn prepare(output: &EventOutput) -> Option<Prepared> {
    let mut requests = Requests::default();
    let (mut plan, mut prepared) = (String::new(), None::<Prepared>);
    let mut heard = Instant::now();
    loop {
        if let Some(prepared) = prepared.take_if(|prepared| prepared.callers.are_all_here()) {
            return Some(prepared);
        }
        let request = match requests.next_within(Some(CHECK_INTERVAL)) {
            Ok(Next::Request(message)) => message.head,
            Ok(Next::Silence) if heard.elapsed() < TOOL_LIMIT => continue,
            Ok(Next::End | Next::Silence) | Err(_) => {
                // a job that was not begun has no directory
                let folder = prepared.map(|prepared| prepared.folder);
                folder.and_then(|folder| folder.remove());
                return None;
            }
        };
        heard = Instant::now();
        let answer = match request {
            Request::Plan(piece) if plan.len() + piece.text.len() <= MAX_PLAN => {
                plan.push_str(&piece.text);
                Ok(())
            }
            Request::Launch(launch) if prepared.is_none() => {
                begin(&plan, &launch, output).map(|begun| prepared = begun)
            }
            Request::Dial(ticket) => back::start(&ticket),
            Request::Alive | Request::Follow(_) => continue,
            _ => Err(Failure::new(
                "the launcher of a job got an unexpected request",
            )),
        };
        output.event(&answer.map_or_else(Event::Failed, |()| Event::Done));
    }
}

/// Takes the name of the job and listens for agents; `None` if the name is in use.
fn begin(plan: &str, launch: &Launch, output: &EventOutput) -> Result<Option<Prepared>, Failure> {
    let failed =
        |problem: &str, why: &dyn std::fmt::Display| Failure::new(format!("{problem}: {why}"));
    let job: DetachedJob =
        serde_json::from_str(plan).map_err(|error| failed("the plan of the job", &error))?;
    let split = SplitProcesses::of(job.processes.clone())
        .map_err(|report| failed("the plan of the job", &report.lines("").join("; ")))?;
    let unwritable = "the directory of the job cannot be created or written";
    let folder = JobFolder::of(&launch.job.name, launch.job.address)
        .ok_or_else(|| failed(unwritable, &"~/.local/state/dgl-tools: HOME is not set"))?;
    let lines = |process: &Process| record::jsonl::line(process);
    let records: Vec<u8> = job.public_records().iter().flat_map(lines).collect();
    let pid = format!("{}\n", std::process::id());
    let path = folder.path().display().to_string();
    let files: [(&str, &[u8]); 5] = [
        ("token", job.plan.token.as_bytes()),
        ("launcher", pid.as_bytes()),
        (PROCESSES, &records),
        (RECORDS, b""),
        (MESSAGES, b""),
    ];
    let lock = make(&folder, &files);
    let Some(lock) = lock.map_err(|error| failed(unwritable, &format!("{path}: {error}")))? else {
        output.event(&Event::Preflight(Finding::NameInUse));
        return Ok(None);
    };
    orders::serve(&folder).map_err(|error| failed(unwritable, &format!("{path}: {error}")))?;
    let log_dir = job.log_dir.as_ref().map(|dir| Path::new(&dir.0));
    let log_dir = log_dir.unwrap_or(folder.path());
    let sink = OutputSink::new(None, Some(log_dir), &split.processes)
        .map_err(|error| failed("--log-dir", &error))?;
    let busy: BTreeSet<u32> = job.processes.iter().map(|process| process.host).collect();
    let listened = Callers::listen((launch.job.address, launch.port), busy, launch.patience_ms);
    let (callers, tickets) =
        listened.map_err(|error| failed("the launcher cannot listen there", &error))?;
    for ticket in tickets {
        output.event(&Event::Ticket(Box::new(ticket)));
    }
    Ok(Some(Prepared {
        job,
        split,
        callers,
        sink,
        folder,
        // only a launcher that detaches a job listens; this one has its hosts already
        listening: LauncherListen {
            port: 0,
            patience: Duration::from_millis(launch.patience_ms),
        },
        _lock: lock,
    }))
}

/// Creates the directory of the job; `None` if the launcher of another job uses it. A launcher
/// whose processes have ended is about to end.
fn make(folder: &JobFolder, files: &[(&str, &[u8])]) -> io::Result<Option<LauncherLock>> {
    let until = Instant::now() + END_LIMIT;
    loop {
        let lock = folder.make(files)?;
        let has_processes = || !processes::find_by_token(&folder.token()).is_empty();
        if lock.is_some() || Instant::now() >= until || has_processes() {
            return Ok(lock);
        }
        std::thread::sleep(CHECK_INTERVAL);
    }
}

/// Closes the connection to the tool: from now on all output goes to files.
#[expect(clippy::disallowed_methods, reason = "/dev/null belongs to the system")]
fn leave_tool(folder: &JobFolder, has_log_dir: bool) -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    dup2_stderr(folder.append(MESSAGES)?)?;
    dup2_stdin(&null)?;
    // without --log-dir the sink writes the records into the directory itself
    match has_log_dir {
        true => dup2_stdout(folder.append(RECORDS)?)?,
        false => dup2_stdout(&null)?,
    }
    Ok(())
}

/// Runs the job to its end.
fn run(prepared: Prepared) -> Result<Exit, Report> {
    let begun = Instant::now();
    let Prepared {
        job,
        split,
        callers,
        mut sink,
        listening,
        folder,
        _lock,
    } = prepared;
    job.hosts.iter().for_each(|host| sink.record(host));
    for (full, public) in job.processes.iter().zip(job.public_records()) {
        sink.pass_public(full, &public);
    }
    let launcher = Launcher {
        hosts: &job.hosts,
        graph: job.graph,
        connect: &callers,
        listening,
        signals: Signals::watch().map_err(|error| own_fault(&error))?,
    };
    let (exit, summary) = launcher.run(job.plan, &split, sink, begun)?;
    // a full disk must not delay the end
    let _ = folder.write_summary(&summary);
    Ok(exit)
}
