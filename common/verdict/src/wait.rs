//! Finds out what a job waits for.

use crate::account::{self, Account};
use crate::findings::{JobFinding, Shown as _, evidence};
use crate::job::{JobHistory, ProcessHistory, UNKNOWN_RANK};
use crate::silence::{Awaited, Silence};
use evidence::syntax::has_left_script;
use evidence::{Raiser, Statement, StatementKind};
use record::stacks::{self, Child, Comparison, LONG_CALL, Member, Wait};
use record::term;
use record::{Role, Stack, Stalled};
use std::collections::BTreeSet;
use std::time::Duration;

/// A shorter silence does not count as a hang.
const SILENCE: Duration = Duration::from_secs(10);

/// What the last attempt waits for, or waited for until its end.
pub fn awaited(job: &JobHistory) -> Option<JobFinding> {
    exception(job)
        .or_else(|| servers(job))
        .or_else(|| stalled(job))
        .or_else(|| by_stacks(job))
}

/// What the job waited for until it was ended from outside.
pub fn until_the_end(job: &JobHistory) -> Option<JobFinding> {
    awaited(job)
        .or_else(|| thread(job))
        .or_else(|| silence(job))
}

/// Which of these processes, by id, raised an exception first; of one that only reports the end of
/// another, only if all do.
pub fn first_raiser(job: &JobHistory, ids: &BTreeSet<u32>) -> Option<u32> {
    let is_wanted = |history: &ProcessHistory| ids.contains(&history.process.id);
    let raised = account::first_raised(job, is_wanted)?;
    Some(raised.process.process.id)
}

/// Whether a process that has not ended failed by its last exception, as far as is known.
pub fn has_failed(job: &JobHistory, history: &ProcessHistory) -> bool {
    unsurvived(job, history).is_some_and(is_of_main)
}

fn is_of_main(raised: &Statement) -> bool {
    raised.kind == StatementKind::Raised(Raiser::Main) && !account::is_feeder(raised)
}

/// The last exception of a process, unless something shows that the process went on: its main
/// thread is still in its script, the job waits for another one, or the others went on, and for
/// longer than they have been silent since. If it leaves the process group, that may be the
/// `finally` of the exception, unless the others went on.
fn unsurvived<'a>(job: &JobHistory, history: &'a ProcessHistory) -> Option<&'a Statement> {
    let raised = history.raised()?;
    let culprit = last_stall(job).and_then(|stalled| stalled.culprit.as_ref());
    if culprit.is_some_and(|culprit| culprit.id != Some(history.process.id)) {
        return None;
    }
    let raised_ms = raised.last.time_ms;
    let read = (history.stacks.values())
        .filter(|stack| stack.time_ms > raised_ms)
        .filter_map(Stack::main_frames);
    let written = (history.evidence.stacks().into_iter())
        .filter(|(line, _)| line.number > raised.last.number)
        .map(|(_, frames)| frames);
    let later = (read.chain(written)).filter(|frames| stacks::child(frames).is_none());
    let (leaving, later): (Vec<_>, Vec<_>) = later.partition(|frames| is_leaving(frames));
    let went_on = if later.is_empty() {
        let activity = job.activity();
        let worked_ms = activity.worked_ms.saturating_sub(raised_ms);
        let silent_ms = activity.ending_ms.saturating_sub(activity.worked_ms);
        worked_ms > account::BEFORE_MS && (!leaving.is_empty() || worked_ms >= silent_ms)
    } else {
        !later.into_iter().any(has_left_script)
    };
    (!went_on).then_some(raised)
}

/// Whether the script is in a function in which processes leave each other.
fn is_leaving(frames: &[String]) -> bool {
    let names = ["destroy_process_group (", "exit_client ("];
    let is_one = |frame: &String| names.iter().any(|name| frame.starts_with(name));
    !has_left_script(frames) && frames.iter().any(is_one)
}

/// An exception of another thread or a child, after which nothing else is known of a job.
fn thread(job: &JobHistory) -> Option<JobFinding> {
    let is_silent =
        |history: &ProcessHistory| history.has_stayed() && unsurvived(job, history).is_some();
    let raised = account::first_raised(job, is_silent)?;
    let (history, words) = (raised.process, raised.words());
    let text = format!(
        "{}{words} and wrote nothing since",
        job.process_name(history)
    );
    Some(
        JobFinding::new(text)
            .since(raised.statement.named.time_ms)
            .caused_by(history.culprit())
            .shown_by(&[history.output(&raised.statement.named)]),
    )
}

/// A process that raised an exception and does not end, so the others wait for it.
fn exception(job: &JobHistory) -> Option<JobFinding> {
    let blocks = |history: &ProcessHistory| history.has_stayed() && has_failed(job, history);
    let raised = account::first_raised(job, blocks)?;
    let (history, words) = (raised.process, raised.words());
    let mut others = others(job, history);
    others.retain(|other| !has_failed(job, other));
    let mut text = format!("{}{words} and did not end", job.process_name(history));
    let stack = stack_of(history);
    if let Some(wait) = stack.as_ref().and_then(|stack| stacks::wait(&stack.frames)) {
        text += &format!(": it {}", wait.words());
    }
    if !others.is_empty() {
        let wait = if others.len() == 1 { "waits" } else { "wait" };
        text += &format!("; {} {wait} for it", names(&others));
        let mut frames = others.iter().map(|other| {
            let stack = stack_of(other)?;
            stacks::own_frame(&stack.frames).map(str::to_owned)
        });
        let first = frames.next().flatten();
        if let Some(frame) = first.filter(|first| frames.all(|frame| frame.as_ref() == Some(first)))
        {
            text += &format!(" in {frame}");
        }
    }
    let finding = JobFinding::new(text)
        .since(raised.statement.named.time_ms)
        .caused_by(history.culprit())
        .shown_by(&[
            history.output(&raised.statement.first),
            history.output(&raised.statement.named),
        ]);
    let finding = stack
        .into_iter()
        .map(|stack| stack.evidence)
        .fold(finding, JobFinding::with_evidence);
    Some(finding.shown_by(last_stall(job)))
}

pub fn names(processes: &[&ProcessHistory]) -> String {
    let is_unranked =
        |history: &ProcessHistory| history.logs.is_some() && history.process.rank >= UNKNOWN_RANK;
    if processes.iter().any(|history| is_unranked(history)) {
        let names = processes.iter().filter_map(|history| history.name.clone());
        return names.collect::<Vec<_>>().join(", ");
    }
    let members: Vec<Member> = processes
        .iter()
        .map(|history| history.process.member())
        .collect();
    let names = stacks::names(&members);
    // logs know no roles
    let is_of_logs = processes.iter().any(|history| history.logs.is_some());
    if is_of_logs {
        names.replace("worker", "rank")
    } else {
        names
    }
}

fn others<'a>(job: &'a JobHistory, history: &ProcessHistory) -> Vec<&'a ProcessHistory> {
    job.clients()
        .filter(|other| other.has_stayed() && other.process.id != history.process.id)
        .collect()
}

fn servers(job: &JobHistory) -> Option<JobFinding> {
    let servers = || {
        job.processes.iter().filter(|history| {
            history.process.port.is_some() && history.process.role == Role::Server
        })
    };
    let missing: Vec<&ProcessHistory> = servers()
        .filter(|history| history.life.listening.is_none() && history.has_stayed())
        .collect();
    let first = missing.first()?;
    let mut text = match missing.as_slice() {
        [history] => format!("{} does not listen", job.process_name(history)),
        many => format!("{} do not listen", names(many)),
    };
    if missing.len() < servers().count() {
        text += ", all other servers do";
    }
    let mut finding = JobFinding::new(text)
        .since(first.life.started.as_ref().map(|started| started.time_ms))
        .shown_by(
            missing
                .iter()
                .filter_map(|history| history.life.started.as_ref()),
        )
        .shown_by(
            &missing
                .iter()
                .filter_map(|history| history.last_line())
                .collect::<Vec<_>>(),
        );
    finding.culprit = (missing.len() == 1).then(|| first.culprit());
    Some(finding)
}

/// The last stall of the last attempt, if the job has shown no activity since.
fn last_stall(job: &JobHistory) -> Option<&Stalled> {
    let stalled = job.stalled.last()?;
    let is_of_try = job.began_ms().is_none_or(|began| stalled.time_ms >= began);
    let last_line = job.last_client_line().map(|(_, line)| line.output.time_ms);
    let mut moved = (job.resumed.iter().map(|resumed| resumed.time_ms)).chain(last_line);
    (is_of_try && !moved.any(|time_ms| time_ms > stalled.time_ms)).then_some(stalled)
}

/// A stall that was noticed while the job ran. Other facts that dgl-spawn noted, such as a signal
/// that stopped a process, count more than the stacks.
fn stalled(job: &JobHistory) -> Option<JobFinding> {
    let stalled = last_stall(job)?;
    let reason = stalled.reason.trim_end_matches('.');
    let elsewhere = places(job).describe_outliers(stacks::names);
    let is_of_stacks = !elsewhere.is_empty() && reason.starts_with(&elsewhere);
    // dgl-stacks has judged a job that it did not see begin
    let is_judged = job.attempts.is_empty();
    let says_less = stalled.culprit.is_none() && !stalled.computing && !is_judged;
    let finding = by_stacks(job)
        .filter(|_| says_less || is_of_stacks)
        .unwrap_or_else(|| match &stalled.culprit {
            None => JobFinding::new(reason),
            Some(culprit) => {
                let member = culprit.role.zip(culprit.rank);
                let short = member.map(|member| stacks::names(&[member]));
                let rest = short.and_then(|short| reason.strip_prefix(&short));
                let name = job.name(culprit);
                let text = match rest {
                    Some(rest) => format!("{name}{rest}"),
                    None => format!("{name}: {reason}"),
                };
                JobFinding::new(text).caused_by(culprit.clone())
            }
        });
    Some(with_error(
        job,
        finding.since(stalled.since_ms).shown_by([stalled]),
    ))
}

/// Adds the last error that a logger marked, if the processes have written little since.
fn with_error(job: &JobHistory, mut finding: JobFinding) -> JobFinding {
    let errors = job.clients().filter_map(|history| {
        let last = history.evidence.last_statement(|statement| {
            statement.kind == StatementKind::Logged && !statement.first.while_ending
        })?;
        history
            .evidence
            .last_lines()
            .any(|line| line.number == last.first.number)
            .then_some((history, last))
    });
    if let Some((history, error)) = errors.max_by_key(|(_, error)| error.first.time_ms) {
        let (name, text) = (job.process_name(history), account::quoted(error.cause()));
        finding.text += &format!("; before that {name} wrote: {text}");
        finding = finding.shown_by([&history.output(&error.first)]);
    }
    finding
}

struct MainStack {
    frames: Vec<String>,
    evidence: String,
}

/// The main threads' stacks of a process and its children, from dgl-stacks or else from
/// faulthandler.
fn stacks_of(history: &ProcessHistory) -> Vec<MainStack> {
    let read: Vec<MainStack> = history
        .stacks
        .values()
        .filter_map(|stack| {
            let (frames, evidence) = (stack.main_frames()?.to_vec(), evidence(stack));
            Some(MainStack { frames, evidence })
        })
        .collect();
    if !read.is_empty() {
        return read;
    }
    history
        .evidence
        .stacks()
        .into_iter()
        .map(|(line, frames)| MainStack {
            frames: frames.to_vec(),
            evidence: history.output(line).shown(),
        })
        .collect()
}

fn stack_of(history: &ProcessHistory) -> Option<MainStack> {
    stacks_of(history)
        .into_iter()
        .find(|stack| stacks::child(&stack.frames).is_none())
}

fn has_sampler(history: &ProcessHistory) -> bool {
    stacks_of(history)
        .into_iter()
        .any(|stack| stacks::child(&stack.frames) == Some(Child::Sampler))
}

/// The line of the script in which a sampler or data loader process is that does not wait.
fn busy_child(history: &ProcessHistory) -> Option<String> {
    let stacks = stacks_of(history).into_iter();
    let child = stacks
        .filter(|stack| stacks::child(&stack.frames).is_some())
        .find(|stack| stacks::wait(&stack.frames).is_none())?;
    stacks::own_frame(&child.frames).map(str::to_owned)
}

/// Where the trainers and workers were during the stall or hang, or when a time limit ended the
/// job, if those that waited had written nothing for long: in a healthy job some always wait.
pub fn places(job: &JobHistory) -> Comparison {
    if is_still(job) {
        return last_stacks(job).with_odd_function();
    }
    let summary = job.summary.as_ref();
    let is_over = summary.is_some_and(|summary| summary.cause.as_deref() == Some("timeout"));
    if !is_over {
        return Comparison::default();
    }
    let comparison = last_stacks(job);
    let waits = |history: &ProcessHistory| {
        let mut outliers = comparison.outliers().iter();
        !outliers.any(|group| group.members.contains(&history.process.member()))
    };
    if silent(job, waits).is_some() {
        comparison
    } else {
        Comparison::default()
    }
}

fn is_still(job: &JobHistory) -> bool {
    silent(job, |_| true).is_some() || last_stall(job).is_some()
}

/// Which processes waited for which during the stall, by their connections.
pub fn by_connections(job: &JobHistory) -> Vec<Awaited> {
    let stacks: Vec<Stack> = job.connected.values().cloned().collect();
    let silent_s = last_stall(job).map_or(0.0, |stalled| stalled.silent_s);
    let idle = Duration::try_from_secs_f64(silent_s / 2.0);
    Silence::of(&stacks, true, idle.ok()).waits
}

/// Where the trainers and workers were last, if the stacks of more than half are known: a few do
/// not represent the others.
fn last_stacks(job: &JobHistory) -> Comparison {
    let all: Vec<Option<(Member, Vec<String>)>> = job
        .clients()
        .filter(|history| history.has_stayed())
        .map(|history| Some((history.process.member(), stack_of(history)?.frames)))
        .collect();
    let count = all.len();
    let known: Vec<(Member, Vec<String>)> = all.into_iter().flatten().collect();
    if known.len() * 2 > count {
        Comparison::of(known)
    } else {
        Comparison::default()
    }
}

/// Where the trainers and workers were that still ran when the job failed.
pub fn at_failure(job: &JobHistory) -> Comparison {
    let read_then = |history: &ProcessHistory| {
        let own = history
            .stacks
            .values()
            .filter(|stack| stack.while_ending)
            .find(|stack| stack.member() == Some(history.process.member()))?;
        Some((history.process.member(), own.main_frames()?.to_vec()))
    };
    Comparison::of(job.clients().filter_map(read_then))
}

/// The remark about processes that compute, if the stall's record has it.
fn call_note(job: &JobHistory, comparison: &Comparison) -> &'static str {
    let elsewhere = comparison.describe_outliers(stacks::names);
    let rest = last_stall(job).and_then(|stalled| stalled.reason.strip_prefix(&elsewhere));
    let is_told = !elsewhere.is_empty() && rest.is_some_and(|rest| rest.starts_with(LONG_CALL));
    if is_told { LONG_CALL } else { "" }
}

/// Which processes are elsewhere than the others, or where all are, by their stacks.
fn by_stacks(job: &JobHistory) -> Option<JobFinding> {
    let comparison = places(job);
    // at a time limit, a healthy job is somewhere too
    if !is_still(job) && comparison.outliers().is_empty() {
        return None;
    }
    let history_of = |member: &Member| {
        job.clients()
            .find(|history| history.process.member() == *member)
    };
    let culprit = comparison.culprit().as_ref().and_then(history_of);
    let name = |members: &[Member]| match (members, culprit) {
        ([one], Some(culprit)) if culprit.process.member() == *one => job.process_name(culprit),
        _ => stacks::names(members),
    };
    let for_samplers =
        (comparison.outliers().iter()).any(|group| group.wait == Some(Wait::Samplers));
    // a trainer that waits for samplers while the others still have theirs
    let has_lost_samplers = |history: &&ProcessHistory| {
        for_samplers && !has_sampler(history) && others(job, history).into_iter().any(has_sampler)
    };
    let note = match culprit {
        Some(history) if has_lost_samplers(&history) => {
            ", of whose processes none is left".to_owned()
        }
        Some(history) if for_samplers => busy_child(history)
            .map(|line| format!(", of whose processes one is in {line}"))
            .unwrap_or_default(),
        _ => call_note(job, &comparison).to_owned(),
    };
    comparison.groups().first()?;
    let mut text = comparison.sentence(name, &note);
    // another thread's exception may be why the main thread waits
    let raised = culprit.and_then(Account::of_raised);
    text += &(raised.as_ref()).map_or(String::new(), |raised| {
        format!("; before that it{}", raised.words())
    });
    let quote = raised.map(|raised| raised.process.output(&raised.statement.named));
    let mut finding = JobFinding::new(text)
        .since(job.last_client_line().map(|(_, line)| line.output.time_ms))
        .shown_by(&quote);
    finding.culprit = culprit.map(ProcessHistory::culprit);
    let firsts = comparison
        .groups()
        .iter()
        .filter_map(|group| stack_of(history_of(group.members.first()?)?));
    Some(
        firsts
            .map(|stack| stack.evidence)
            .fold(finding, JobFinding::with_evidence),
    )
}

/// How long these clients have been silent, and the longest pause of all before, if this silence is
/// at least twice as long. Otherwise stacks only show where a healthy job happens to be.
fn silent(
    job: &JobHistory,
    is_meant: impl Fn(&ProcessHistory) -> bool,
) -> Option<(Duration, Duration)> {
    let clients = || job.clients().filter(|history| is_meant(history));
    let started = clients().filter_map(|history| history.life.started.as_ref());
    let last_line = clients()
        .filter_map(|history| Some(history.last_line()?.output.time_ms))
        .max();
    let since_ms = started
        .map(|started| started.time_ms)
        .max()
        .max(last_line)?;
    let began_ms = job
        .began_ms()
        .filter(|_| job.attempts.len() > 1)
        .unwrap_or(0);
    let longest = Duration::from_millis(job.pauses.longest_since(began_ms));
    let last = Duration::from_millis(job.activity().ending_ms.saturating_sub(since_ms));
    (last >= SILENCE && last >= longest * 2).then_some((last, longest))
}

pub fn silence(job: &JobHistory) -> Option<JobFinding> {
    let (last, longest) = silent(job, |_| true)?;
    let (history, line) = job.last_client_line()?;
    let text = format!(
        "no trainer or worker has written a line for {}, where the longest pause before was \
         {}; the last one was of {}",
        term::seconds(last),
        term::seconds(longest),
        job.process_name(history)
    );
    Some(
        JobFinding::new(text)
            .since(line.output.time_ms)
            .shown_by([&line]),
    )
}

pub fn start(job: &JobHistory) -> Option<JobFinding> {
    let missing: Vec<&ProcessHistory> = job
        .processes
        .iter()
        .filter(|history| history.life.started.is_none())
        .collect();
    let name = job.name(&missing.first()?.culprit());
    Some(JobFinding::new(match missing.len() {
        1 => format!("{name} was not started yet"),
        many => format!("{many} processes were not started yet, the first of them is {name}"),
    }))
}
