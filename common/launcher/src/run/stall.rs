//! Reports that a job stalls or is active again: where all processes are, outliers first, for which
//! of them the others wait, and which raised an exception and do not end.
//!
//! The launcher asks all hosts for stacks. Once all have answered, the state machine decides, and
//! the stall is reported.

use super::executor::HostSession;
use crate::output::sink::OutputSink;
use job::JobStalled;
use record::stacks::NO_PYTHON;
use record::stacks::{self, Comparison, LONG_CALL, Member};
use record::term::{self, now_ms};
use record::{Culprit, Process, Resumed, Sign, Stack, Stalled};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use verdict::silence::Silence;
use wire::supervise::{Computing, Raised};

/// The most stacks that are kept of a host, more than any has processes.
const MAX_STACKS: usize = 4096;
/// The same in bytes of JSON. A process's stacks have some KB; all are kept until the stall is
/// reported.
const MAX_STACK_BYTES: usize = 8 << 20;

#[derive(Debug, Default)]
pub struct StallReports {
    /// The stacks of each host whose answer is incomplete, and their bytes.
    pending: BTreeMap<usize, (Vec<Stack>, usize)>,
    /// Each host's answer: the stacks, and the indices of stopped processes.
    answers: BTreeMap<usize, (Vec<Stack>, Vec<usize>)>,
}

/// A stall with all that hosts reported.
#[derive(Debug)]
struct CompleteStall {
    stalled: JobStalled,
    /// When it was found, in milliseconds since 1970.
    time_ms: u64,
    stacks: Vec<Stack>,
    /// The indices of processes stopped by a signal.
    stopped: Vec<usize>,
}

impl CompleteStall {
    fn problem(&self) -> String {
        let silent = term::seconds(self.stalled.silent);
        let problem = match self.stalled.computing {
            None => "no process on any host has written, computed or moved data",
            Some(_) => "every main thread has been at the same line, although processes compute",
        };
        format!("for {silent} {problem}")
    }
}

impl StallReports {
    pub fn stack(&mut self, host_index: usize, stack: Stack) {
        let (stacks, bytes) = self.pending.entry(host_index).or_default();
        *bytes += serde_json::to_vec(&stack).map_or(0, |text| text.len());
        if stacks.len() < MAX_STACKS && *bytes <= MAX_STACK_BYTES {
            stacks.push(stack);
        }
    }

    /// Drops all answers for a new question.
    pub fn ask(&mut self) {
        self.answers.clear();
    }

    /// Completes a host's answer; `stopped` are the indices of processes that a signal has stopped.
    pub fn answered(&mut self, host_index: usize, stopped: Vec<usize>) {
        let (stacks, _) = self.pending.remove(&host_index).unwrap_or_default();
        self.answers.insert(host_index, (stacks, stopped));
    }

    fn complete(&mut self, stalled: JobStalled, time_ms: u64) -> CompleteStall {
        let answers = std::mem::take(&mut self.answers).into_values();
        let (stacks, stopped): (Vec<_>, Vec<_>) = answers.unzip();
        CompleteStall {
            stalled,
            time_ms,
            stacks: stacks.concat(),
            stopped: stopped.concat(),
        }
    }
}

#[derive(Debug, PartialEq)]
struct Explanation {
    /// A sentence without its full stop.
    reason: String,
    culprit: Option<Culprit>,
    /// For the status line, which has little room; empty if unknown.
    brief: String,
    comparison: Comparison,
    /// Whether the reason says more than the comparison.
    says_more: bool,
}

/// The most notices about a job: hosts report stalls and exceptions as often as they want.
const MAX_NOTICES: usize = 1000;

/// Explains a stall of these processes. One raised an exception; others may have done so later.
fn explain(
    complete: &CompleteStall,
    processes: &[Process],
    raised: Option<(usize, &Raised)>,
) -> Explanation {
    let comparison = Stack::compare(&complete.stacks);
    // half the time, because the hosts do not detect the last activity at the same moment
    let connections = Silence::of(&complete.stacks, true, Some(complete.stalled.silent / 2));
    let stopped = complete.stopped.iter();
    let stopped: Vec<Member> = stopped.map(|index| processes[*index].member()).collect();
    let (mut others, mut says_more) = (String::new(), true);
    let (brief, culprit) = if let Some((process_index, raised)) = raised {
        let raiser = processes[process_index].member();
        let mut rest = complete.stacks.clone();
        rest.retain(|stack| stack.member() != Some(raiser));
        others = Stack::compare(&rest).sentence(stacks::names, "");
        let (name, exception) = (stacks::names(&[raiser]), &raised.exception);
        let text = format!("{name} raised {exception} and did not end");
        (text, Some(raiser))
    } else if !stopped.is_empty() {
        stacks::stopped(&stopped)
    } else if comparison.outliers().is_empty() && !connections.sentences.is_empty() {
        others = comparison.sentence(stacks::names, "");
        (connections.sentences.join("; "), connections.culprit)
    } else {
        says_more = false;
        // if stacks and connections disagree, there is no culprit
        let agrees = |member: &Member| connections.culprit.is_none_or(|other| other == *member);
        let brief = comparison.describe_outliers(stacks::names);
        (brief, comparison.culprit().filter(agrees))
    };
    let reason = match (says_more, brief.is_empty()) {
        (true, _) if others.is_empty() => brief.clone(),
        (true, _) => format!("{brief}; {others}"),
        (false, false) => {
            let is_long = complete.stalled.computing == Some(Computing::MayWork);
            comparison.sentence(stacks::names, if is_long { LONG_CALL } else { "" })
        }
        (false, true) => {
            let groups = comparison.lines().join("; ");
            let colon = if groups.is_empty() { "" } else { ": " };
            format!("{}{colon}{groups}", complete.problem())
        }
    };
    let mut processes = processes.iter();
    let culprit = processes.find(|process| Some(process.member()) == culprit);
    Explanation {
        reason,
        culprit: culprit.map(Culprit::of),
        brief,
        comparison,
        says_more,
    }
}

/// Why no process could be read: `workers 0-3 cannot be read: the kernel does not let …`.
fn obstacles(stacks: &[Stack]) -> Vec<String> {
    let mut members: BTreeMap<&str, Vec<Member>> = BTreeMap::new();
    for stack in stacks {
        if let (Some(role), Some(rank), Some(error)) = (stack.role, stack.rank, &stack.error) {
            let member = (role, rank);
            let same = members.entry(error).or_default();
            if !same.contains(&member) {
                same.push(member);
            }
        }
    }
    // a shell that runs a Python needs no message
    let others = members.iter().filter(|(error, _)| **error != NO_PYTHON);
    let complete: Vec<Member> = others.flat_map(|(_, members)| members.clone()).collect();
    if let Some(shells) = members.get_mut(NO_PYTHON) {
        shells.retain(|member| !complete.contains(member));
    }
    members.retain(|_, members| !members.is_empty());
    let line = |(error, members): (&str, Vec<Member>)| {
        format!("{} cannot be read: {error}", stacks::names(&members))
    };
    members.into_iter().map(line).collect()
}

fn lines(job: &str, complete: &CompleteStall, why: &Explanation) -> Vec<String> {
    let mut lines = vec![format!("job {job} stalls: {}", complete.problem())];
    if why.says_more {
        lines.push(why.brief.clone());
    }
    lines.extend(why.comparison.lines());
    if why.comparison.groups().is_empty() {
        lines.extend(obstacles(&complete.stacks));
    }
    let tools = format!(
        "ipconf-check ip_config.txt | dgl-stacks --job {job} shows all threads, ipconf-check \
         ip_config.txt | dgl-reap --job {job} stops it"
    );
    match (complete.stalled.ends, complete.stalled.computing) {
        (true, _) => {}
        (false, Some(Computing::MayWork)) => lines.push(format!(
            "the job continues, because a process that computes may be in one long call; {tools}"
        )),
        (false, _) => lines.push(format!(
            "the job continues; {tools}, --stall-timeout TIME:end does so by itself"
        )),
    }
    lines
}

pub struct StallReporter<'a> {
    job: &'a str,
    processes: &'a [Process],
    /// For messages: `host 1 (10.0.0.2): trainer 3`.
    names: Vec<String>,
    /// Its budget limits the reports about stalls, which any host may cause.
    first_host: u32,
    pub reports: StallReports,
    /// While the job stalls.
    stalls: Option<ReportedStall>,
    /// Processes that raised an exception and do not end.
    raised: BTreeMap<usize, Raised>,
    notices: usize,
}

#[derive(Debug)]
struct ReportedStall {
    /// The last activity, in milliseconds since 1970.
    since_ms: u64,
    /// How long ago that was when the stall was found.
    silent: Duration,
    /// The clock of `since_ms` may be set meanwhile.
    found: Instant,
    /// Why the job stalls; empty if unknown.
    brief: String,
}

impl<'a> StallReporter<'a> {
    pub fn new(
        job: &'a str,
        processes: &'a [Process],
        sessions: &[HostSession<'_>],
    ) -> StallReporter<'a> {
        let mut names = vec![String::new(); processes.len()];
        for session in sessions {
            for member in &session.members {
                let Process { role, rank, .. } = &processes[*member];
                names[*member] = format!("{}: {} {rank}", session.host.location(), role.name());
            }
        }
        let first_host = sessions.first().map_or(0, |session| session.host.id);
        StallReporter {
            job,
            processes,
            names,
            first_host,
            reports: StallReports::default(),
            stalls: None,
            raised: BTreeMap::new(),
            notices: 0,
        }
    }

    /// Why the job stalls, if it does; empty if unknown.
    pub fn brief(&self) -> Option<&str> {
        Some(&self.stalls.as_ref()?.brief)
    }

    /// Handles a process's stacks. While the job ends, they are recorded at once.
    pub fn stack(&mut self, host: usize, stack: Stack, is_ending: bool, sink: &mut OutputSink) {
        if is_ending {
            self.write_stack(stack, true, sink);
        } else {
            self.reports.stack(host, stack);
        }
    }

    pub fn stalled(&mut self, stalled: JobStalled, sink: &mut OutputSink) {
        let stall = self.reports.complete(stalled, now_ms());
        let why = explain(&stall, self.processes, self.first_raised(sink));
        for stack in &stall.stacks {
            self.write_stack(stack.clone(), false, sink);
        }
        let since_ms = stall.time_ms.saturating_sub(term::millis(stalled.silent));
        self.stalls = Some(ReportedStall {
            since_ms,
            silent: stalled.silent,
            found: Instant::now(),
            brief: why.brief.clone(),
        });
        let stalled = Stalled {
            since_ms,
            silent_s: stalled.silent.as_secs_f64(),
            computing: stalled.computing.is_some(),
            reason: why.reason.clone(),
            culprit: why.culprit.clone(),
            time_ms: stall.time_ms,
        };
        sink.report(self.first_host, &stalled);
        sink.keep_stall(Some((stalled, stall.stacks.clone())));
        for line in lines(self.job, &stall, &why) {
            self.notice(sink, &line);
        }
    }

    /// The process that failed first by an exception. The verdict has the same order.
    fn first_raised(&self, sink: &OutputSink) -> Option<(usize, &Raised)> {
        let id = |index: usize| self.processes[index].id;
        let mut raised = self.failed();
        let first = sink.first_raiser(&raised.clone().map(|(index, _)| id(*index)).collect());
        let known = raised.clone().find(|(index, _)| Some(id(**index)) == first);
        let (index, raised) = known.or_else(|| raised.next())?;
        Some((*index, raised))
    }

    /// A caught exception, or another thread's, blocks no other process.
    fn failed(&self) -> impl Iterator<Item = (&usize, &Raised)> + Clone {
        self.raised.iter().filter(|(_, raised)| raised.has_failed())
    }

    /// Writes a stack's record, within its host's budget.
    fn write_stack(&self, stack: Stack, while_ending: bool, sink: &mut OutputSink) {
        let record = Stack {
            job: self.job.to_owned(),
            while_ending,
            ..stack
        };
        sink.report(record.host, &record);
    }

    /// Reports renewed activity, with the process if known.
    pub fn resumed(&mut self, moved: Option<(usize, Sign)>, sink: &mut OutputSink) {
        let time_ms = now_ms();
        let Some(stall) = self.stalls.take() else {
            return;
        };
        let (process, sign) = moved.unzip();
        let process = process.map(|position| &self.processes[position]);
        let activity = match (process, sign) {
            (Some(process), Some(sign)) => {
                format!(": {} {}", stacks::names(&[process.member()]), sign.words())
            }
            _ => String::new(),
        };
        let resumed = Resumed {
            since_ms: stall.since_ms,
            time_ms,
            process: process.map(Culprit::of),
            sign,
        };
        sink.report(self.first_host, &resumed);
        sink.keep_stall(None);
        let line = format!(
            "job {} moves again, after {}{activity}",
            self.job,
            term::seconds(stall.silent + stall.found.elapsed())
        );
        self.notice(sink, &line);
    }

    /// Reports a running process that raised an exception, is silent since, and does not end; once,
    /// until it continues.
    pub fn raised(&mut self, process: usize, raised: Raised, sink: &OutputSink) {
        if let Some(known) = self.raised.get_mut(&process) {
            *known = raised;
            return;
        }
        let stays = match stacks::wait(&raised.frames) {
            Some(wait) => format!("it {}", wait.words()),
            None => "it does not end".to_owned(),
        };
        let silent = term::seconds(Duration::from_millis(raised.silent_ms));
        let name = &self.names[process];
        let line = format!(
            "{name} raised {} and has been silent for {silent}: {stays}",
            raised.exception
        );
        self.notice(sink, &line);
        self.raised.insert(process, raised);
    }

    /// A process that continues or has ended no longer blocks the job by its exception.
    pub fn continues(&mut self, process: usize) {
        self.raised.remove(&process);
    }

    /// A sentence for each process, except for one, that had raised an exception and did not end
    /// before the job.
    pub fn raised_lines(&self, but: Option<usize>) -> Vec<String> {
        let stayed = self.failed().filter(|(process, _)| Some(**process) != but);
        let line = |(process, raised): (&usize, &Raised)| {
            let name = &self.names[*process];
            format!("{name} had raised {} and did not end", raised.exception)
        };
        stayed.map(line).collect()
    }

    fn notice(&mut self, sink: &OutputSink, text: &str) {
        self.notices += 1;
        let text = match self.notices.cmp(&MAX_NOTICES) {
            Ordering::Less => text,
            Ordering::Equal => {
                "there were too many notices about stalls and exceptions: no more \
                follow"
            }
            Ordering::Greater => return,
        };
        sink.notice(&format!("dgl-spawn: {}", term::plain(text)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::queue::{OutputLines, Queue, QueueItem};
    use record::{Role, Thread};
    use std::sync::Arc;

    const REDUCE: &[&str] = &[
        "all_reduce (c10d.py:9)",
        "step (train.py:75)",
        "<module> (train.py:131)",
    ];
    const LOOP: &[&str] = &["spin (train.py:12)", "<module> (train.py:131)"];
    const EXIT: &[&str] = &[
        "client_barrier (rpc.py:1109)",
        "exit_client (dist_context.py:384)",
    ];

    fn processes() -> Vec<Process> {
        let text = |id: u32| {
            let (role, rank) = if id == 0 {
                ("server", 0)
            } else {
                ("trainer", id - 1)
            };
            format!(
                "{{\"id\":{id},\"of\":4,\"host\":{},\"ip\":\"10.0.0.1\",\"role\":\"{role}\",\
                 \"rank\":{rank},\"argv\":[\"t\"]}}",
                id / 2
            )
        };
        (0..4)
            .map(|id| serde_json::from_str(&text(id)).unwrap())
            .collect()
    }

    fn stack(role: Role, rank: u32, frames: &[&str]) -> Stack {
        Stack {
            role: Some(role),
            rank: Some(rank),
            threads: vec![Thread {
                name: Some("MainThread".to_owned()),
                frames: frames.iter().map(|frame| (*frame).to_owned()).collect(),
                ..Thread::default()
            }],
            ..Stack::default()
        }
    }

    const STALLED: JobStalled = JobStalled {
        silent: Duration::from_secs(600),
        computing: None,
        ends: false,
    };

    fn complete_stall(trainers: [&[&str]; 3], stopped: &[usize]) -> CompleteStall {
        let mut stacks = vec![stack(Role::Server, 0, &["recv (rpc.py:1)"])];
        stacks.extend(
            (0..)
                .zip(trainers)
                .map(|(rank, frames)| stack(Role::Trainer, rank, frames)),
        );
        CompleteStall {
            stalled: STALLED,
            time_ms: 700_000,
            stacks,
            stopped: stopped.to_vec(),
        }
    }

    #[test]
    fn on_whose_account_a_job_stalls() {
        let error = Raised {
            index: 0,
            exception: "ValueError: no".to_owned(),
            silent_ms: 0,
            is_of_main: true,
            left_script: Some(true),
            frames: Vec::new(),
        };
        let raised = |index: Option<usize>| index.map(|index| (index, &error));
        let table = [
            (
                complete_stall([REDUCE, REDUCE, LOOP], &[]),
                None,
                "trainer 2 is in spin (train.py:12), while trainers 0 and 1 wait in a collective \
                 operation for all others [step (train.py:75)]",
                Some(3),
            ),
            (
                complete_stall([REDUCE, REDUCE, REDUCE], &[]),
                None,
                "for 10 min 0 s no process on any host has written, computed or moved data: \
                 trainers 0, 1 and 2 wait in a collective operation for all others \
                 [step (train.py:75)]",
                None,
            ),
            (
                complete_stall([REDUCE, REDUCE, LOOP], &[2]),
                None,
                "trainer 1 is stopped by a signal",
                Some(2),
            ),
            (
                complete_stall([REDUCE, EXIT, REDUCE], &[]),
                Some(2),
                "trainer 1 raised ValueError: no and did not end; trainers 0 and 2 wait in a \
                 collective operation for all others [step (train.py:75)]",
                Some(2),
            ),
            (
                complete_stall([LOOP, LOOP, LOOP], &[1, 2, 3]),
                None,
                "trainers 0, 1 and 2 are stopped by a signal",
                None,
            ),
        ];
        for (complete, raiser, reason, id) in table {
            let why = explain(&complete, &processes(), raised(raiser));
            assert_eq!(why.reason, reason);
            assert_eq!(why.culprit.and_then(|culprit| culprit.id), id, "{reason}");
        }
    }

    #[test]
    fn of_several_that_raised_the_one_whose_error_is_no_echo_is_named_then_the_first() {
        let gloo = "RuntimeError: [gloo/pair.cc:598] Connection closed by peer [10.0.0.1]:4711";
        // when each trainer raised what, by rank, and which process is named
        let table = [
            ([(1000, "ValueError: no"), (4000, gloo)], 1),
            ([(4000, gloo), (1000, "ValueError: no")], 2),
            ([(1000, gloo), (4000, "ValueError: no")], 2),
            ([(4000, "KeyError: 7"), (1000, "ValueError: no")], 2),
            ([(1000, "KeyError: 7"), (4000, "ValueError: no")], 1),
        ];
        let processes = processes();
        for (errors, expected) in table {
            let mut sink = OutputSink::queued(Arc::default());
            let mut reporter = StallReporter::new("try7", &processes, &[]);
            for process in &processes {
                sink.record(process);
            }
            for (index, (time_ms, exception)) in (1..).zip(errors) {
                let text = format!(
                    "Traceback (most recent call last):\n  File \"train.py\", line 7, in <module>\n\
                     \u{20}   step()\n{exception}\n"
                );
                sink.log_lines(&OutputLines {
                    id: index as u32,
                    stderr: true,
                    time_ms,
                    text: text.into_bytes(),
                    continues: false,
                    while_ending: false,
                    lossy: false,
                });
                let raised = Raised {
                    index: 0,
                    exception: exception.to_owned(),
                    silent_ms: 9000 - time_ms,
                    is_of_main: true,
                    left_script: Some(true),
                    frames: Vec::new(),
                };
                reporter.raised(index, raised, &sink);
            }
            let first = reporter.first_raised(&sink).map(|(index, _)| index);
            assert_eq!(first, Some(expected), "{errors:?}");
            for raised in reporter.raised.values_mut() {
                raised.is_of_main = false;
            }
            assert!(reporter.first_raised(&sink).is_none(), "{errors:?}");
            assert!(reporter.raised_lines(None).is_empty(), "{errors:?}");
        }
    }

    #[test]
    fn the_length_of_a_stall_does_not_depend_on_the_time_of_day() {
        let queue = Arc::<Queue>::default();
        let mut sink = OutputSink::queued(Arc::clone(&queue));
        let processes = processes();
        let mut reporter = StallReporter::new("try7", &processes, &[]);
        let before_ms = now_ms();
        reporter.stalled(STALLED, &mut sink);
        let since_ms = &mut reporter.stalls.as_mut().unwrap().since_ms;
        assert!((before_ms..=now_ms()).contains(&(*since_ms + 600_000)));
        // the clock is set forward by an hour
        *since_ms -= 3_600_000;
        reporter.resumed(None, &mut sink);
        let items = queue.next(usize::MAX).unwrap().items;
        let text: Vec<_> = items.iter().flat_map(QueueItem::text).copied().collect();
        let text = String::from_utf8(text).unwrap();
        let expected = "dgl-spawn: job try7 moves again, after 10 min 0 s\n";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn the_odd_one_is_told_first_and_once() {
        let stalled = complete_stall([REDUCE, LOOP, REDUCE], &[]);
        let why = explain(&stalled, &processes(), None);
        let text = lines("try7", &stalled, &why);
        assert_eq!(text.len(), 4, "{text:?}");
        assert!(text[0].starts_with("job try7 stalls: for 10 min 0 s no process on any host"));
        assert_eq!(
            text[1],
            "trainer 1, unlike the others, is in spin (train.py:12)"
        );
        assert!(text[2].starts_with("trainers 0 and 2 wait in a collective operation"));
        assert!(text[3].contains("dgl-stacks --job try7"));
    }

    #[test]
    fn what_computes_is_told_as_what_it_may_be() {
        let waits = "trainers 0 and 1 wait in a collective operation for all others [step \
            (train.py:75)]";
        let still = "for 10 min 0 s every main thread has been at the same line, although \
                     processes compute";
        let table = [
            (
                [REDUCE, REDUCE, LOOP],
                Computing::MayWork,
                format!(
                    "trainer 2 is in spin (train.py:12), perhaps in one long call, while {waits}"
                ),
                "the job continues, because a process that computes may be in one long call; ",
            ),
            // it sleeps, while those that wait spin
            (
                [REDUCE, REDUCE, LOOP],
                Computing::Waits,
                format!("trainer 2 is in spin (train.py:12), while {waits}"),
                "the job continues; ipconf-check ",
            ),
            (
                [LOOP, LOOP, LOOP],
                Computing::MayWork,
                format!("{still}: trainers 0, 1 and 2 are in spin (train.py:12)"),
                "the job continues, because ",
            ),
        ];
        for (trainers, computing, reason, last) in table {
            let mut complete = complete_stall(trainers, &[]);
            complete.stalled.computing = Some(computing);
            let why = explain(&complete, &processes(), None);
            assert_eq!(why.reason, reason);
            let text = lines("try7", &complete, &why);
            assert_eq!(text[0], format!("job try7 stalls: {still}"));
            assert!(text.last().unwrap().starts_with(last), "{text:?}");
        }
        let mut unread = complete_stall([LOOP, LOOP, LOOP], &[]);
        unread.stalled.computing = Some(Computing::Waits);
        unread.stacks.clear();
        let why = explain(&unread, &processes(), None);
        assert_eq!(why.reason, still);
    }

    #[test]
    fn where_no_process_can_be_read_the_reason_is_told() {
        let unread = |rank, error: &str| Stack {
            threads: Vec::new(),
            error: Some(error.to_owned()),
            ..stack(Role::Trainer, rank, &[])
        };
        let mut stalled = complete_stall([REDUCE, REDUCE, REDUCE], &[]);
        stalled.stacks = [0, 0, 1]
            .map(|rank| unread(rank, "the kernel says no"))
            .into();
        stalled
            .stacks
            .extend([1, 2].map(|rank| unread(rank, NO_PYTHON)));
        let why = explain(&stalled, &processes(), None);
        let text = lines("try7", &stalled, &why);
        assert_eq!(
            text[1..3],
            [
                "trainer 2 cannot be read: no Python runs in it",
                "trainers 0 and 1 cannot be read: the kernel says no"
            ]
        );
        assert_eq!(text.len(), 4, "{text:?}");
    }

    #[test]
    fn a_stall_is_reported_with_the_answers_to_one_question() {
        let mut reports = StallReports::default();
        reports.stack(0, stack(Role::Trainer, 0, LOOP));
        reports.answered(0, vec![7]);
        reports.ask();
        reports.stack(1, stack(Role::Trainer, 1, LOOP));
        reports.stack(1, stack(Role::Trainer, 2, LOOP));
        reports.answered(1, vec![2]);
        let complete = reports.complete(STALLED, 700_000);
        assert_eq!((complete.stacks.len(), complete.stopped), (2, vec![2]));
    }
}
