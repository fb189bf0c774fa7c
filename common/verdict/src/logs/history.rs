//! The history that the logs of a job show, with the processes that failed first in front.

use super::{LogEnd, LogProcess, Logs};
use crate::account;
use crate::job::{JobEnd, JobHistory, ProcessHistory, UNKNOWN_RANK};
use evidence::marks::{self, Writer};
use evidence::{Evidence, LogLine, Statement, StatementKind};
use record::exit::{ProcessEnd, SignalNumber};
use record::{Exited, IpAddr, Process, Role};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How the lines begin that launchers write around the end of a job. They are not a process's last
/// line.
const LAUNCHER_LINES: [&str; 15] = [
    " ",
    "Traceback",
    "====",
    "----",
    "****",
    "Failures:",
    "Root Cause",
    "srun: ",
    "slurmstepd: ",
    "Primary job  terminated",
    "a non-zero exit code",
    "the job to be terminated.",
    "mpirun ",
    "mpiexec ",
    "prterun ",
];
/// The same within a line.
const WITHIN_LAUNCHER_LINES: [&str; 4] = [
    "torch.distributed.elastic",
    "torch/distributed/elastic",
    ":sigkill_handler] ",
    "%|",
];

pub fn is_launcher_line(line: &str) -> bool {
    line.trim().is_empty()
        || LAUNCHER_LINES.iter().any(|begin| line.starts_with(begin))
        || line.ends_with(" FAILED")
        || line.starts_with('[') && line.ends_with("]:")
        || marks::is_of_agent(line)
        || WITHIN_LAUNCHER_LINES
            .iter()
            .any(|words| line.contains(words))
}

/// Whether torchrun or accelerate raised it because a process of theirs failed.
fn is_of_launcher(statement: &Statement) -> bool {
    let head = statement.head();
    head.starts_with("torch.distributed.elastic.multiprocessing")
        || head.starts_with("ray.train.") && head.contains("TrainingFailedError")
        || head.starts_with("RuntimeError: Horovod detected that one or more processes exited")
        || head.starts_with("subprocess.CalledProcessError")
            && [
                "accelerate/commands",
                "torch/distributed/launch",
                "deepspeed/launcher",
            ]
            .iter()
            .any(|place| statement.is_in(place))
}

impl Logs {
    pub fn history(mut self) -> JobHistory {
        self.rename_tasks();
        let asked = self.processes.iter().find_map(LogProcess::asked_to_end);
        self.keep_own_words();
        self.join_local_ranks();
        self.forget_explained_launchers();
        if let Some(signal) = asked {
            self.end_by_request(signal);
        }
        self.find_consequences();
        self.attribute_unmarked_lines();
        self.forget_nameless_end();
        self.find_unreported_ends();
        let is_named = |process: &LogProcess| {
            let has_written = process.end.is_some() || process.evidence.count > 0;
            has_written && process.writer != Writer::default()
        };
        let are_named = self.processes.iter().any(is_named);
        self.processes.retain(|process| {
            let is_known = process.end.is_some() || !process.evidence.statements().is_empty();
            let has_lines = process.evidence.count > 0;
            is_known || has_lines && (process.writer != Writer::default() || !are_named)
        });
        self.processes.sort_by_cached_key(LogProcess::order);
        let mut job = JobHistory::default();
        if self.is_out_of_memory {
            let text = "the kernel killed a process because memory ran out: it had reached the \
                        limit of a container or of a batch job";
            self.job_end.get_or_insert((text.to_owned(), false));
        }
        job.ended_by = self
            .job_end
            .map(|(text, is_request)| JobEnd { text, is_request });
        let (count, files) = (self.processes.len(), Arc::from(self.files));
        let histories = self.processes.into_iter().zip(0..);
        job.processes = histories
            .map(|(process, id)| process.history(id, count, &files))
            .collect();
        job
    }

    /// A launcher ends the other processes after one has failed.
    fn find_consequences(&mut self) {
        let ends = || self.failed().filter_map(|process| process.end.as_ref());
        let is_term = |end: &LogEnd| end.reported.end.signal == Some(SignalNumber::TERM);
        let may_follow = |end: &LogEnd| end.reported.may_follow;
        let has_crashed = self.failed().any(|process| {
            let is_own = |end: &LogEnd| !is_term(end) && !may_follow(end);
            process.end.as_ref().is_some_and(is_own) && process.has_crashed()
        });
        let wrote_why = |process: &LogProcess| is_last_word(&process.evidence, false);
        let has_own_cause = has_crashed
            || (self.processes.iter()).any(|process| wrote_why(process) && process.explains());
        let has_cause = has_own_cause
            || ends().any(|end| !is_term(end))
            || self.processes.iter().any(wrote_why);
        for end in self
            .processes
            .iter_mut()
            .filter_map(|process| process.end.as_mut())
        {
            end.while_ending |= has_cause && is_term(end) || has_own_cause && may_follow(end);
        }
    }

    /// Forgets what launchers wrote, what a process survived, and exceptions that only follow from
    /// a signal.
    fn keep_own_words(&mut self) {
        for process in &mut self.processes {
            // of several processes, others may have gone on
            let about_end = account::about_end(&process.evidence);
            let is_mixed = process.evidence.is_mixed();
            process.evidence.retain(|statement| {
                let is_logged = matches!(
                    statement.kind,
                    StatementKind::Logged | StatementKind::Stacks
                );
                is_mixed || is_logged || about_end.contains(&statement.first.number)
            });
            process.evidence.retain(|statement| {
                // of a traceback that others have cut, the exception may be missing
                statement.lines().next().is_some()
                    && !is_of_launcher(statement)
                    && account::request(statement).is_none()
            });
            process
                .evidence
                .retain_last_lines(|line| !is_launcher_line(line));
            if let Some(end) = &mut process.end {
                let end = &mut end.reported.end;
                end.oom |= self.is_out_of_memory && end.signal == Some(SignalNumber::KILL);
            }
        }
    }

    /// Without torchrun's table, its line about a local rank is about the rank of that number. On
    /// a node that is not the first, it would be about a greater rank.
    fn join_local_ranks(&mut self) {
        let is_elsewhere = |(local, rank): (&Writer, &Option<u32>)| local.local_rank != *rank;
        let failed = self.failed().map(|process| &process.writer);
        let failed: BTreeSet<&Writer> = failed.filter(|one| one.local_rank.is_some()).collect();
        let last = failed.iter().filter_map(|one| one.local_rank).max();
        if failed.iter().any(|one| one.place.is_some()) || self.ranks.iter().any(is_elsewhere) {
            return;
        }
        let is_of_rank = |local: &&Writer| {
            let rank = local.local_rank.unwrap_or_default();
            let index = |writer| Some(&self.processes[*self.by_writer.get(writer)?]);
            let (Some(own), Some(local)) = (index(&Writer::ranked(rank)), index(local)) else {
                return false;
            };
            let states = |process: &LogProcess| !process.evidence.statements().is_empty();
            let contradicts = |other: &LogProcess| {
                let may_be_meant =
                    other.writer.rank > Some(rank.saturating_add(last.unwrap_or_default()));
                let is_same = !states(own) || own.explains() && other.explains();
                may_be_meant && other.end.is_none() && is_same
            };
            own.end.is_none() && !states(local) && !self.processes.iter().any(contradicts)
        };
        let joined: Vec<Writer> = failed.into_iter().filter(is_of_rank).cloned().collect();
        for local in joined {
            let rank = local.local_rank.unwrap_or_default();
            self.is_ranked(local, rank);
        }
    }

    /// A task of srun is the rank of its number, or if torchrun runs, a launcher: then the end of a
    /// rank on that host explains it.
    fn rename_tasks(&mut self) {
        let short = |host: &str| host.split('.').next().unwrap_or_default().to_owned();
        let has_own_end = |process: &&LogProcess| {
            let end = process.end.as_ref();
            end.is_some_and(|end| !end.reported.is_task)
        };
        let of_ranks = self.processes.iter().filter(has_own_end);
        let hosts = of_ranks.filter_map(|process| process.host.as_deref());
        let explained: BTreeSet<String> = hosts.map(short).collect();
        for index in 0..self.processes.len() {
            let process = &mut self.processes[index];
            let Some(mut end) = process.end.take_if(|end| end.reported.is_task) else {
                continue;
            };
            let host = process.host.take().unwrap_or_default();
            end.reported.host = None;
            let writer = if !self.has_agents {
                end.reported.writer.clone()
            } else if explained.contains(&short(&host)) {
                continue;
            } else {
                Writer::at(&format!("a process on {host}"))
            };
            let process = self.process(writer, None);
            let process = &mut self.processes[process];
            if !self.has_agents {
                process.host.get_or_insert(host);
            }
            process.end.get_or_insert(end);
        }
    }

    /// The exceptions of the processes only follow from a signal, unless one failed by itself.
    fn end_by_request(&mut self, signal: &str) {
        let is_own = |one: &LogProcess| one.end_or_unknown().signal.is_some() || one.explains();
        if self.job_end.is_some() || self.processes.iter().any(is_own) {
            return;
        }
        self.job_end = Some((format!("its processes got {signal}"), true));
        self.processes.iter_mut().for_each(|one| one.end = None);
    }

    /// A launcher's status, such as that of DeepSpeed's or of pdsh, follows from the exception of
    /// a rank, if one explains itself.
    fn forget_explained_launchers(&mut self) {
        let is_rank = |one: &&LogProcess| one.writer.rank.or(one.writer.local_rank).is_some();
        if !self
            .processes
            .iter()
            .filter(is_rank)
            .any(LogProcess::explains)
        {
            return;
        }
        for process in self.processes.iter_mut().filter(|one| !is_rank(&&**one)) {
            let explains = process.explains();
            let follows = |end: &mut LogEnd| end.reported.end.signal.is_none() && !explains;
            process.end.take_if(follows);
        }
    }

    /// Whether a launcher saw a process fail by itself.
    pub fn has_failed(&self) -> bool {
        self.failed().next().is_some()
    }

    /// The processes that a launcher saw fail by themselves.
    fn failed(&self) -> impl Iterator<Item = &LogProcess> {
        let is_own = |end: &LogEnd| !end.while_ending;
        self.processes
            .iter()
            .filter(move |process| process.end.as_ref().is_some_and(is_own))
    }

    /// Gives lines that name no process to the processes which their launcher saw fail, if only
    /// they can have written them.
    fn attribute_unmarked_lines(&mut self) {
        let mut groups: BTreeMap<String, Group> = BTreeMap::new();
        let mut ended: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (index, process) in self.processes.iter().enumerate() {
            let source = process.end.as_ref().and_then(|end| end.source);
            if let Some(source) = source {
                ended.entry(source).or_default().push(index);
            }
        }
        for (source, mut failed) in ended {
            let end = |index: &usize| self.processes[*index].end.as_ref();
            let is_own = |index: &usize| end(index).is_some_and(|end| !end.while_ending);
            let first = failed.iter().filter_map(end).map(|end| end.line).min();
            failed.retain(|index| *index != source && is_own(index));
            if failed.is_empty() || !self.processes[source].evidence.is_mixed() {
                continue;
            }
            // a shell reports the end of the same process as its launcher
            if self.processes[source].writer == Writer::default() {
                self.processes[source].end = None;
            }
            let evidence = &mut self.processes[source].evidence;
            evidence.limit_count(first.unwrap_or(u64::MAX));
            let has_own_word = ends_with_own_word(evidence);
            let stated = self.processes[source].evidence.statements();
            // Ray's driver prints the exceptions of its actors
            let is_driver = stated.iter().any(|one| one.head().starts_with("ray."));
            failed.retain(|index| {
                let process = &self.processes[*index];
                let is_placed = process.writer.place.is_some() && !is_driver;
                let can_have_others = !process.has_marked_lines || has_own_word && !is_placed;
                can_have_others && process.evidence.statements().is_empty()
            });
            // a Python that raised an exception exits with 1
            let exits_with_1 =
                |index: &usize| self.processes[*index].end_or_unknown().code == Some(1);
            if failed.iter().any(exits_with_1) {
                failed.retain(|index| !self.processes[*index].has_chosen_status());
            }
            failed.sort_by_cached_key(|index| self.processes[*index].order());
            let mut raised = failed.clone();
            raised.retain(|index| {
                let end = self.processes[*index].end_or_unknown();
                end.signal != Some(SignalNumber::KILL)
            });
            let Some(head) = common_head(&self.processes[source].evidence, raised.len()) else {
                self.attribute_to_one_of(source, &failed);
                continue;
            };
            let group = groups.entry(head).or_insert(Group {
                source,
                failed: Vec::new(),
            });
            group.failed.append(&mut raised);
        }
        let ranks = self.processes.iter();
        let last = ranks.filter_map(|process| process.writer.rank).max();
        for group in groups.values() {
            self.name_together(group, last);
        }
    }

    /// Gives the lines of `source` to one of the processes that failed.
    fn attribute_to_one_of(&mut self, source: usize, failed: &[usize]) {
        let mut evidence = self.processes[source].evidence.clone();
        let named = repeated_by(&evidence).and_then(|rank| {
            let mut failed = failed.iter();
            failed.find(|index| self.processes[**index].writer.rank == Some(rank))
        });
        let Some(taker) = named.or(failed.first()).copied() else {
            return;
        };
        let is_death =
            |one: &Statement| matches!(one.kind, StatementKind::Died | StatementKind::Stacks);
        match self.processes[taker].end_or_unknown().signal {
            Some(SignalNumber::KILL | SignalNumber::TERM) => return,
            Some(_) if !evidence.statements().into_iter().any(is_death) => return,
            Some(_) => evidence.retain(is_death),
            None if named.is_none() && !can_be_of_one(&evidence, failed.len() > 1) => return,
            // its own last lines say more
            None if evidence.statements().is_empty()
                && self.processes[taker].evidence.count > 0 =>
            {
                return;
            }
            None => {
                if evidence.statements().into_iter().any(account::is_own) {
                    evidence.retain(account::is_own);
                    evidence.attribute_to_one();
                }
                self.processes[source].evidence = Evidence::mixed(0);
            }
        }
        self.processes[taker].evidence = evidence;
    }

    /// Makes one process of those that all wrote the same, because nothing shows who was first.
    fn name_together(&mut self, group: &Group, last: Option<u32>) {
        let ranks: BTreeSet<u32> = group
            .failed
            .iter()
            .filter_map(|index| self.processes[*index].writer.rank)
            .collect();
        let are_all = last.is_some_and(|last| last as usize + 1 == ranks.len());
        let list: Vec<String> = ranks.iter().map(u32::to_string).collect();
        let name = match (are_all, &list[..]) {
            _ if ranks.len() < group.failed.len() => {
                format!("each of {} processes", group.failed.len())
            }
            (true, _) => format!("each of the {} ranks", ranks.len()),
            (false, list) => format!("ranks {}", list.join(", ")),
        };
        let end = self.processes[group.failed[0]].end.take();
        let source = &mut self.processes[group.source];
        (source.end, source.group) = (end, Some(name));
        for index in &group.failed {
            self.processes[*index].end = None;
            self.processes[*index].evidence = Evidence::default();
        }
    }

    /// A launcher that does not name the process which failed means the one that wrote why, and
    /// torchrun the one that did so in its --log-dir, if the ranks have no other lines.
    fn forget_nameless_end(&mut self) {
        let is_nameless = |process: &LogProcess| process.writer == Writer::default();
        let explains = |process: &LogProcess| process.explains();
        if !self
            .processes
            .iter()
            .any(|one| !is_nameless(one) && explains(one))
        {
            return;
        }
        let is_in_log_dir = |one: &LogProcess| {
            one.writer.local_rank.is_some() && one.end.is_none() && explains(one)
        };
        let has_log_dir = self.processes.iter().any(is_in_log_dir);
        let is_without_lines = |one: &LogProcess| {
            let has_raised = one.end_or_unknown().code == Some(1);
            let is_silent = one.evidence.statements().is_empty();
            has_log_dir && has_raised && one.writer.rank.is_some() && is_silent
        };
        let processes = self.processes.iter_mut();
        for process in
            processes.filter(|one| is_nameless(one) && !explains(one) || is_without_lines(one))
        {
            process.end.take_if(|end| end.reported.end.signal.is_none());
        }
    }

    /// If no launcher saw a failure, a process has failed whose last statement is about its end.
    /// Lines without a known writer that precede another process's failure count too.
    fn find_unreported_ends(&mut self) {
        let has_failed = self.has_failed();
        let explained = self
            .failed()
            .any(|process| process.end_or_unknown().signal.is_some() || process.has_own_words());
        // then the lines without a mark are of others
        let have_marks = self.failed().any(|process| process.has_marked_lines);
        if self.job_end.is_some() {
            return;
        }
        for process in &mut self.processes {
            let is_wanted = !has_failed || process.evidence.is_mixed() && !explained;
            let is_about_end = if have_marks {
                ends_with_own_word(&process.evidence)
            } else {
                is_last_word(&process.evidence, has_failed)
            };
            if is_wanted && process.end.is_none() && is_about_end {
                process.end = Some(LogEnd::default());
            }
        }
    }
}

/// Processes that failed with the same exception, in lines without marks.
struct Group {
    /// The process without a name that has the lines.
    source: usize,
    failed: Vec<usize>,
}

/// The first line of the first exception, if each of several processes wrote all exceptions.
fn common_head(evidence: &Evidence, failed: usize) -> Option<String> {
    let all = evidence.statements().into_iter();
    let raised = all.filter(|one| one.is_raised());
    let mut heads: Vec<&str> = raised.map(Statement::head).collect();
    let first = (*heads.first()?).to_owned();
    heads.sort_unstable();
    // a chain of which a part was cut is missing once
    let is_common = |same: &[&str]| same.len() > 1 && same.len() + 1 >= failed;
    let mut groups = heads.chunk_by(|one, other| one == other);
    (failed > 1 && groups.all(is_common)).then_some(first)
}

/// Whether lines without marks end with a statement that is not about others. Only this may be of
/// a process whose lines have a mark.
fn ends_with_own_word(evidence: &Evidence) -> bool {
    let last = evidence.last_statement(account::is_own);
    last.is_some_and(|last| account::is_late(evidence, last) && evidence.lines_after(last) == 0)
}

/// The rank in a line of torch that repeats an exception without a mark: `[Rank 1] NCCL watchdog
/// thread terminated with exception: CUDA error: …`.
fn repeated_by(evidence: &Evidence) -> Option<u32> {
    let all = evidence.statements();
    let own = all.iter().find(|one| explains(one))?;
    let (_, message) = own.head().split_once(": ")?;
    let mut lines = all.iter().flat_map(|one| one.lines());
    let line = lines.find(|line| line.contains("[Rank ") && line.contains(message))?;
    let (_, rank) = line.split_once("[Rank ")?;
    rank.split(']').next()?.parse().ok()
}

/// Whether these statements can be of one process: all have the same cause, or only one process
/// failed, so that others can only have lost their connection to it.
fn can_be_of_one(evidence: &Evidence, are_several: bool) -> bool {
    let all = evidence.statements().into_iter();
    let stated = all.filter(|one| one.is_raised() || one.kind == StatementKind::Died);
    let mut causes: Vec<&[String]> = stated.clone().map(Statement::cause).collect();
    causes.dedup();
    let own = stated.filter(|one| explains(one));
    let mut own: Vec<&str> = own.map(Statement::head).collect();
    own.dedup();
    causes.len() < 2 || !are_several && own.len() < 2
}

/// Whether it is an exception that the process itself caused.
fn explains(statement: &Statement) -> bool {
    statement.is_raised() && account::is_own(statement)
}

/// Whether the process wrote about its end and nothing after that. If a launcher saw a failure,
/// other processes' lines may follow.
fn is_last_word(evidence: &Evidence, has_failed: bool) -> bool {
    let last = evidence
        .last_statement(|statement| statement.is_raised() || statement.kind == StatementKind::Died);
    last.is_some_and(|last| {
        if account::is_feeder(last) {
            false
        } else if has_failed {
            account::is_late(evidence, last)
        } else {
            !evidence.continued_after(last)
        }
    })
}

impl LogProcess {
    fn end_or_unknown(&self) -> ProcessEnd {
        self.end
            .as_ref()
            .map(|end| end.reported.end)
            .unwrap_or_default()
    }

    /// The signal that led to its last exception, if it did nothing since.
    fn asked_to_end(&self) -> Option<&'static str> {
        let last = self.evidence.last_statement(Statement::is_raised)?;
        let has_ended = !self.evidence.continued_after(last);
        account::request(last).filter(|_| has_ended)
    }

    /// Whether it raised an exception that does not only follow from the end of another process.
    fn explains(&self) -> bool {
        self.evidence.statements().into_iter().any(explains)
    }

    /// Whether it exited with a status to which no exception of Python leads.
    fn has_chosen_status(&self) -> bool {
        let is_chosen = |code| !matches!(code, 0 | 1);
        self.end_or_unknown().code.is_some_and(is_chosen)
    }

    /// Whether a signal ended it. SIGABRT does not count if the process wrote only about others,
    /// because libraries abort when a peer is lost.
    fn has_crashed(&self) -> bool {
        let is_about_others = !self.evidence.statements().is_empty() && !self.has_own_words();
        match self.end_or_unknown().signal {
            Some(SignalNumber::ABRT) => !is_about_others,
            signal => signal.is_some(),
        }
    }

    /// Whether it wrote something that is not only about another process.
    fn has_own_words(&self) -> bool {
        let mut stated = self.evidence.statements().into_iter();
        stated.any(account::is_own)
    }

    /// First the processes that a signal ended, because that is a cause by itself, except SIGABRT,
    /// by which libraries give up when a peer is lost; then lines without a known writer, unless
    /// they are only about others; then the processes that wrote why, and those that chose their
    /// status; and of them those that the launcher saw first.
    fn order(&self) -> impl Ord + use<> {
        let is_own = |end: ProcessEnd| end.signal.is_some_and(|one| one != SignalNumber::ABRT);
        let group = match &self.end {
            None => 6,
            Some(end) if end.while_ending => 5,
            Some(end) if is_own(end.reported.end) => 0,
            Some(_) if self.writer == Writer::default() && self.has_own_words() => 1,
            Some(_) if self.explains() => 2,
            Some(_) if self.has_chosen_status() => 3,
            Some(_) => 4,
        };
        let end = self.end.as_ref();
        let reported = end.map(|end| (!end.reported.is_first, end.reported.time.clone()));
        (group, reported, end.map(|end| end.order))
    }

    fn name(&self, count: usize) -> String {
        if let Some(group) = &self.group {
            return group.clone();
        }
        let name = match (&self.writer.place, self.writer.rank, self.writer.local_rank) {
            (_, Some(rank), _) => format!("rank {rank}"),
            (Some(place), _, Some(local_rank)) => format!("local rank {local_rank} of {place}"),
            (None, _, Some(local_rank)) => format!("local rank {local_rank}"),
            (Some(place), ..) => place.clone(),
            (None, ..) if count == 1 => "the program".to_owned(),
            (None, ..) => "a process whose lines have no mark".to_owned(),
        };
        match &self.host {
            Some(host) if self.writer.place.as_ref() != Some(host) => format!("{name} on {host}"),
            _ => name,
        }
    }

    fn history(self, id: u32, count: usize, files: &Arc<[String]>) -> ProcessHistory {
        let rank = self.writer.rank.unwrap_or(UNKNOWN_RANK + id);
        let name = self.name(count);
        let process = Process::new(id, 0, IpAddr::default(), Role::Worker, rank);
        let mut history = ProcessHistory::new(process);
        history.report = self.end.as_ref().map(|end| LogLine {
            file: end.file.saturating_sub(1) as u32,
            text: end.reported.line.clone(),
            ..LogLine::default()
        });
        history.life.exited = self.end.map(|end| Exited {
            id,
            host: 0,
            role: Role::Worker,
            rank,
            end: end.reported.end,
            elapsed_ms: 0,
            cpu_s: None,
            max_rss_bytes: None,
            kill_sent: None,
            while_ending: end.while_ending,
        });
        history.evidence = self.evidence;
        history.name = Some(name);
        history.logs = Some(Arc::clone(files));
        history
    }
}
