//! Finds out what a job waits for.

use crate::findings::Finding;
use crate::job::{Job, ProcessHistory, several};
use record::stacks::{self, Child, Comparison, Member, Wait};
use record::term;
use record::{Output, Process, Role, Stack, Stalled};
use std::collections::BTreeMap;
use std::time::Duration;

/// A shorter silence is not taken for a hang.
const SILENCE: Duration = Duration::from_secs(10);

/// What the last try waits for, or waited for until it was ended, as far as the records tell.
pub fn on(job: &Job) -> Option<Finding> {
    exception(job)
        .or_else(|| servers(job))
        .or_else(|| stalled(job))
        .or_else(|| stands(job))
}

/// The finding that a process has raised an exception and does not end, so that the others wait for
/// it.
fn exception(job: &Job) -> Option<Finding> {
    let raised = job
        .lives
        .iter()
        .filter(|life| life.has_stayed())
        .filter_map(|life| Some((life, life.raised()?)))
        .min_by_key(|(_, raised)| raised.named.time_ms);
    let (life, raised) = raised?;
    let others = others(job, life);
    let mut text = format!(
        "{} raised {} and did not end",
        job.who(life),
        raised.exception
    );
    let stack = stack_of(job, life);
    if let Some(wait) = stack.as_ref().and_then(|stack| stacks::wait(&stack.frames)) {
        text += &format!(": it {}", wait.words());
    }
    if !others.is_empty() {
        text += &format!("; {} {} for it", several(&others), waits(others.len()));
        text += &where_all_stand(job, &others);
    }
    let mut finding = Finding::new(text)
        .since(raised.named.time_ms)
        .on_account_of(life.culprit())
        .shown_by(raised.first)
        .shown_by(raised.named)
        .fix(
            "say dgl-spawn --fail-on-exception, or end the script with os._exit(1) when it \
             raises: man dgl-tools, recipes",
        );
    if let Some(stack) = &stack {
        finding = stack.show(finding);
    }
    if let Some(stalled) = last_stall(job) {
        finding = finding.shown_by(stalled);
    }
    Some(finding)
}

/// The place where all of these processes stand, if their stacks agree: ` in over_all
/// (train.py:75)`.
fn where_all_stand(job: &Job, lives: &[&ProcessHistory]) -> String {
    let place = |life: &&ProcessHistory| {
        let standing = stack_of(job, life)?;
        stacks::own_frame(&standing.frames).map(str::to_owned)
    };
    let mut places = lives.iter().map(place);
    let first = places.next().flatten();
    match first.filter(|first| places.all(|place| place.as_ref() == Some(first))) {
        Some(place) => format!(" in {place}"),
        None => String::new(),
    }
}

fn waits(count: usize) -> &'static str {
    if count == 1 { "waits" } else { "wait" }
}

/// The clients that were alive until the end, without this one.
fn others<'j, 'a>(job: &'j Job<'a>, one: &ProcessHistory) -> Vec<&'j ProcessHistory<'a>> {
    job.clients()
        .filter(|life| life.has_stayed() && life.process.id != one.process.id)
        .collect()
}

/// The finding that servers do not listen while others do.
fn servers(job: &Job) -> Option<Finding> {
    let servers = || {
        job.lives
            .iter()
            .filter(|life| life.process.port.is_some() && life.process.role == Role::Server)
    };
    let missing: Vec<&ProcessHistory> = servers()
        .filter(|life| life.listening.is_none() && life.has_stayed())
        .collect();
    let first = missing.first()?;
    let mut text = match missing.as_slice() {
        [one] => format!("{} does not listen", job.who(one)),
        many => format!("{} do not listen", several(many)),
    };
    if missing.len() < servers().count() {
        text += ", all other servers do";
    }
    let mut finding = Finding::new(text)
        .shown_by_all(missing.iter().filter_map(|life| life.started))
        .shown_by_all(missing.iter().filter_map(|life| life.last_word()));
    finding.since_ms = first.started.map(|started| started.time_ms);
    if missing.len() == 1 {
        finding = finding.on_account_of(first.culprit());
    }
    Some(finding)
}

/// The last stall of the last try, if the job has not moved since.
pub fn last_stall<'a>(job: &Job<'a>) -> Option<&'a Stalled> {
    let stalled = job.records.stalled.last()?;
    let is_of_try = job.began_ms.is_none_or(|began| stalled.time_ms >= began);
    let is_later = |time_ms: u64| time_ms > stalled.time_ms;
    let has_moved = job
        .clients()
        .filter_map(|life| life.last_word())
        .any(|word| is_later(word.time_ms))
        || job.records.resumed.iter().any(|one| is_later(one.time_ms));
    (is_of_try && !has_moved).then_some(stalled)
}

/// The finding about a stall that was noticed while the job ran. What dgl-spawn noted besides the
/// stacks, such as a signal that has stopped a process, counts more than these.
fn stalled(job: &Job) -> Option<Finding> {
    let stalled = last_stall(job)?;
    let reason = stalled.reason.trim_end_matches('.');
    let elsewhere = comparison(job).describe_outliers(stacks::names);
    let is_of_stacks = !elsewhere.is_empty() && reason.starts_with(&elsewhere);
    let by_stacks = stands(job).filter(|_| stalled.culprit.is_none() || is_of_stacks);
    let finding = by_stacks.unwrap_or_else(|| match &stalled.culprit {
        None => Finding::new(reason),
        Some(culprit) => {
            let member = culprit.role.zip(culprit.rank);
            let short = member.map_or(String::new(), |member| stacks::names(&[member]));
            let name = job.name(culprit);
            let text = match reason.strip_prefix(&short) {
                Some(rest) if !short.is_empty() => format!("{name}{rest}"),
                _ => format!("{name}: {reason}"),
            };
            Finding::new(text).on_account_of(culprit.clone())
        }
    });
    Some(finding.since(stalled.since_ms).shown_by(stalled))
}

/// Where a process stands, and the record that shows it.
struct Standing<'a> {
    frames: Vec<String>,
    by: Shown<'a>,
}

enum Shown<'a> {
    Stack(&'a Stack),
    Line(&'a Output),
}

impl Standing<'_> {
    fn show(&self, finding: Finding) -> Finding {
        match self.by {
            Shown::Stack(stack) => finding.shown_by(stack),
            Shown::Line(line) => finding.shown_by(line),
        }
    }
}

/// The stacks of the main threads of a process and its children, as dgl-stacks read them or else as
/// faulthandler wrote them.
fn stacks_of<'a>(job: &Job<'a>, life: &ProcessHistory<'a>) -> Vec<Standing<'a>> {
    let process = life.process;
    let belongs = |stack: &&Stack| {
        stack.host == process.host
            && stack.role == Some(process.role)
            && stack.rank == Some(process.rank)
            && job.began_ms.is_none_or(|began| stack.time_ms >= began)
    };
    let mut latest: BTreeMap<u32, Standing> = BTreeMap::new();
    for stack in job.records.stacks.iter().filter(belongs) {
        if let Some(frames) = stack.main_frames() {
            let standing = Standing {
                frames: frames.to_vec(),
                by: Shown::Stack(stack),
            };
            latest.insert(stack.pid, standing);
        }
    }
    if !latest.is_empty() {
        return latest.into_values().collect();
    }
    let written = life.fatal_stacks().into_iter();
    written
        .map(|(line, frames)| Standing {
            frames,
            by: Shown::Line(line),
        })
        .collect()
}

/// The stack of the process itself.
fn stack_of<'a>(job: &Job<'a>, life: &ProcessHistory<'a>) -> Option<Standing<'a>> {
    let mut all = stacks_of(job, life).into_iter();
    all.find(|standing| stacks::child(&standing.frames).is_none())
}

/// Whether a sampler of the process was alive when stacks were taken.
fn has_sampler(job: &Job, life: &ProcessHistory) -> bool {
    let all = stacks_of(job, life);
    (all.iter()).any(|standing| stacks::child(&standing.frames) == Some(Child::Sampler))
}

/// For a trainer that waits for samplers: that all of its samplers are gone, while others have
/// theirs.
fn without_samplers(job: &Job, life: &ProcessHistory) -> &'static str {
    let others = others(job, life);
    let others_have = others.iter().any(|other| has_sampler(job, other));
    match others_have && !has_sampler(job, life) {
        true => ", of which none is there any more",
        false => "",
    }
}

/// Where the trainers and workers stood when nothing moved any longer, as far as is known.
pub fn comparison(job: &Job) -> Comparison {
    if !is_silent(job) && last_stall(job).is_none() {
        return Comparison::default();
    }
    let staying = job.clients().filter(|life| life.has_stayed());
    Comparison::of(staying.filter_map(|life| Some((life.member(), stack_of(job, life)?.frames))))
}

/// The finding by the stacks: who stands elsewhere than the others, or where all stand.
fn stands(job: &Job) -> Option<Finding> {
    let comparison = comparison(job);
    let life = |member: &Member| job.clients().find(|life| life.member() == *member);
    let culprit = comparison.culprit().as_ref().and_then(life);
    let name = |members: &[Member]| match (members, culprit) {
        ([one], Some(life)) if life.member() == *one => job.who(life),
        _ => stacks::names(members),
    };
    let waits_for_samplers =
        || (comparison.outliers().iter()).any(|one| one.wait == Some(Wait::Samplers));
    let note = match culprit {
        Some(life) if waits_for_samplers() => without_samplers(job, life),
        _ => "",
    };
    let mut finding = match comparison.groups() {
        [] => return None,
        _ => Finding::new(comparison.sentence(name, note)),
    };
    finding.culprit = culprit.map(ProcessHistory::culprit);
    finding.since_ms = job
        .clients()
        .filter_map(|life| Some(life.last_word()?.time_ms))
        .max();
    for group in comparison.groups() {
        let first = group.members.first().and_then(life);
        if let Some(standing) = first.and_then(|life| stack_of(job, life)) {
            finding = standing.show(finding);
        }
    }
    Some(finding)
}

/// The longest time between two lines of clients of the last try, and the time since the last one.
struct Pauses {
    longest: Duration,
    last: Duration,
    since: Option<u64>,
}

fn pauses(job: &Job) -> Pauses {
    let words = job.clients().filter_map(|life| life.last_word());
    let since = words.map(|word| word.time_ms).max();
    let began_ms = job.began_ms.filter(|_| job.tries > 1).unwrap_or(0);
    let longest_ms = job.records.pauses.longest_since(began_ms);
    // lines that belong to the end come later than all others
    let end_ms = job
        .lives
        .iter()
        .flat_map(|life| &life.output)
        .filter(|line| line.while_ending)
        .map(|line| line.time_ms)
        .min()
        .unwrap_or(job.latest_ms);
    Pauses {
        longest: Duration::from_millis(longest_ms),
        last: Duration::from_millis(since.map_or(0, |since| end_ms.saturating_sub(since))),
        since,
    }
}

/// Whether clients have been silent for longer than ever before: only then does a stack tell more
/// than where a healthy job happens to be.
fn is_silent(job: &Job) -> bool {
    let pauses = pauses(job);
    pauses.last >= SILENCE && pauses.last >= pauses.longest * 2
}

/// The finding that nobody has written a line for long.
pub fn silence(job: &Job) -> Option<Finding> {
    let Pauses {
        longest,
        last,
        since,
    } = pauses(job);
    if !is_silent(job) {
        return None;
    }
    let last_word = job
        .clients()
        .filter_map(|life| Some((life, life.last_word()?)))
        .max_by_key(|(_, word)| word.time_ms);
    let (life, word) = last_word?;
    let text = format!(
        "no trainer or worker has written a line for {}, where the longest pause before was \
         {}; the last one was of {}",
        term::seconds(last),
        term::seconds(longest),
        job.who(life)
    );
    let mut finding = Finding::new(text).shown_by(word);
    finding.since_ms = since;
    Some(finding)
}

/// The finding that processes of a job were not started.
pub fn start(job: &Job) -> Option<Finding> {
    let missing: Vec<&Process> = job
        .lives
        .iter()
        .filter(|life| life.started.is_none())
        .map(|life| life.process)
        .collect();
    let first = missing.first()?;
    let place = format!(
        "{} {} on {}",
        first.role.name(),
        first.rank,
        job.host(first.host)
    );
    let text = match missing.len() {
        1 => format!("{place} was not started yet"),
        many => format!("{many} processes were not started yet, the first of them is {place}"),
    };
    Some(Finding::new(text))
}
