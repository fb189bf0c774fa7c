//! Plans every process of a job: its role, rank, environment and command. Everything maps values to
//! values, except `main`, which reads the partition config.

pub mod args;
pub mod bind;
mod check;
mod command;
mod counts;
mod dgl;
pub mod environment;
mod graphstorm;
mod launchers;
mod paths;
pub mod placeholders;
pub mod plan;
mod programs;
mod script;

pub use args::Args;

use environment::UserEnv;
use partition::Outline;
use partition::config::{self, MAX_BYTES};
use paths::StreamFacts;
use programs::Earlier;
use record::error::{Fault, Report};
use record::exit::Exit;
use record::jsonl::{self, Stream};
use record::term;
use record::{Graph, Host, Process, Workspace};
use std::env::var_os;
use std::fs::File;
use std::io::Read;

pub fn main(args: Args) -> Result<Exit, Report> {
    let command = args.command()?;
    let env = UserEnv::new(&args, &|name| var_os(name))?;
    let stream = Stream::from_stdin(false)?;
    let hosts: Vec<Host> = stream.require("ipconf-check")?;
    let facts = StreamFacts {
        graph: stream.one::<Graph>()?,
        workspace: stream.one::<Workspace>()?,
        earlier: Earlier::of(&stream.all::<Process>()?),
    };
    let set_here = |name: &str| var_os(name).filter(|value| !value.is_empty());
    let launch_machine = plan::LaunchMachine {
        cpus: std::thread::available_parallelism()
            .map_or(1, |cpus| u32::try_from(cpus.get()).unwrap_or(1)),
        omp_num_threads: set_here("OMP_NUM_THREADS"),
        pythonpath: set_here("PYTHONPATH"),
    };
    let plan = plan::ProgramPlan::new(&args, command, hosts, facts, env, launch_machine)?;
    check_config_here(&plan)?;
    let changed = record::changed_since_copied(&stream)?;
    for warning in changed.into_iter().chain(plan.warnings()) {
        record::tell!("dgl-env: warning: {}", term::plain(&warning));
    }
    let own = plan.processes().map(|process| jsonl::line(&process));
    jsonl::print_more::<Process>(&stream, plan.num_processes_of_job(), own)?;
    Ok(Exit::Done)
}

/// If the partition config is on this machine, as launch.py requires, it must have as many
/// partitions as there are hosts.
fn check_config_here(plan: &plan::ProgramPlan<'_>) -> Result<(), Report> {
    let path = plan.config_here().filter(|path| path.is_file());
    let Some((file, path)) = path.and_then(|path| Some((File::open(&path).ok()?, path))) else {
        return Ok(());
    };
    let mut text = Vec::new();
    // what cannot be read is no partition config
    let _ = file.take(MAX_BYTES + 1).read_to_end(&mut text);
    let location = path.display().to_string();
    if let Some(fault) = config::other_file(&text, &location) {
        return Err(fault.report());
    }
    let fault = match Outline::parse(&text).num_parts {
        Some(parts) => {
            let fix = "partition the graph again, or list as many hosts";
            dgl::parts(parts, plan.num_hosts(), &location, fix)
        }
        None => Some(
            Fault::data(
                location,
                "this is not a partition config: num_parts is missing",
            )
            .fix(
                "--part-config names the JSON file that partition_graph wrote, as it is in the \
                 workspace",
            ),
        ),
    };
    fault.map_or(Ok(()), |fault| Err(fault.report()))
}
