//! Calculates the memory that each partition needs on its host, and whether it fits. `model` and
//! `plan` map values to values; `disk` reads files and writes none.

pub mod args;
pub mod disk;
pub mod model;
pub mod plan;
pub mod show;

pub use args::Args;

use cli::size_of;
use plan::JobProcesses;
use record::error::{Fault, Report};
use record::exit::Exit;
use record::jsonl::{self, Out, Stream};
use record::{FileCopy, Fit, Graph, Host};
use std::borrow::Cow;
use std::collections::HashSet;
use std::path::Path;

/// Runs the tool.
pub fn main(args: Args) -> Result<Exit, Report> {
    let stream = Stream::from_stdin(false)?;
    let hosts: Vec<Host> = stream.require("ipconf-check")?;
    if stream.has::<Fit>() {
        let fault = Fault::data("stdin", "there are fit records in the stream already");
        return Err(fault.fix("put part-fit into the pipeline once").report());
    }
    let job = job(&args, &hosts)?;
    let plans = plan::plan(&job, &hosts, &parts(&args, &stream)?)?;
    let faults = Report(plan::faults(&plans));
    if !args.warn_only {
        faults.clone().check()?;
    }
    faults.print("part-fit: warning");
    let fits: Vec<&Fit> = plans.iter().flat_map(|plan| &plan.fits).collect();
    for warning in plan::warnings(&fits) {
        record::tell!("part-fit: warning: {warning}");
    }
    match args.format.human() {
        true => {
            let mut out = Out::new("part-fit");
            out.write(show::table(&plans).as_bytes());
            out.fault().map_or(Ok(()), |fault| Err(fault.report()))?;
        }
        false => {
            let lines = fits.into_iter().map(|fit| Cow::Owned(jsonl::line(fit)));
            jsonl::print(Some(&stream), lines)?;
        }
    }
    Ok(Exit::Done)
}

fn job(args: &Args, hosts: &[Host]) -> Result<JobProcesses, Report> {
    let memory = |name| size_of(&args.mem, name);
    let formats: HashSet<&str> = args.graph_format.split(',').collect();
    Ok(JobProcesses {
        num_servers: args.num_servers.into(),
        num_trainers: args.num_trainers.counts("--num-trainers", hosts)?,
        num_samplers: args.num_samplers.into(),
        form: args.graph,
        num_formats: formats.len() as u64,
        trainer_bytes: memory("trainer").unwrap_or(0),
        sampler_bytes: memory("sampler").unwrap_or(0),
        shm_extra_bytes: memory("shm").unwrap_or(0),
        process_bytes: memory("process"),
    })
}

fn parts(args: &Args, stream: &Stream) -> Result<Vec<plan::Part>, Report> {
    if let Some(config) = &args.part_config {
        return disk::parts_of_config(config);
    }
    let Some(graph) = stream.one::<Graph>()? else {
        let fault = Fault::usage(
            "--part-config",
            "is missing, and the stream has no graph record",
        );
        return Err(fault
            .fix("give --part-config, or put part-map --part-config … before part-fit")
            .report());
    };
    let files: Vec<FileCopy> = stream.all()?;
    disk::parts_of_records(&files, Path::new(&graph.workspace))
}
