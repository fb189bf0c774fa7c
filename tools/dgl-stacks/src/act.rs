//! Asks all hosts at once for the stacks or profiles of the job's processes.

use crate::args::Args;
use crate::plan::{self, StackAnswer};
use crate::ranks::{self, FoundJob};
use crate::standstill::{self, Standstill};
use crate::torchrun::Torchruns;
use crate::{groups, profile};
use record::error::{Fault, Report};
use record::exit::Exit;
use record::jsonl::{Out, Stream};
use record::stacks::Comparison;
use record::{Host, Process, Profile, Stack, Summary, term};
use remote::conversation::{self, HostAnswers, ReadAnswer};
use remote::{Remote, Session};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt as _;
use std::time::{Duration, Instant};
use verdict::silence::Silence;
use wire::reap::Pick;
use wire::stacks::{ChosenProcess, RecordStacks, TakeStacks};
use wire::{Event, Request};

/// A host reads 4 processes at once, each for at most 20 s, so this allows for several processes
/// that hang in the kernel.
const LIMIT: Duration = Duration::from_secs(120);
/// Samples per second of each process, to see whether a job stands still.
const CHECK_RATE: u32 = 20;

/// The hosts that answer, and the faults of the others.
struct Asked<'h> {
    sessions: Vec<(&'h Host, Session)>,
    report: Report,
}

impl Asked<'_> {
    /// The answers of all hosts.
    fn ask<A: Send>(
        &mut self,
        requests: impl Fn(&Host) -> Vec<Request>,
        read: ReadAnswer<'_, A>,
        limit: Duration,
    ) -> Result<Vec<A>, Report> {
        let sessions = std::mem::take(&mut self.sessions).into_iter();
        let mut hosts: Vec<HostAnswers<'_, A>> = sessions.map(HostAnswers::new).collect();
        conversation::ask(&mut hosts, requests, read, |_| limit)?;
        let mut answers = Vec::new();
        for host in hosts {
            answers.extend(host.answers);
            match host.fault {
                None => self.sessions.push((host.host, host.session)),
                Some(fault) => self.report.push(fault),
            }
        }
        Ok(answers)
    }
}

/// Asks `hosts`, and reports the answers of the chosen ones.
pub fn run(args: &Args, stream: &Stream, hosts: &[Host], chosen: &[Host]) -> Result<Exit, Report> {
    let begun = Instant::now();
    let remote = Remote::new(args.connect.options())?;
    let human = args.connect.format.human();
    let mut out = Out::new("dgl-stacks");
    if !human {
        out.pass(stream);
    }
    let (sessions, report) = remote.open_reachable(hosts);
    let mut asked = Asked { sessions, report };
    let found = args
        .any
        .then(|| find_job(args, hosts.len(), &mut asked))
        .transpose();
    let mut recorded = |report| recorded(report, begun, args, &mut out);
    let found = found.map_err(|report| if human { report } else { recorded(report) })?;
    let found = found.as_ref();
    let mut processes = found.map_or_else(|| stream.all(), |job| Ok(job.processes(hosts)))?;
    let time = args.record.unwrap_or_default();
    if human && !time.is_zero() && !asked.sessions.is_empty() {
        record::tell!("dgl-stacks: recording for {}", term::seconds(time));
    }
    let requests = |host: &Host| requests(args, found, host.id);
    let read = |host, event| plan::answer(host, &processes, event, term::now_ms());
    let mut answers = asked.ask(requests, &read, LIMIT + time)?;
    if processes.is_empty() {
        processes = plan::processes(hosts, &mut answers);
    }
    let all: Vec<Stack> = answers.iter().filter_map(StackAnswer::stack).collect();
    let is_whole = asked.report.0.is_empty() && found.is_none_or(FoundJob::is_whole);
    let (comparison, silence) = (Stack::compare(&all), Silence::of(&all, is_whole, None));
    let standstill = standstill(found, &all, &comparison, &silence, &mut asked)?;
    answers.retain(|answer| is_chosen(answer, args, chosen));
    let mut report = asked.report;
    match found {
        Some(_) => report.0.extend(plan::denied(&answers)),
        None => report.0.extend(plan::faults(chosen, &answers)),
    }
    report.0.extend(nothing_found(args, &answers, &report));
    let (stacks, profiles) = apart(answers);
    let look = Look {
        found,
        is_planned: stream.has::<Process>(),
        stacks,
        profiles,
        comparison,
        silence,
        standstill,
    };
    if human {
        out.write(look.text(args).as_bytes());
    } else {
        look.record(&processes, &mut out);
        let job = found.map(|job| &job.name).or(args.job.as_ref());
        out.record(&summary(begun, report.exit(), job.cloned()));
    }
    report.0.extend(out.fault());
    report.check().map(|()| Exit::Done)
}

/// Records the faults for dgl-why, which prints the fix of the first one. If dgl-why may be the
/// next tool of the pipeline, stderr leaves this fix to it.
fn recorded(mut report: Report, begun: Instant, args: &Args, out: &mut Out) -> Report {
    let faults = report.recorded();
    let first_fix = faults.first().and_then(|fault| fault.fix.clone());
    let summary = summary(begun, report.exit(), args.job.clone());
    out.record(&Summary { faults, ..summary });
    if is_pipe(io::stdout()) {
        let same = report.0.iter_mut().filter(|fault| fault.fix == first_fix);
        same.for_each(|fault| fault.fix = None);
    }
    report
}

fn is_pipe(stream: impl AsFd) -> bool {
    let file = stream.as_fd().try_clone_to_owned().map(File::from);
    let data = file.and_then(|file| file.metadata());
    data.is_ok_and(|data| data.file_type().is_fifo())
}

/// What was seen of the chosen hosts' processes.
struct Look<'a> {
    /// Of --any.
    found: Option<&'a FoundJob>,
    /// Whether the process records came in.
    is_planned: bool,
    stacks: Vec<Stack>,
    profiles: Vec<Profile>,
    comparison: Comparison,
    silence: Silence,
    standstill: Option<Standstill>,
}

impl Look<'_> {
    fn record(&self, processes: &[Process], out: &mut Out) {
        if !self.is_planned {
            processes.iter().for_each(|process| out.record(process));
        }
        self.stacks.iter().for_each(|stack| out.record(stack));
        self.profiles.iter().for_each(|profile| out.record(profile));
        if let Some(standstill) = &self.standstill {
            out.record(&standstill.record(processes, term::now_ms()));
        }
    }

    fn text(&self, args: &Args) -> String {
        if args.record.is_some() {
            return profile::text(&self.profiles);
        }
        let head = match (self.found, &self.standstill) {
            (None, _) => groups::head(&self.comparison, &self.silence),
            (Some(_), Some(standstill)) => {
                vec![standstill.text() + &groups::waits(&self.silence)]
            }
            (Some(_), None) => standstill::moved(&self.silence).into_iter().collect(),
        };
        groups::text(head, &self.stacks, &self.comparison)
    }
}

fn summary(begun: Instant, exit: Exit, job: Option<String>) -> Summary {
    Summary::of_questions("dgl-stacks", exit, term::millis(begun.elapsed()), job)
}

/// The job that `--job` and `--match` choose among those that run on these hosts, of `given` ones
/// in the input.
fn find_job(args: &Args, given: usize, asked: &mut Asked<'_>) -> Result<FoundJob, Report> {
    let read = |host, event| match event {
        Event::Rank(process) => Some((host, *process)),
        _ => None,
    };
    let found = asked.ask(|_| vec![Request::FindRanks], &read, LIMIT)?;
    let hosts: Vec<&Host> = asked.sessions.iter().map(|(host, _)| *host).collect();
    let torchruns = Torchruns::of(&found);
    let mut jobs = ranks::jobs(found);
    jobs.retain(|job| {
        let is_matched = |text: &String| job.is_matched(text);
        args.job.as_ref().is_none_or(|name| *name == job.name)
            && args.containing.as_ref().is_none_or(is_matched)
    });
    let faults = match jobs.len() {
        1 => {
            let mut job = jobs.remove(0);
            job.find_missing(&hosts, given);
            record::tell!("dgl-stacks: job {}", job.words());
            let late = torchruns.late(&job).unwrap_or_default();
            let notices = [&job.missing, &job.disagreement, &late].into_iter();
            for words in notices.filter(|words| !words.is_empty()) {
                record::tell!("dgl-stacks: {words}");
            }
            return Ok(job);
        }
        0 => {
            let waiting = torchruns.faults(args.containing.as_deref(), &hosts);
            if waiting.is_empty() {
                vec![no_job(args, asked.report.0.is_empty())]
            } else {
                waiting
            }
        }
        _ => {
            let mut fault = Fault::item(
                "--any",
                "several jobs run on these hosts, and none was chosen",
            );
            fault.details = jobs.iter().map(FoundJob::words).collect();
            vec![fault.fix("choose one by --job NAME, or by --match TEXT of its command")]
        }
    };
    let mut report = std::mem::take(&mut asked.report);
    report.0.extend(faults);
    Err(report)
}

fn no_job(args: &Args, have_all_answered: bool) -> Fault {
    let is_chosen = args.job.is_some() || args.containing.is_some();
    let such = if is_chosen { "such a job" } else { "a job" };
    let answered = if have_all_answered {
        ""
    } else {
        " that answered"
    };
    let problem = format!("no rank of {such} of this user on any host{answered}");
    let all = if is_chosen {
        "without --job and --match it names all; "
    } else {
        ""
    };
    Fault::item("--any", problem).fix(format!(
        "{all}a rank has RANK and WORLD_SIZE in its environment, or the like of MPI, Slurm or DGL; \
         root sees those of all users: DGL_TOOLS_SSH_USERNAME=root"
    ))
}

/// If the stacks of a job can be read, a recording has to confirm that it stands still.
fn standstill(
    found: Option<&FoundJob>,
    all: &[Stack],
    comparison: &Comparison,
    silence: &Silence,
    asked: &mut Asked<'_>,
) -> Result<Option<Standstill>, Report> {
    let Some(job) = found else {
        return Ok(None);
    };
    let standstill = standstill::standstill(all, comparison, silence, &job.missing);
    let Some(time) = standstill.as_ref().and_then(|standstill| standstill.sample) else {
        return Ok(standstill);
    };
    let record = |host: &Host| {
        let mut chosen = job.chosen(host.id);
        chosen.retain(|process| process.parent.is_none());
        let wanted = RecordStacks {
            pick: Pick::default(),
            time_ms: term::millis(time),
            rate: CHECK_RATE,
            chosen,
        };
        let request = (!wanted.chosen.is_empty()).then_some(Request::RecordStacks(wanted));
        request.into_iter().collect()
    };
    let read = |host, event| plan::answer(host, &[], event, 0);
    let (_, profiles) = apart(asked.ask(record, &read, LIMIT + time)?);
    Ok(standstill.filter(|standstill| standstill::is_confirmed(standstill.silent, &profiles, all)))
}

/// Whether the answer is about a process to be printed.
fn is_chosen(answer: &StackAnswer, args: &Args, chosen: &[Host]) -> bool {
    let (host, role, rank) = answer.process();
    record::host_of(chosen, host).is_some()
        && (args.role.is_none() || args.role == role)
        && (args.rank.is_none() || args.rank == rank)
}

/// The request to a host; none if a job that was found has no process there.
fn requests(args: &Args, found: Option<&FoundJob>, host: u32) -> Vec<Request> {
    // for whom a job waits is a question to all of its processes
    let is_of_all = args.connections || args.any && args.record.is_none();
    let (role, rank) = if is_of_all {
        (None, None)
    } else {
        (args.role, args.rank)
    };
    let is_wanted = |process: &ChosenProcess| {
        (role.is_none() || role == process.role) && (rank.is_none() || rank == process.rank)
    };
    let mut chosen = found.map_or_else(Vec::new, |job| job.chosen(host));
    chosen.retain(is_wanted);
    if found.is_some() && chosen.is_empty() {
        return Vec::new();
    }
    let job = args.job.clone();
    let pick = Pick { job, role, rank };
    vec![match args.record {
        None => Request::TakeStacks(TakeStacks {
            pick,
            connections: is_of_all,
            chosen,
        }),
        Some(time) => Request::RecordStacks(RecordStacks {
            pick,
            time_ms: term::millis(time),
            rate: args.rate,
            chosen,
        }),
    }]
}

fn nothing_found(args: &Args, answers: &[StackAnswer], report: &Report) -> Option<Fault> {
    if !answers.is_empty() || !report.0.is_empty() {
        return None;
    }
    let what = if args.record.is_some() {
        "Python"
    } else {
        "process"
    };
    let job = args.job.as_deref().unwrap_or("that role and rank");
    let fault = Fault::item("--job", format!("no {what} of job {job} on any host"));
    Some(fault.fix("if it still runs, dgl-reap --list shows its name"))
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
