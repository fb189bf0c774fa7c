//! The hosts' half of dgl-tools: requests come in on stdin, events go out on stdout, one JSON object a line. The tools bring it to a host
//! and start it; by hand it works the same: `echo '{"do":"probe","python":{"command":"python3"}}' | host-agent`.
//!
//! This file reads requests and runs the module of each; what a module does is in its own head.

mod command;
mod environment;
mod install;
mod job;
mod output;
mod probe;
mod processes;
mod procfs;
mod reap;
mod requests;
mod shm;

use job::ToldJob;
use output::Output;
use requests::Requests;
use std::process::ExitCode;
use wire::{Event, Failure, Request};

const USAGE: &str =
    "host-agent does on a host what a tool of dgl-tools asks of it: requests on stdin, events on stdout, a JSON object a line.

Usage: host-agent                 serves requests until its stdin ends
       host-agent serve TOKEN     the same; says `TOKEN runs` first, for the tool that started it
       host-agent hash            prints the BLAKE3 hash of its own file
       host-agent --version

Example: echo '{\"do\":\"probe\",\"python\":{\"command\":\"python3\"}}' | host-agent";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => serve(None),
        ["serve", token] => serve(Some(token)),
        ["hash"] => install::own_hash().map_or(ExitCode::FAILURE, |hash| say(&hash)),
        ["--version" | "-V"] => say(concat!("host-agent ", env!("CARGO_PKG_VERSION"))),
        ["--help" | "-h"] => say(USAGE),
        _ => {
            eprintln!("host-agent: command line: no such words\n  fix: host-agent --help lists them");
            ExitCode::from(2)
        }
    }
}

fn say(text: &str) -> ExitCode {
    println!("{text}");
    ExitCode::SUCCESS
}

fn serve(token: Option<&str>) -> ExitCode {
    let mut output = Output::default();
    if let Some(token) = token {
        output.mark(token);
        install::tidy();
    }
    let mut requests = Requests::default();
    let mut job = ToldJob::default();
    let mut picked = reap::Picked::default();
    loop {
        let answer = match requests.next_request() {
            Ok(Some(request)) => carry_out(request.head, &mut job, &mut picked, &mut output),
            Ok(None) => return ExitCode::SUCCESS,
            // what follows cannot be told apart any more
            Err(malformed) => {
                output.event(&Event::Failed(Failure::new(malformed)));
                return ExitCode::from(65);
            }
        };
        output.event(&answer.map_or_else(Event::Failed, |()| Event::Done));
        if output.is_closed() {
            return ExitCode::from(74);
        }
    }
}

fn carry_out(request: Request, job: &mut ToldJob, picked: &mut reap::Picked, output: &mut Output) -> Result<(), Failure> {
    match request {
        Request::Probe(probe) => output.event(&Event::Probed(Box::new(probe::probe(&probe)))),
        Request::Job(told) => job.begin(told),
        Request::Process(process) => job.add(process)?,
        Request::ListJobs => reap::list(output),
        Request::PickProcesses(wanted) => output.event(&picked.pick(&wanted)),
        Request::SignalPicked(told) => output.event(&picked.signal(told.signal)?),
        Request::EndJobs(wanted) => reap::end(&wanted, output),
        Request::RemoveStaleShm => output.event(&reap::remove_stale_shm()),
        Request::ForgetJobs(wanted) => reap::forget(&wanted, output)?,
    }
    Ok(())
}
