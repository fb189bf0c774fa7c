//! Asks all hosts at once where the processes of the job stand.

use crate::args::Args;
use crate::groups;
use crate::plan::{self, Answer};
use record::error::{Fault, Report};
use record::exit::Exit;
use record::jsonl::{Out, Stream};
use record::{Host, Stack, Summary, term};
use remote::conversation::{self, HostAnswers};
use remote::{Connector, Remote};
use std::time::{Duration, Instant};
use wire::Request;
use wire::reap::Pick;
use wire::stacks::Take;

/// How long to wait for a host: it reads 4 processes at once, each for at most 20 s, so this allows
/// for several processes that hang in the kernel.
const LIMIT: Duration = Duration::from_secs(120);

/// Asks all hosts and reports their answers.
pub fn run(args: &Args, stream: &Stream, hosts: &[Host]) -> Result<Exit, Report> {
    let begun = Instant::now();
    let processes = stream.all()?;
    let remote = Remote::new(args.connect.options(), Connector::Ssh2)?;
    let human = args.connect.format.human();
    let mut out = Out::new("dgl-stacks");
    if !human {
        out.pass(stream);
    }
    let (reached, mut report) = remote.open_reachable(hosts);
    let mut asked: Vec<HostAnswers<'_, Answer>> =
        reached.into_iter().map(HostAnswers::new).collect();
    let pick = Pick {
        job: Some(args.job.clone()),
        role: args.role,
        rank: args.rank,
    };
    let native = args.native;
    let wanted = Take { pick, native };
    conversation::ask(
        &mut asked,
        |_| vec![Request::TakeStacks(wanted.clone())],
        &|host, event| plan::answer(host, &processes, event, term::now_ms()),
        |_| LIMIT,
    )?;

    report
        .0
        .extend(asked.iter().filter_map(|one| one.fault.clone()));
    let answers: Vec<Answer> = asked.into_iter().flat_map(|one| one.answers).collect();
    report.0.extend(plan::faults(hosts, &answers));
    if answers.is_empty() && report.0.is_empty() {
        let fault = Fault::item(
            "--job",
            format!("no process of job {} on any host", args.job),
        );
        report.push(
            fault.fix("it has ended, or has another name: dgl-reap --list shows which there are"),
        );
    }
    let stacks: Vec<Stack> = answers.into_iter().map(|(stack, _)| stack).collect();
    let exit = report.exit();
    if human {
        out.write(groups::text(&stacks).as_bytes());
    } else {
        stacks.iter().for_each(|one| out.record(one));
        let elapsed_ms = term::millis(begun.elapsed());
        let job = Some(args.job.clone());
        out.record(&Summary::of_questions("dgl-stacks", exit, elapsed_ms, job));
    }
    report.0.extend(out.fault());
    report.check().map(|()| Exit::Done)
}
