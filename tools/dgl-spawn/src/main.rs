//! Starts the processes of a job on their hosts, watches them and ends them all.

mod act;
mod args;
mod detach;
mod job;
mod life;
mod loud;
mod plan;
mod preflight;
mod private;
mod queue;
mod reach;
mod show;
mod site;

use args::Args;
use common::cli;
use common::error::Report;
use common::exit::Exit;
use common::jsonl::Stream;
use common::record::{Host, Process};
use job::Limit;
use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run("dgl-spawn", |args: Args| {
        let stream = Stream::from_stdin(args.connect.partial)?;
        args.connect.say_partial("dgl-spawn");
        stream.check_pushed(!args.no_push_check)?;
        let hosts = args.connect.choose(stream.some("ipconf-check")?)?;
        if let Some(name) = &args.attach {
            return act::attach(&args, &stream, &hosts, name);
        }
        let processes: Vec<Process> = stream.some("dgl-env")?;
        let processes = match args.connect.host.is_empty() {
            true => processes,
            false => processes.into_iter().filter(|process| args.connect.host.contains(&process.host)).collect(),
        };
        plan::check(&hosts, &processes)?;
        if args.dry_run {
            return dry_run(&args.connect, &hosts, &processes);
        }
        let token = plan::token()?;
        let job = plan::Job {
            name: args.job.clone().unwrap_or_else(|| format!("job-{}", &token[..8])),
            token,
            grace: args.grace,
            host_timeout: args.host_timeout,
            preflight: !args.no_preflight,
            detach: args.detach,
            limits: args.start_timeout.map(Limit::Start).into_iter().chain(args.timeout.map(Limit::Job)).collect(),
        };
        act::run(&args, &stream, &hosts, &processes, job)
    })
}

fn dry_run(connect: &cli::Connect, hosts: &[Host], processes: &[Process]) -> Result<Exit, Report> {
    let mut out = common::jsonl::Out::new("dgl-spawn");
    for process in processes {
        if let Some(host) = hosts.iter().find(|host| host.id == process.host) {
            out.write(&plan::pasted(connect, host, process)?);
        }
    }
    Ok(Exit::Done)
}
