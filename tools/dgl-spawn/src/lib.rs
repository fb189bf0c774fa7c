//! Starts the processes of a job on their hosts, supervises them, and stops them all if one fails.
//!
//! This crate reads the command line and the stream, and reaches the hosts; the crate `launcher`
//! does the rest.

mod args;
pub mod copied;
mod pasted;
mod sink;

pub use args::Args;

use job::Rules;
use launcher::output::log_dir::LogDir;
use launcher::plan;
use launcher::run::launcher::{Launcher, own_fault};
use launcher::run::signals::Signals;
use record::error::{Fault, Report};
use record::exit::Exit;
use record::jsonl::{self, Stream};
use record::term;
use record::{Host, Process, Summary};
use remote::Remote;
use std::time::Instant;

pub fn main(args: Args) -> Result<Exit, Report> {
    let noted = |report| with_note(&args, report);
    let stream = Stream::from_stdin(args.connect.partial).map_err(noted)?;
    args.connect.say_partial("dgl-spawn");
    if !args.no_push_check {
        copied::check(&stream).map_err(noted)?;
    }
    let hosts = stream.require("ipconf-check").map_err(noted)?;
    let hosts = args.connect.choose(hosts)?;
    let mut processes: Vec<Process> = stream.require("dgl-env").map_err(noted)?;
    let chosen = &args.connect.host;
    processes.retain(|process| chosen.is_empty() || chosen.contains(&process.host));
    plan::check(&hosts, &processes)?;
    if let Some(warning) = record::changed_since_copied(&stream)? {
        record::tell!("dgl-spawn: warning: {}", term::plain(&warning));
    }
    if args.dry_run {
        return dry_run(&args.connect, &hosts, &processes);
    }
    let servers = processes
        .first()
        .and_then(|process| process.server_name.clone());
    // persistent servers are found by the name of their job
    let serves = processes.first().is_some_and(plan::is_staying);
    if let Some(name) = &servers {
        check_servers(&args, name, serves)?;
    }
    let named = args.job.clone().or(servers.filter(|_| serves));
    let token = remote::random_token()?;
    let job = plan::JobPlan {
        name: named.unwrap_or_else(|| format!("job-{}", &token[..8])),
        token,
        host_timeout: args.host_timeout,
        preflight: !args.no_preflight,
        attempt: 0,
        rules: rules(&args),
        private_shm: args.private_shm,
        wait: args.wait,
        restart: args.restart,
    };
    launch(&args, &stream, &hosts, job, &processes)
}

fn launch(
    args: &Args,
    stream: &Stream,
    hosts: &[Host],
    job: plan::JobPlan,
    processes: &[Process],
) -> Result<Exit, Report> {
    let begun = Instant::now();
    let sink = sink::open(args, stream, hosts, processes)?;
    // from here on a signal ends the job in order; nothing has been started yet
    let signals = Signals::watch().map_err(|error| own_fault(&error))?;
    let remote = Remote::new(args.connect.options_until(&signals.stop()))?;
    let launcher = Launcher {
        hosts,
        graph: stream.one()?,
        open_agents: &|hosts| remote.open_agents(hosts),
        signals,
    };
    launcher.run(job, processes, sink, begun)
}

/// Notes in the directory of logs that nothing was started, so that an earlier run's records there
/// are not taken for this one's.
fn with_note(args: &Args, report: Report) -> Report {
    let folder = args.log_dir.as_deref().filter(|_| !args.dry_run);
    if let Some(folder) = folder
        && let Ok(mut logs) = LogDir::open(Some(folder), &[])
    {
        let first = report.lines("").into_iter().next().unwrap_or_default();
        logs.write_records(&jsonl::line(&Summary {
            code: report.exit().code(),
            cause: Some("input".to_owned()),
            reason: Some(first.trim_start_matches(": ").to_owned()),
            faults: report.recorded(),
            job: args.job.clone(),
            ..Summary::default()
        }));
        for notice in logs.notices {
            record::tell!("{notice}");
        }
    }
    report
}

fn rules(args: &Args) -> Rules {
    Rules {
        limits: args.limits(),
        stall: args.stall(),
        fail_on_exception: args.fail_on_exception,
        grace: args.grace,
    }
}

/// Refuses options that cannot be combined with persistent graph servers; `serves` is whether these
/// are to be started.
fn check_servers(args: &Args, name: &str, serves: bool) -> Result<(), Report> {
    let fault = if serves && args.job.as_ref().is_some_and(|job| job != name) {
        let problem = format!(
            "persistent graph servers have the name that --server-name of dgl-env gave them: {name}"
        );
        Fault::usage("--job", problem).fix("leave out --job")
    } else if !args.connect.host.is_empty() {
        Fault::usage(
            "--host",
            format!(
                "graph servers {name} and their trainers need all \
                hosts"
            ),
        )
        .fix("leave out --host")
    } else if args.private_shm {
        Fault::usage(
            "--private-shm",
            format!(
                "the trainers of graph servers {name} read what \
                these keep in /dev/shm"
            ),
        )
        .fix("leave out --private-shm")
    } else {
        return Ok(());
    };
    Err(fault.report())
}

fn dry_run(
    connect: &cli::ConnectArgs,
    hosts: &[Host],
    processes: &[Process],
) -> Result<Exit, Report> {
    let mut out = record::jsonl::Out::new("dgl-spawn");
    let options = connect.options();
    for process in processes {
        if let Some(host) = record::host_of(hosts, process.host) {
            out.write(&pasted::pasted(
                &options,
                host,
                &process.clone().in_attempt(0)?,
            )?);
        }
    }
    Ok(Exit::Done)
}
