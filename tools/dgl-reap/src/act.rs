//! Asks all hosts at once, and reports the processes that they found or ended.

use crate::args::Args;
use crate::plan::{self, ReapAnswer, What};
use crate::table;
use record::error::{Fault, Report};
use record::exit::Exit;
use record::jsonl::{Out, Stream};
use record::term;
use record::{Host, Reaped, Summary};
use remote::Remote;
use remote::conversation::{self, ANSWER_LIMIT, HostAnswers};
use std::time::{Duration, Instant};
use wire::Request;

/// How long a host may look for processes, while those of other hosts wait for their end.
const PICK_LIMIT: Duration = Duration::from_secs(15);

pub fn run(args: &Args, stream: &Stream, hosts: &[Host]) -> Result<Exit, Report> {
    let begun = Instant::now();
    let what = args.what();
    let remote = Remote::new(args.connect.options())?;
    let human = args.connect.format.human();
    let mut out = Out::new("dgl-reap");
    if !human {
        out.pass(stream);
    }
    // all hosts are reached before anything is done on any of them
    let (reached, mut report) = remote.open_reachable(hosts);
    let mut asked: Vec<HostAnswers<'_, ReapAnswer>> =
        reached.into_iter().map(HostAnswers::new).collect();
    conversation::ask(
        &mut asked,
        |_| what.requests(args.grace),
        &|host, event| plan::answer(host, &what, event),
        |request| match request {
            Request::PickProcesses(_) => PICK_LIMIT,
            // beyond the grace there are 10 s of KILL
            _ => args.grace.saturating_add(ANSWER_LIMIT),
        },
    )?;

    if matches!(what, What::Signal { rank: None, .. }) {
        name_hosts_without_match(args, &asked);
    }
    report
        .0
        .extend(asked.iter().filter_map(|answers| answers.fault.clone()));
    let all_reached = report.0.is_empty();
    let (mut found, mut reaped) = (Vec::new(), Vec::new());
    for answer in asked.into_iter().flat_map(|answers| answers.answers) {
        match answer {
            ReapAnswer::Found(process) => found.push(process),
            ReapAnswer::Reaped(result) => reaped.push(result),
        }
    }
    let reaped = plan::merged(reaped);
    for result in reaped.iter().filter(|result| !result.ok) {
        report.push(left_over(hosts, result));
    }
    if found.is_empty() && reaped.is_empty() {
        report.0.extend(nothing_found(args, &what, all_reached));
    }
    let exit = report.exit();
    if human {
        out.write((table::table(&found) + &table::ended(&reaped)).as_bytes());
    } else {
        found.iter().for_each(|process| out.record(process));
        reaped.iter().for_each(|result| out.record(result));
        let elapsed_ms = term::millis(begun.elapsed());
        let job = args.job.clone();
        out.record(&Summary::of_questions("dgl-reap", exit, elapsed_ms, job));
    }
    report.0.extend(out.fault());
    report.check().map(|()| Exit::Done)
}

fn left_over(hosts: &[Host], result: &Reaped) -> Fault {
    let location = record::location_of(hosts, result.host);
    let why = result.error.as_deref().unwrap_or("some still run");
    // the answer to --stale-shm
    if result.job.is_empty() {
        return Fault::item(location, why.to_owned())
            .fix("run dgl-reap --stale-shm on the machine of the container");
    }
    let fault = Fault::item(location, format!("job {}: {why}", result.job));
    fault.fix(
        "--list shows what still runs; a process that KILL does not stop waits for a disk or a \
         GPU: see ps and dmesg on the host",
    )
}

/// Names the hosts without a match if others have one; they would be missed silently.
fn name_hosts_without_match(args: &Args, asked: &[HostAnswers<'_, ReapAnswer>]) {
    let (with, without): (Vec<_>, Vec<_>) = asked
        .iter()
        .filter(|answers| answers.fault.is_none())
        .partition(|answers| !answers.answers.is_empty());
    if !with.is_empty() && !without.is_empty() {
        let locations: Vec<String> = without
            .iter()
            .map(|answers| answers.host.location())
            .collect();
        record::tell!(
            "dgl-reap: no such process of {} on {}",
            args.of_what(),
            locations.join(", ")
        );
    }
}

/// Whether finding nothing is a fault: not when a job is to end, because it is gone; but a signal
/// needs a process to receive it.
fn nothing_found(args: &Args, what: &What<'_>, all_reached: bool) -> Option<Fault> {
    let of = args.of_what();
    let hosts = if all_reached {
        "any host"
    } else {
        "any host that was reached"
    };
    match what {
        What::Signal { .. } => {
            let fault = Fault::item("--signal", format!("no such process of {of} on {hosts}"));
            Some(fault.fix("--list shows the processes that run"))
        }
        _ => {
            let others = match what {
                What::List if args.job.is_none() => {
                    "; dgl-stacks --any finds jobs that dgl-spawn did not start"
                }
                What::End(Some(_)) => "; --list shows the jobs that run",
                _ => "",
            };
            record::tell!("dgl-reap: no process of {of} on {hosts}{others}");
            None
        }
    }
}
