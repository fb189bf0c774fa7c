//! Works out every process of a DGL job: role, rank, environment, command.

mod args;
mod plan;

use args::Args;
use common::cli;
use common::error::{Fault, Report};
use common::exit::Exit;
use common::jsonl::{self, Stream};
use common::record::{Graph, Host};
use std::borrow::Cow;
use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run("dgl-env", |args: Args| {
        let command = args.command()?;
        let stream = Stream::from_stdin(false)?;
        stream.check_pushed(!args.no_push_check)?;
        let hosts: Vec<Host> = stream.some("ipconf-check")?;
        let graph: Option<Graph> = stream.one()?;
        let here = plan::Here {
            cpus: std::thread::available_parallelism().map_or(1, |cpus| u32::try_from(cpus.get()).unwrap_or(1)),
            omp_num_threads: std::env::var_os("OMP_NUM_THREADS"),
            pythonpath: std::env::var_os("PYTHONPATH"),
        };
        let env = plan::user_env(&args.env, |name| std::env::var_os(name))?;
        let plan = plan::Plan::new(&args, command, hosts, graph, env, here)?;
        check_parts(&plan)?;
        for warning in plan.warnings() {
            eprintln!("dgl-env: warning: {warning}");
        }
        jsonl::print(Some(&stream), plan.processes().map(|process| Cow::Owned(jsonl::line(&process))))?;
        Ok(Exit::Done)
    })
}

/// Where the partition config lies here too, as it must for launch.py, its number of partitions is compared with that of the hosts.
fn check_parts(plan: &plan::Plan) -> Result<(), Report> {
    let Some(path) = plan.config_here() else { return Ok(()) };
    let Ok(text) = std::fs::read(&path) else { return Ok(()) };
    let place = path.display().to_string();
    let config: serde_json::Value =
        serde_json::from_slice(&text).map_err(|error| Fault::data(&place, format!("not a partition config: {error}")))?;
    let parts = config.get("num_parts").and_then(serde_json::Value::as_u64).unwrap_or(0);
    match parts == plan.num_hosts() as u64 {
        true => Ok(()),
        false => {
            let fault =
                Fault::data(place, format!("{parts} partitions for {} hosts; DGL needs as many hosts as partitions", plan.num_hosts()));
            Err(fault.fix("partition the graph again, or list as many hosts").report())
        }
    }
}
