//! Asks all hosts at once for the stacks or profiles of the job's processes.

use crate::args::Args;
use crate::plan::{self, StackAnswer};
use crate::{groups, profile};
use record::error::{Fault, Report};
use record::exit::Exit;
use record::jsonl::{Out, Stream};
use record::{Host, Profile, Stack, Summary, stderr, term};
use remote::Remote;
use remote::conversation::{self, HostAnswers};
use std::time::{Duration, Instant};
use wire::Request;
use wire::reap::Pick;
use wire::stacks::{RecordStacks, TakeStacks};

/// A host reads 4 processes at once, each for at most 20 s, so this allows for several processes
/// that hang in the kernel.
const LIMIT: Duration = Duration::from_secs(120);

/// Asks `hosts`, and reports the answers of the chosen ones.
pub fn run(args: &Args, stream: &Stream, hosts: &[Host], chosen: &[Host]) -> Result<Exit, Report> {
    let begun = Instant::now();
    let processes = stream.all()?;
    let remote = Remote::new(args.connect.options())?;
    let human = args.connect.format.human();
    let mut out = Out::new("dgl-stacks");
    if !human {
        out.pass(stream);
    }
    let (reached, mut report) = remote.open_reachable(hosts);
    let mut asked: Vec<HostAnswers<'_, StackAnswer>> =
        reached.into_iter().map(HostAnswers::new).collect();
    let (request, time) = request(args);
    if human && !time.is_zero() && !asked.is_empty() {
        let time = term::seconds(time);
        stderr::write_line(format_args!("dgl-stacks: recording for {time}"));
    }
    conversation::ask(
        &mut asked,
        |_| vec![request.clone()],
        &|host, event| plan::answer(host, &processes, event, term::now_ms()),
        |_| LIMIT + time,
    )?;

    report
        .0
        .extend(asked.iter().filter_map(|answers| answers.fault.clone()));
    let is_whole = report.0.is_empty();
    let mut answers: Vec<StackAnswer> = asked
        .into_iter()
        .flat_map(|answers| answers.answers)
        .collect();
    let all: Vec<Stack> = answers.iter().filter_map(StackAnswer::stack).collect();
    answers.retain(|answer| is_chosen(answer, args, chosen));
    report.0.extend(plan::faults(chosen, &answers));
    if answers.is_empty() && report.0.is_empty() {
        report.push(nothing_found(args));
    }
    let exit = report.exit();
    let (stacks, profiles) = apart(answers);
    if !human {
        stacks.iter().for_each(|stack| out.record(stack));
        profiles.iter().for_each(|profile| out.record(profile));
        let elapsed_ms = term::millis(begun.elapsed());
        let job = Some(args.job.clone());
        out.record(&Summary::of_questions("dgl-stacks", exit, elapsed_ms, job));
    } else if args.record.is_some() {
        out.write(profile::text(&profiles).as_bytes());
    } else {
        out.write(groups::text(&stacks, &all, is_whole).as_bytes());
    }
    report.0.extend(out.fault());
    report.check().map(|()| Exit::Done)
}

/// Whether the answer is about a process to be printed.
fn is_chosen(answer: &StackAnswer, args: &Args, chosen: &[Host]) -> bool {
    let (host, role, rank) = answer.process();
    record::host_of(chosen, host).is_some()
        && (args.role.is_none() || args.role == role)
        && (args.rank.is_none() || args.rank == rank)
}

/// The request, and how long the hosts are to record.
fn request(args: &Args) -> (Request, Duration) {
    let (role, rank) = if args.connections {
        (None, None)
    } else {
        (args.role, args.rank)
    };
    let job = Some(args.job.clone());
    let pick = Pick { job, role, rank };
    let Some(time) = args.record else {
        let connections = args.connections;
        let wanted = TakeStacks { pick, connections };
        return (Request::TakeStacks(wanted), Duration::ZERO);
    };
    let wanted = RecordStacks {
        pick,
        time_ms: term::millis(time),
        rate: args.rate,
    };
    (Request::RecordStacks(wanted), time)
}

fn nothing_found(args: &Args) -> Fault {
    let what = if args.record.is_some() {
        "Python"
    } else {
        "process"
    };
    let job = &args.job;
    Fault::item("--job", format!("no {what} of job {job} on any host"))
        .fix("it has ended, or has another name: dgl-reap --list shows which there are")
}

fn apart(answers: Vec<StackAnswer>) -> (Vec<Stack>, Vec<Profile>) {
    let (mut stacks, mut profiles) = (Vec::new(), Vec::new());
    for answer in answers {
        match answer {
            StackAnswer::Stack(stack, _) => stacks.push(stack),
            StackAnswer::Profile(profile, _) => profiles.push(profile),
        }
    }
    (stacks, profiles)
}
