//! Plans every process of a DGL job: its role, rank, environment and command. Everything maps
//! values to values, except `config` and `script`, which read files.

pub mod args;
pub mod bind;
mod check;
mod command;
mod config;
pub mod environment;
mod graphstorm;
mod launchers;
mod paths;
pub mod placeholders;
pub mod plan;
mod script;
mod shell;

pub use args::Args;

use environment::UserEnv;
use record::error::{Fault, Report};
use record::exit::Exit;
use record::jsonl::{self, Stream};
use record::term;
use record::{Graph, Host, Process, Workspace};
use std::borrow::Cow;

/// Runs the tool.
pub fn main(args: Args) -> Result<Exit, Report> {
    let command = args.command()?;
    let env = UserEnv::new(&args.env_given(), &|name| std::env::var_os(name))?;
    let stream = Stream::from_stdin(false)?;
    let hosts: Vec<Host> = stream.require("ipconf-check")?;
    let said = plan::Said {
        graph: stream.one::<Graph>()?,
        workspace: stream.one::<Workspace>()?,
    };
    if !stream.all::<Process>()?.is_empty() {
        let fault = Fault::data("stdin", "there are process records in the stream already");
        return Err(fault
            .fix(
                "put dgl-env into the pipeline once; jq 'select(.type != \"process\")' takes \
                out those of another run",
            )
            .report());
    }
    let here = plan::LauncherFacts {
        cpus: std::thread::available_parallelism()
            .map_or(1, |cpus| u32::try_from(cpus.get()).unwrap_or(1)),
        omp_num_threads: std::env::var_os("OMP_NUM_THREADS"),
        pythonpath: std::env::var_os("PYTHONPATH"),
    };
    let plan = plan::Plan::new(&args, command, hosts, said, env, here)?;
    let config = config::here(plan.config_here().as_deref(), plan.num_hosts())?;
    for warning in plan.warnings(
        config
            .as_ref()
            .and_then(|config| config.graph_name.as_deref()),
    ) {
        record::tell!("dgl-env: warning: {}", term::plain(&warning));
    }
    jsonl::print(
        Some(&stream),
        plan.processes()
            .map(|process| Cow::Owned(jsonl::line(&process))),
    )?;
    Ok(Exit::Done)
}
