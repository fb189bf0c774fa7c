//! The destinations of a job's output on this machine.

use crate::args::Args;
use launcher::output::sink::OutputSink;
use record::error::{Fault, Report};
use record::jsonl::Stream;
use record::{Host, Process};

/// Also passes on the input.
pub fn open(
    args: &Args,
    stream: &Stream,
    hosts: &[Host],
    processes: &[Process],
) -> Result<OutputSink, Report> {
    let name_of = |process: &Process| match record::host_of(hosts, process.host) {
        Some(host) => host.name_or_ip(),
        None => process.host.to_string(),
    };
    for shown in &args.show {
        if !processes.iter().any(|process| shown.has(process)) {
            let fault = Fault::usage("--show", format!("the job has no {shown}"));
            return Err(fault
                .fix("name processes of the job: dgl-spawn --dry-run lists them")
                .report());
        }
    }
    let is_shown = |process: &&Process| {
        args.show.is_empty() || args.show.iter().any(|shown| shown.has(process))
    };
    let tag = |process: &Process| {
        let (name, role) = (name_of(process), process.role.name());
        (process.id, format!("[{name} {role} {}]", process.rank))
    };
    let is_human = args.connect.format.human();
    let tags = is_human.then(|| processes.iter().filter(is_shown).map(tag).collect());
    let mut sink = OutputSink::new(tags, args.log_dir.as_deref(), processes)?;
    sink.pass_input(stream);
    Ok(sink)
}
