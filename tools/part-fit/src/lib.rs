//! Works out what memory each partition needs on its host, and whether it fits. `model`
//! and `plan` map values to values; `disk` reads files and writes none.

pub mod args;
pub mod disk;
pub mod model;
pub mod plan;
pub mod show;

pub use args::Args;

use plan::Job;
use record::error::{Fault, Report};
use record::exit::Exit;
use record::jsonl::{self, Out, Stream};
use record::python::version;
use record::{FileCopy, Fit, Graph, Host};
use std::borrow::Cow;
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
    let parts = parts(&args, &stream)?;
    let fits = plan::fits(&job, &hosts, &parts)?;
    let faults = plan::faults(&job, &hosts, &fits);
    if !args.warn_only {
        Report(faults.clone()).check()?;
    }
    Report(faults).print("part-fit: warning");
    for warning in plan::warnings(&fits) {
        record::tell!("part-fit: warning: {warning}");
    }
    for warning in uncounted(&hosts, &parts) {
        record::tell!("part-fit: warning: {warning}");
    }
    match args.format.human() {
        true => {
            let mut out = Out::new("part-fit");
            out.write(show::table(&hosts, &fits).as_bytes());
            out.fault().map_or(Ok(()), |fault| Err(fault.report()))?;
        }
        false => jsonl::print(
            Some(&stream),
            fits.iter().map(|fit| Cow::Owned(jsonl::line(fit))),
        )?,
    }
    Ok(Exit::Done)
}

fn job(args: &Args, hosts: &[Host]) -> Result<Job, Report> {
    Ok(Job {
        num_servers: args.num_servers.into(),
        num_trainers: args.num_trainers.counts("--num-trainers", hosts)?,
        num_samplers: args.num_samplers.into(),
        formats: model::formats(&args.graph_format),
        trainer_bytes: args.memory("trainer").unwrap_or(0),
        sampler_bytes: args.memory("sampler").unwrap_or(0),
        shm_extra_bytes: args.memory("shm").unwrap_or(0),
        process_bytes: args.memory("process"),
        margin_percent: args.margin,
    })
}

fn parts(args: &Args, stream: &Stream) -> Result<Vec<plan::Part>, Report> {
    if let Some(config) = &args.part_config {
        return disk::parts_of_config(config, args.graph);
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
    disk::parts_of_records(&files, Path::new(&graph.workspace), args.graph)
}

/// Warnings about what the figures leave out.
fn uncounted(hosts: &[Host], parts: &[plan::Part]) -> Vec<&'static str> {
    let old = hosts.iter().any(|host| {
        let dgl = host.facts.dgl.as_deref().and_then(version);
        dgl.is_some_and(|version| version < (1, 0, 0))
    });
    let old = old.then_some(
        "what DGL takes before 1.0 was not measured; the figures follow from its source",
    );
    let by_npy = parts.iter().any(|part| part.by_npy).then_some(
        "every process loads the .npy maps of nodes and edges too, which is not counted",
    );
    old.into_iter().chain(by_npy).collect()
}
