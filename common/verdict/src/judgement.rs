//! Finds the verdict on a run, without a clock.

use crate::account::{self, Account, Echo};
use crate::advice;
use crate::findings::{Conclusion, JobFinding, LED_TO, Quote, RunOutcome};
use crate::job::{JobHistory, ProcessHistory, UNKNOWN_RANK};
use crate::nccl;
use crate::shell;
use crate::skew;
use crate::wait;
use crate::words;
use evidence::{LogLine, Statement, StatementKind};
use record::exit::{ProcessEnd, SignalNumber};
use record::majority;
use record::stacks;
use record::term::{self, bytes};
use record::{Culprit, FirstFailure, Process, Summary};
use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use std::time::Duration;

pub fn verdict(job: &JobHistory) -> Conclusion {
    let (outcome, mut cause) = match &job.summary {
        Some(summary) => ended(job, summary),
        None => unfinished(job),
    };
    advice::add(job, &mut cause);
    if job.is_from_logs() && outcome == RunOutcome::Unknown && cause.fix.is_none() {
        cause = cause.fix(IF_IT_RUNS);
    }
    let mut others = other_findings(job, &cause);
    others.extend(skew::slow(job));
    others.extend(skew::findings(job));
    others.retain(|other| !cause.text.contains(&other.text));
    Conclusion {
        outcome,
        cause,
        others,
        began_ms: job.began_ms(),
        comparison: wait::places(job),
        waits: wait::by_connections(job),
        at_failure: wait::at_failure(job),
    }
}

/// Whether a process dies of this signal by its own fault, or because somebody outside of the job
/// sent it, but never because another process of the job ended.
fn is_own_signal(signal: SignalNumber) -> bool {
    const OWN: [&str; 10] = [
        "SEGV", "BUS", "ILL", "FPE", "SYS", "USR1", "USR2", "XCPU", "XFSZ", "ALRM",
    ];
    OWN.contains(&&*signal.name())
}

fn ended(job: &JobHistory, summary: &Summary) -> (RunOutcome, JobFinding) {
    let failure = summary.first_failure.as_ref();
    let (outcome, finding) = match (summary.cause.as_deref().unwrap_or_default(), failure) {
        ("", _) if summary.ok => match (hidden_failure(job), asked_to_end(job, job.clients())) {
            (Some(finding), _) => (RunOutcome::Hidden, finding),
            (None, Some(finding)) => (RunOutcome::Interrupted, finding),
            (None, None) => (RunOutcome::Finished, all_ended(job, summary)),
        },
        // the last attempt could not start; the failure of the one before is the cause
        ("preflight" | "host", _) if failed_process(job).is_some() => {
            let first = failed_process(job).unwrap_or_default();
            let mut finding = failed(job, &first);
            let why = failure
                .and_then(|failure| failure.error.clone())
                .unwrap_or_else(|| first_fault(summary, PREFLIGHT).text);
            finding.text += &format!("; the job could not start again: {why}");
            (RunOutcome::Failed, finding)
        }
        ("timeout", Some(failure)) => (RunOutcome::Failed, recorded_failure(job, failure)),
        ("timeout", None) => {
            let otherwise = "; the records do not show that it waited for anything";
            let finding = until_then(job, "its time limit was over", ": ", otherwise);
            (RunOutcome::Failed, finding)
        }
        ("stalled", _) => (RunOutcome::Failed, until_then(job, "it stalled", ": ", "")),
        ("signal", _) => (RunOutcome::Interrupted, interrupted(job, summary)),
        ("paused", _) => {
            let reason = summary.reason.as_deref();
            let finding =
                JobFinding::new(reason.unwrap_or("the launcher was stopped; no host was lost"))
                    .fix("bridge such a pause with a longer --host-timeout");
            (RunOutcome::Failed, finding)
        }
        ("servers", _) => (RunOutcome::Failed, servers(job, failure)),
        ("preflight", _) => (RunOutcome::NotStarted, first_fault(summary, PREFLIGHT)),
        ("input", _) => {
            let reason = summary.reason.as_deref().unwrap_or(NO_INPUT);
            let mut finding = first_fault(summary, reason);
            if finding.fix.is_none() {
                finding =
                    finding.fix("the first message of the pipeline on stderr names the cause");
            }
            (RunOutcome::NotStarted, finding)
        }
        (_, Some(failure)) if failure.end.reaped => (RunOutcome::Interrupted, reaped(job, failure)),
        (_, Some(failure)) => (RunOutcome::Failed, failed(job, failure)),
        _ if job.attempts.is_empty() => (RunOutcome::NotStarted, first_fault(summary, NO_FAILURE)),
        _ => (RunOutcome::Failed, first_fault(summary, NO_FAILURE)),
    };
    (outcome, finding.shown_by([summary]))
}

/// The first fault that a tool reported, or `otherwise` if there is none: dgl-tools 0.3 did not
/// record them.
fn first_fault(summary: &Summary, otherwise: &str) -> JobFinding {
    let Some(first) = summary.faults.first() else {
        return JobFinding::new(otherwise);
    };
    let more = match summary.faults.len() - 1 {
        0 => String::new(),
        1 => "; the summary has one more fault".to_owned(),
        more => format!("; the summary has {more} more faults"),
    };
    let location = match first.location.as_str() {
        option if option.starts_with("--") => String::new(),
        location => format!("{location}: "),
    };
    let mut finding = JobFinding::new(format!("{location}{}{more}", first.problem));
    finding.fix = first.fix.as_ref().map(|fix| fix.replace('\n', "; "));
    finding
}

const PREFLIGHT: &str = "the checks before the start found faults, which dgl-spawn named on stderr";
const NO_INPUT: &str = "a tool before dgl-spawn failed; its stderr shows how";
const NO_PROCESS: &str = "no host has a process of it";
const NO_FAILURE: &str =
    "the records do not say which process or host failed; dgl-spawn's stderr does";

/// A program that failed in shell text which ends with another command's status. Each command after
/// the program may write a line; if more lines follow an exception, the program caught it.
fn hidden_failure(job: &JobHistory) -> Option<JobFinding> {
    let hidden = |history: &ProcessHistory| {
        let text = shell_text(&history.process)?;
        let is_left = text.ends_with('&') && !text.ends_with("&&");
        let hiding = shell::hiding_commands(text).or(is_left.then_some(0));
        let account =
            Account::of_end(history, false).filter(|account| account.statement.is_raised());
        let is_last_word = |account: &Account| {
            let lines = history.evidence.lines_after(account.statement);
            hiding.is_some_and(|commands| lines <= commands)
        };
        let name = job.process_name(history);
        let text = match account {
            Some(account) if is_last_word(&account) => format!(
                "{name}{}; its shell text ended with the status of another command",
                account.words()
            ),
            None if is_left => format!(
                "{name} ended before its program: its shell text ends with &, so the shell did not \
                 wait for what runs in the background"
            ),
            _ => return None,
        };
        let finding = JobFinding::new(text).caused_by(history.culprit());
        Some(finding.shown_by(&history.last_line()))
    };
    job.clients()
        .filter(|history| history.has_finished())
        .find_map(hidden)
}

/// For logs that do not show the end.
const IF_IT_RUNS: &str =
    "if it still runs, this shows where it waits: ipconf-check hosts | dgl-stacks --any";

const WHO_SENT_IT: &str =
    "find out who sent it: scancel, a batch system at its time limit, a terminal that closed";

/// Processes that exited with status 0 because of a SIGTERM, as their last lines state.
fn asked_to_end<'a>(
    job: &JobHistory,
    histories: impl Iterator<Item = &'a ProcessHistory>,
) -> Option<JobFinding> {
    let is_request = |line: &&LogLine| {
        let got = ["received", "receiving", "caught", "got"];
        // what a script will do if one comes, or that none came
        let announced = [
            "when",
            "whenever",
            "if",
            "once",
            "until",
            "upon",
            "unless",
            "will",
            "no",
            "not",
            "never",
            "nobody",
            "registered",
            "ignored",
            "ignoring",
        ];
        let text = line.text.to_lowercase();
        !line.while_ending
            && account::tells_of_term(&line.text)
            && words::has_any(&text, &got)
            && !words::has_any(&text, &announced)
    };
    let asked: Vec<(&ProcessHistory, &LogLine)> = histories
        .filter(|history| history.has_finished())
        .filter_map(|history| Some((history, history.evidence.last_lines().rfind(is_request)?)))
        .collect();
    let (first, line) = *asked.first()?;
    let asked: Vec<&ProcessHistory> = asked.iter().map(|(history, _)| *history).collect();
    let names = match asked[..] {
        [history] => job.process_name(history),
        _ => wait::names(&asked),
    };
    let line = first.output(line);
    let text = line.output.line.trim();
    let text = format!("{names} got SIGTERM and exited with status 0: {text}");
    let finding = JobFinding::new(text).fix(WHO_SENT_IT).shown_by([&line]);
    Some(match asked[..] {
        [history] => finding.caused_by(history.culprit()),
        _ => finding,
    })
}

/// The process's own text or that of `sh -c`.
fn shell_text(process: &Process) -> Option<&str> {
    let of_words = match process.argv.as_deref() {
        Some([shell, flag, text, ..]) if shell.ends_with("sh") && flag.ends_with('c') => Some(text),
        _ => None,
    };
    Some(process.shell.as_ref().or(of_words)?.trim())
}

fn servers(job: &JobHistory, failure: Option<&FirstFailure>) -> JobFinding {
    let mut text = "the graph servers that it used have ended".to_owned();
    if let Some(failure) = failure {
        let lost = if failure.error.is_some() {
            "lost: "
        } else {
            ""
        };
        let (host, how) = (job.host_name(failure.host), failure.words());
        text += &format!(", first on {host}: {lost}{how}");
    }
    JobFinding::new(text).fix(
        "the output and the log directory of the servers' dgl-spawn tell more; start them again",
    )
}

fn all_ended(job: &JobHistory, summary: &Summary) -> JobFinding {
    let count = term::count(job.processes.len() as u64, "process");
    let time = term::seconds(Duration::from_millis(summary.elapsed_ms));
    JobFinding::new(format!("{count}, {time}"))
}

/// An end from outside: `text`, `joint` and what the job waited for until then, or `otherwise` if
/// that is unknown.
fn until_then(job: &JobHistory, text: &str, joint: &str, otherwise: &str) -> JobFinding {
    match wait::until_the_end(job) {
        Some(waited) => waited.after(&format!("{text}{joint}")),
        None => JobFinding::new(format!("{text}{otherwise}")).shown_by(&last_line(job)),
    }
}

fn last_line(job: &JobHistory) -> Option<Quote> {
    job.last_client_line().map(|(_, line)| line)
}

fn interrupted(job: &JobHistory, summary: &Summary) -> JobFinding {
    let signal = SignalNumber(i32::from(summary.code) - 128);
    let text = format!("dgl-spawn got SIG{signal}");
    let mut finding = until_then(job, &text, "; until then ", "");
    // users know when they pressed Ctrl-C
    if signal != SignalNumber::INT {
        finding = finding.fix(WHO_SENT_IT);
    }
    finding
}

fn reaped(job: &JobHistory, failure: &FirstFailure) -> JobFinding {
    let reaped = job.clients().filter(|history| history.end().reaped);
    let finding = match reaped.count() {
        0 | 1 => failed(job, failure),
        count => JobFinding::new(format!("dgl-reap ended {count} processes")),
    };
    match wait::until_the_end(job) {
        Some(waited) => waited.after(&format!("{}; until then ", finding.text)),
        None => finding,
    }
}

/// The process that failed first, even if another one ended before it as a consequence.
fn failed(job: &JobHistory, failure: &FirstFailure) -> JobFinding {
    let finding = recorded_failure(job, failure);
    let Some(first) = failure.id.and_then(|id| job.history(id)) else {
        return finding;
    };
    let (end, error) = (&failure.end, failure.error.as_deref());
    let account = Account::of_end(first, end.signal.is_some());
    let is_cause = end.oom
        || end.reaped
        || end
            .signal
            .is_some_and(|signal| signal != SignalNumber::ABRT)
        || error.is_some_and(|error| !error.starts_with("raised "));
    let echo = match &account {
        _ if is_cause => Echo::None,
        Some(account) => account.echo,
        None => account::echo(error),
    };
    let statement = account.map(|account| account.statement);
    let began_ms = statement
        .map(|statement| statement.first.time_ms)
        .or(first.life.end_ms())
        .unwrap_or(u64::MAX);
    let cause = statement.map_or(&[][..], Statement::cause);
    let suspects: Vec<Suspect> = job
        .processes
        .iter()
        .filter(|history| history.process.id != first.process.id)
        .filter_map(|history| Suspect::new(job, history, first))
        .collect();
    if let Some(finding) = of_unknown_order(&suspects, echo, cause, &finding) {
        return finding;
    }
    let suspect = suspects
        .into_iter()
        .filter(|suspect| {
            let is_earlier = suspect.since_ms.saturating_add(SIMULTANEOUS_MS) < began_ms;
            echo != Echo::None || suspect.has_ended && is_earlier
        })
        .min_by_key(|suspect| (!suspect.has_ended, suspect.since_ms));
    let late = || (echo != Echo::None).then(|| Suspect::late(job, first))?;
    let suspect = suspect.or_else(late);
    let other = suspect.filter(|suspect| suspect.cause.is_empty() || suspect.cause != cause);
    match (echo, other) {
        (Echo::None, Some(suspect)) => suspect.finding(&format!("; after that {}", finding.text)),
        (_, Some(suspect)) => suspect.finding(&format!("{LED_TO}{}", finding.text)),
        (_, None) => alone(job, first, echo, cause, finding),
    }
}

/// A failure that no other process is known to have caused.
fn alone(
    job: &JobHistory,
    first: &ProcessHistory,
    echo: Echo,
    cause: &[String],
    finding: JobFinding,
) -> JobFinding {
    if first.logs.is_some()
        && let Some(address) = unreached(cause)
    {
        return finding.after(&format!("{address} was not reached: "));
    }
    if echo != Echo::Peer || first.logs.is_none() && job.clients().count() < 2 {
        return finding;
    }
    named_peer(job, &finding)
        .or_else(|| missing_peer(job, first, &finding))
        .unwrap_or_else(|| JobFinding {
            text: format!(
                "{}, which only says that another process did not answer; {} do not show which",
                finding.text,
                job.source()
            ),
            culprit: None,
            ..finding
        })
}

/// If several processes failed by themselves, for different reasons and at unknown times, none is
/// to blame.
fn of_unknown_order(
    suspects: &[Suspect<'_>],
    echo: Echo,
    cause: &[String],
    finding: &JobFinding,
) -> Option<JobFinding> {
    const NAMED: usize = 3;
    let mut causes = BTreeSet::from_iter((echo == Echo::None).then_some(cause.first()));
    let mut texts = Vec::from_iter((echo == Echo::None).then_some(finding.text.as_str()));
    for suspect in suspects.iter().filter(|suspect| suspect.since_ms == 0) {
        if causes.insert(suspect.cause.first()) || suspect.cause.is_empty() {
            texts.push(&suspect.text);
        }
    }
    let more = texts.len().saturating_sub(NAMED);
    let text = texts[..texts.len() - more].join("; ");
    let more = if more > 0 {
        format!("; {more} more failed")
    } else {
        String::new()
    };
    (texts.len() > 1).then(|| JobFinding {
        text: format!("{text}{more}; which of them was first is unknown"),
        culprit: None,
        ..finding.clone()
    })
}

/// The order of failures within this time is unknown.
const SIMULTANEOUS_MS: u64 = 50;
/// How much later the end of a process may arrive than one that it caused.
const SOON_MS: u64 = 1000;

struct Suspect<'a> {
    process: &'a ProcessHistory,
    text: String,
    shown: Option<Quote>,
    cause: &'a [String],
    since_ms: u64,
    has_ended: bool,
}

impl<'a> Suspect<'a> {
    /// A process that wrote about its own failure, or died of a signal that the tools did not send.
    fn new(
        job: &JobHistory,
        history: &'a ProcessHistory,
        first: &ProcessHistory,
    ) -> Option<Suspect<'a>> {
        let end = history.end();
        let has_died = match end.signal {
            Some(SignalNumber::KILL) => end.oom || !was_killed_by_host(history, first),
            signal => signal.is_some_and(is_own_signal),
        };
        if has_died {
            let is_kill = end.signal == Some(SignalNumber::KILL) && !end.oom;
            if let Some(raised) = raised_at_end(history).filter(|_| is_kill) {
                return Some(Suspect::by_account(job, &raised, true));
            }
            let reaped = false;
            return Suspect::by_end(
                job,
                history,
                &format!("was {}", ProcessEnd { reaped, ..end }),
            );
        }
        // a process that is asked to end may answer with a status
        let exited = history.life.exited.as_ref();
        let is_asked = exited.is_some_and(|exited| exited.while_ending);
        let has_ended = end.code.is_some_and(|code| code != 0) && !is_asked
            || end.signal == Some(SignalNumber::ABRT);
        let account = if has_ended {
            Account::of_end(history, end.signal.is_some())
        } else {
            Account::of_raised(history)
                .filter(|_| wait::has_failed(job, history))
                .or_else(|| Account::of_fatal(history))
        };
        let account = account.filter(|account| account.echo == Echo::None)?;
        Some(Suspect::by_account(job, &account, has_ended))
    }

    fn by_account(job: &JobHistory, account: &Account<'a>, has_ended: bool) -> Suspect<'a> {
        Suspect {
            process: account.process,
            text: job.process_name(account.process) + &account.words(),
            shown: Some(account.process.output(&account.statement.named)),
            cause: account.statement.cause(),
            since_ms: account.statement.first.time_ms,
            has_ended,
        }
    }

    fn by_end(job: &JobHistory, history: &'a ProcessHistory, what: &str) -> Option<Suspect<'a>> {
        Some(Suspect {
            process: history,
            text: format!("{} {what}", job.process_name(history)),
            shown: history.last_line(),
            cause: &[],
            since_ms: history.life.end_ms().unwrap_or(0),
            has_ended: true,
        })
    }

    /// The only process that failed by itself while the job ended, shortly after `first`, which
    /// only noticed another process's end: ends on several hosts may arrive in another order than
    /// they happened. On the host of `first`, that process must have been exchanging data: a
    /// process closes its connections before its end can be seen. If there are several, the end of
    /// the job may have caused them.
    fn late(job: &'a JobHistory, first: &ProcessHistory) -> Option<Suspect<'a>> {
        let statements = first.evidence.statements();
        let exchanged = statements.iter().any(|statement| statement.exchanges);
        let others = job.processes.iter().filter(|history| {
            // a shell reports with a greater status that a signal ended its command
            let has_failed = history
                .end()
                .code
                .is_some_and(|code| (1..=128).contains(&code));
            let may_be_first = exchanged || history.process.host != first.process.host;
            history.process.id != first.process.id
                && may_be_first
                && has_failed
                && ended_soon(history, first)
        });
        let accounts: Vec<Account> = others.clone().filter_map(Account::of_late_end).collect();
        match &accounts[..] {
            [] => {}
            [account] => return Some(Suspect::by_account(job, account, true)),
            _ => return None,
        }
        let quiet: Vec<&ProcessHistory> = others
            .filter(|history| history.evidence.statements().is_empty())
            .collect();
        // of two processes, one may have caught the signal that ended it
        match quiet[..] {
            [history] if job.clients().count() > 2 => Suspect::by_end(
                job,
                history,
                &format!("{}, without a message", history.end()),
            ),
            _ => None,
        }
    }

    fn finding(self, what_followed: &str) -> JobFinding {
        JobFinding::new(self.text + what_followed)
            .since(self.since_ms)
            .caused_by(self.process.culprit())
            .shown_by(&self.shown)
            .shown_by(self.process.exit_record())
    }
}

/// Whether KILL ended a process because its host ended the job. dgl-spawn sends TERM first, so by
/// records that do not say it, an early KILL was somebody else's.
fn was_killed_by_host(history: &ProcessHistory, first: &ProcessHistory) -> bool {
    let otherwise = || !ended_soon(history, first);
    history.kill_sent().unwrap_or_else(otherwise)
}

/// Whether a process ended before the first failure, or soon after it.
fn ended_soon(history: &ProcessHistory, first: &ProcessHistory) -> bool {
    match history.life.end_ms().zip(first.life.end_ms()) {
        Some((end_ms, first_ms)) => end_ms <= first_ms.saturating_add(SOON_MS),
        None => history
            .life
            .exited
            .as_ref()
            .is_some_and(|exited| !exited.while_ending),
    }
}

/// What torch's messages have about other processes.
struct PeerForms {
    /// `The client socket has timed out after 60s while trying to connect to (10.0.0.1, 29500)`,
    /// `Connect to 10.0.0.4<56849> returned 113(No route to host)`
    unreached: Regex,
    /// `[Rank 0]: Ranks 2 failed to pass monitoredBarrier in 5000 ms`
    late: Regex,
    /// `Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=0, OpType=ALLREDUCE, …`
    running: Regex,
    /// `[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE,
    /// …`; the rank is that within a group.
    gave_up: Regex,
    /// Of torch's RPC: `Followers ['worker1', 'worker3'] timed out in _all_gather`.
    followers: Regex,
}

static PEER_FORMS: LazyLock<Option<PeerForms>> = LazyLock::new(|| PeerForms::new().ok());

impl PeerForms {
    fn new() -> Result<PeerForms, regex::Error> {
        Ok(PeerForms {
            unreached: Regex::new(concat!(
                r"has timed out.*?trying to connect to \(([^<, ]*)",
                r"|onnect to ([^<, ]*).*(?:No route to host|Network is unreachable)"
            ))?,
            late: Regex::new(r"Ranks? *([0-9]+) failed to pass monitoredBarrier")?,
            running: Regex::new(
                r"Rank ([0-9]+) is running collective: (.*?)(?:, TensorDtypes|\)|$)",
            )?,
            gave_up: Regex::new(
                r"\[Rank ([0-9]+)\] Watchdog caught collective operation timeout: ([^,]*,[^,]*)",
            )?,
            followers: Regex::new(r"Followers \[(.*?)\] timed out")?,
        })
    }
}

/// The address of another host that a process could not connect to.
fn unreached(cause: &[String]) -> Option<&str> {
    let form = &PEER_FORMS.as_ref()?.unreached;
    let words = cause.iter().find_map(|line| form.captures(line))?;
    let address = words.get(1).or(words.get(2))?.as_str();
    let is_local = address.starts_with("127.") || address == "::1";
    (!is_local && address.contains(['.', ':'])).then_some(address)
}

const DEVIATES: &str = "does something else than the others";

/// The process that the messages name as deviating from the others.
fn named_peer(job: &JobHistory, finding: &JobFinding) -> Option<JobFinding> {
    let forms = PEER_FORMS.as_ref()?;
    let (mut late, mut running, mut gave_up) = (None, BTreeMap::new(), BTreeMap::new());
    for history in job.clients() {
        let statements = history.evidence.statements();
        let mut repeated = statements.iter().copied().filter_map(account::failed_ranks);
        if let Some(rank) = repeated.next().and_then(|ranks| ranks.first().copied()) {
            late = late.or(Some((rank, "failed, and the others repeat why")));
        }
        for line in statements.into_iter().flat_map(Statement::lines) {
            if let Some(missing) = missing_followers(line) {
                return Some(finding.clone().after(&format!("{missing}: ")));
            }
            let rank = |rank: &str| rank.parse::<u32>().ok();
            late = late.or_else(|| Some((rank(&forms.late.captures(line)?[1])?, DEVIATES)));
            for words in forms.running.captures_iter(line) {
                running.extend(rank(&words[1]).map(|rank| (rank, words[2].to_owned())));
            }
            if let Some(words) = forms.gave_up.captures(line) {
                let own = Some(history.process.rank).filter(|rank| *rank < UNKNOWN_RANK);
                let rank = own.or(rank(&words[1]))?;
                gave_up.entry(rank).or_insert(words[2].to_owned());
            }
        }
    }
    running.extend(gave_up);
    let (common, count) = majority::most_frequent(running.values().cloned()).unwrap_or_default();
    let odd: Vec<u32> = running
        .iter()
        .filter(|(_, what)| count > 1 && **what != common)
        .map(|(rank, _)| *rank)
        .collect();
    let ranks = job.clients().map(|history| history.process.rank);
    let last = ranks
        .filter(|rank| *rank < UNKNOWN_RANK)
        .chain(running.keys().copied())
        .max()
        .unwrap_or(0);
    let silent: Vec<u32> = (0..last)
        .filter(|rank| !running.contains_key(rank))
        .take(2)
        .collect();
    let (rank, how) = match (late, &odd[..], &silent[..]) {
        (Some(named), ..) => named,
        (None, [rank], _) => (*rank, DEVIATES),
        (None, [], [rank]) if running.len() > 2 => (
            *rank,
            "alone does not report the operation that the others gave up",
        ),
        _ => return None,
    };
    let named = job.clients().find(|history| history.process.rank == rank);
    // a log may have no line of it
    let in_log = || job.is_from_logs().then(|| format!("rank {rank}"));
    let name = named.map(|named| job.process_name(named)).or_else(in_log)?;
    let text = format!("{name} {how}: {}", finding.text);
    Some(JobFinding {
        text,
        culprit: named.map(ProcessHistory::culprit),
        ..finding.clone()
    })
}

/// The processes that torch's RPC missed, if a line names them.
fn missing_followers(line: &str) -> Option<String> {
    let words = PEER_FORMS.as_ref()?.followers.captures(line)?;
    let (_, [names]) = words.extract();
    let is_digit = |c: char| c.is_ascii_digit();
    let names: Vec<&str> = names
        .split(", ")
        .map(|name| name.trim_matches('\''))
        .collect();
    let (roles, numbers): (Vec<&str>, Vec<&str>) = names
        .iter()
        .map(|name| name.split_at(name.trim_end_matches(is_digit).len()))
        .unzip();
    let (first, others) = roles.split_first()?;
    let role = first.trim_end_matches(['-', '_']);
    let role = role.rsplit(|c: char| !c.is_alphabetic()).next()?;
    // scripts choose these names
    let is_numbered = !role.is_empty()
        && others.iter().all(|other| other == first)
        && numbers.iter().all(|number| !number.is_empty());
    if !is_numbered {
        return Some(format!("{} did not answer", names.join(" and ")));
    }
    let plural = if numbers.len() > 1 { "s" } else { "" };
    Some(format!(
        "{role}{plural} {} did not answer",
        numbers.join(" and ")
    ))
}

/// For a process that lost its connections to others, which had finished. If at most half continue,
/// it is unknown which were expected to, so no other process is to blame.
fn most_had_ended(
    job: &JobHistory,
    ended: &[&ProcessHistory],
    finding: &JobFinding,
) -> Option<JobFinding> {
    let names = match ended {
        [history] => job.process_name(history),
        _ => wait::names(ended),
    };
    let are_most = ended.len() * 2 >= job.clients().count();
    are_most.then(|| JobFinding {
        text: format!("{}; {names} had ended with status 0 before", finding.text),
        ..finding.clone()
    })
}

/// The process that another one misses, if the records show it.
fn missing_peer(
    job: &JobHistory,
    first: &ProcessHistory,
    finding: &JobFinding,
) -> Option<JobFinding> {
    // without all starts and ends, a silent process may only have been ended before it noticed
    // anything
    first.life.started.as_ref()?;
    let text = &finding.text;
    let others = || {
        job.clients()
            .filter(|history| history.process.id != first.process.id)
    };
    let left: Vec<&ProcessHistory> = others()
        .filter(|history| history.has_finished() && history.life.end_ms() <= first.life.end_ms())
        .collect();
    if let Some(asked) = asked_to_end(job, left.iter().copied()) {
        return Some(asked.followed_by(&format!("{LED_TO}{text}")));
    }
    if let Some(finding) = most_had_ended(job, &left, finding) {
        return Some(finding);
    }
    let silent: Vec<&ProcessHistory> = others()
        .filter(|history| {
            let mut statements = history.evidence.statements().into_iter();
            statements.all(account::is_own)
        })
        .collect();
    let on_named_host: Vec<&ProcessHistory> = silent
        .iter()
        .copied()
        .filter(|history| {
            let ip = history.process.ip.to_string();
            let addresses = [format!("[{ip}]"), format!(" {ip}<"), format!("({ip}:")];
            addresses.iter().any(|address| text.contains(address))
        })
        .collect();
    let is_start = [
        "client socket",
        "clients joined",
        "onnection refused",
        "connectFullMesh",
    ]
    .iter()
    .any(|words| text.contains(words));
    let (missed, how) = match (&left[..], &on_named_host[..], &silent[..]) {
        ([history, ..], ..) => (*history, "ended with status 0 while others still needed it"),
        _ if is_start => return None,
        ([], [history], _) => (*history, "has closed its connections or does not answer"),
        ([], [], [history]) => (*history, "does not answer the others"),
        _ => return None,
    };
    let name = job.process_name(missed);
    let last = missed.last_line();
    let wrote = last.as_ref().map_or(String::new(), |line| {
        format!(" (its last line: {})", line.output.line.trim())
    });
    let last_ms = last.as_ref().map(|line| line.output.time_ms);
    Some(
        JobFinding::new(format!("{name} {how}{wrote}: {text}"))
            .since(missed.life.end_ms().or(last_ms))
            .caused_by(missed.culprit())
            .shown_by(&last)
            .shown_by(missed.exit_record()),
    )
}

fn recorded_failure(job: &JobHistory, failure: &FirstFailure) -> JobFinding {
    match failure.id.and_then(|id| job.history(id)) {
        Some(history) => process_failure(job, history, failure),
        None => host_failure(job, failure),
    }
}

const LOST_HOST: &str =
    "check that the host is up; if it stays down, host-swap puts a spare host in its place";

fn host_failure(job: &JobHistory, failure: &FirstFailure) -> JobFinding {
    let host = job.host_name(failure.host);
    let summary = job.summary.as_ref();
    let is_lost = summary.is_some_and(|summary| summary.cause.as_deref() == Some("host"));
    let text = match &failure.error {
        Some(error) if is_lost => format!("{host} was lost: {error}"),
        None if is_lost => format!("{host} failed; the records do not say how"),
        _ => format!(
            "a process on {host} {}; {} do not show which",
            failure.words(),
            job.source()
        ),
    };
    let of_host = (job.processes.iter()).filter(|history| history.process.host == failure.host);
    let last = of_host
        .filter_map(|history| history.last_line())
        .max_by_key(|line| line.output.time_ms);
    let finding = JobFinding::new(text)
        .caused_by(Culprit::of_host(failure.host))
        .since(last.as_ref().map(|line| line.output.time_ms))
        .shown_by(&last);
    if is_lost {
        finding.fix(LOST_HOST)
    } else {
        finding
    }
}

fn process_failure(
    job: &JobHistory,
    history: &ProcessHistory,
    failure: &FirstFailure,
) -> JobFinding {
    let name = job.process_name(history);
    let mut finding = match (&failure.error, failure.end.signal) {
        (Some(error), _) => {
            let raised = Account::of_end(history, false).filter(|_| error.starts_with("raised "));
            let text = match raised {
                Some(raised) => format!("{name}{} and did not end", raised.words()),
                None => format!("{name} {error}"),
            };
            JobFinding::new(text).shown_by(&history.last_line())
        }
        (None, _) if failure.end.reaped => JobFinding::new(format!("{name} was ended by dgl-reap")),
        (None, _) if failure.end.oom => out_of_memory(job, history, failure.end.signal.is_none()),
        (None, Some(SignalNumber::KILL)) => killed(history, &name),
        (None, Some(SignalNumber::BUS)) => bus_error(job, history),
        (None, Some(signal)) => ended_by(history, signal, &name),
        (None, None) => exited_with_status(history, failure, &name),
    };
    let started = history.life.started.as_ref();
    finding.since_ms = (finding.since_ms)
        .or(history.life.end_ms())
        .or(started.map(|started| started.time_ms));
    finding
        .caused_by(history.culprit())
        .shown_by(history.exit_record())
}

fn killed(history: &ProcessHistory, name: &str) -> JobFinding {
    if let Some(raised) = raised_at_end(history) {
        let text = format!("{name}{}; after that SIGKILL ended it", raised.words());
        return JobFinding::new(text).shown_by([&history.output(&raised.statement.named)]);
    }
    let text = format!("{name} was ended by SIGKILL");
    if history.life.started.is_none() || history.kill_sent() == Some(true) {
        return JobFinding::new(text).shown_by(&history.end_line());
    }
    JobFinding::new(
        text + "; dgl-spawn did not send it, and the kernel counted no kill for lack of memory",
    )
}

/// What a process or its child raised right before SIGKILL ended it: a launcher within the process
/// may have done that because its child had failed.
fn raised_at_end(history: &ProcessHistory) -> Option<Account<'_>> {
    let raised = Account::of_end(history, true).filter(|account| account.statement.is_raised())?;
    if history.logs.is_some() {
        // a rank that writes nothing more may have survived it
        let is_last =
            history.evidence.is_mixed() && !history.evidence.continued_after(raised.statement);
        return (raised.echo == Echo::None && is_last).then_some(raised);
    }
    let last_ms = raised.statement.last.time_ms;
    let until_ms = last_ms.saturating_add(account::BEFORE_MS);
    (history.life.end_ms()? <= until_ms).then_some(raised)
}

/// By a signal that the process caused.
fn ended_by(history: &ProcessHistory, signal: SignalNumber, name: &str) -> JobFinding {
    let (line, frames) = history.evidence.stacks().into_iter().next().unzip();
    let mut text = format!("{name} was ended by SIG{signal}");
    if let Some(frame) = frames.and_then(|frames| frames.first()) {
        text += &format!(" in {frame}");
        let own = frames
            .and_then(stacks::own_frame)
            .filter(|own| own != frame);
        text += &own.map_or(String::new(), |own| format!(", called from {own}"));
    }
    let account = Account::of_end(history, true);
    let is_told = |account: &Account| account.statement.cause() != ["Fatal Python error: Aborted"];
    if let Some(account) = account.as_ref().filter(|account| is_told(account)) {
        text += &format!("; it{}", account.words());
    }
    let named = account.map(|account| history.output(&account.statement.named));
    let line = line.map(|line| history.output(line));
    JobFinding::new(text).shown_by(&named).shown_by(&line)
}

fn exited_with_status(history: &ProcessHistory, failure: &FirstFailure, name: &str) -> JobFinding {
    let status = match failure.end.code {
        None if history.logs.is_some() => String::new(),
        code => format!(" exited with status {}", code.unwrap_or(1)),
    };
    let account = Account::of_end(history, false);
    if let Some(account) = account.as_ref() {
        let end_ms = history.life.end_ms().unwrap_or(u64::MAX);
        let text = if account.statement.is_raised() || status.is_empty() {
            format!("{name}{}", account.words())
        } else {
            format!("{name}{status}; it{}", account.words())
        };
        return JobFinding::new(text)
            .since(account.statement.named.time_ms.min(end_ms))
            .shown_by([&history.output(&account.statement.named)]);
    }
    let lines = account::last_words(&history.evidence);
    let texts: Vec<String> = lines
        .iter()
        .map(|line| line.text.trim().to_owned())
        .collect();
    let mut wrote = match texts.as_slice() {
        [] if history.logs.is_some() => "no line of the log is known to be its own".to_owned(),
        [] => "it wrote no output".to_owned(),
        lines if history.evidence.is_mixed() => {
            format!("the last lines of the log: {}", account::quoted(lines))
        }
        [line] => format!(
            "its last line: {}",
            account::quoted(std::slice::from_ref(line))
        ),
        lines => format!("its last lines: {}", account::quoted(lines)),
    };
    let logged = history
        .evidence
        .last_statement(|statement| statement.kind == StatementKind::Logged);
    if let Some(logged) = logged.map(|statement| account::quoted(statement.cause()))
        && !wrote.contains(&logged)
    {
        wrote += &format!("; before that: {logged}");
    }
    JobFinding::new(format!("{name}{status}; {wrote}")).shown_by(&history.last_words())
}

/// The kernel killed the process, or a program that it ran (`is_child`).
fn out_of_memory(job: &JobHistory, history: &ProcessHistory, is_child: bool) -> JobFinding {
    let host = job.host(history.process.host);
    let used = |history: &ProcessHistory| history.life.exited.as_ref()?.max_rss_bytes;
    let together = (job.processes.iter())
        .filter(|other| other.process.host == history.process.host)
        .filter_map(used)
        .fold(0, u64::saturating_add);
    let name = job.process_name(history);
    let who = if is_child {
        format!("what {name} ran")
    } else {
        name
    };
    let mut text = format!("{who} was killed by the kernel because memory ran out");
    if history.logs.is_some() {
        // only accounts of control groups report it
        text += ": it had reached the limit of a container or of a batch job";
    }
    if let Some(used) = used(history) {
        text += &format!("; it had at most {}", bytes(used));
    }
    if let Some(all) = host.and_then(|host| host.facts.mem_bytes) {
        text += &format!(", its host has {}", bytes(all));
        if together > 0 && together < all / 2 {
            text += ": so it was the limit of a container or of a batch job, not of the host";
        }
    }
    JobFinding::new(text).shown_by(host)
}

/// A process gets SIGBUS when it writes to a page of /dev/shm for which there is no space.
fn bus_error(job: &JobHistory, history: &ProcessHistory) -> JobFinding {
    let host = job.host(history.process.host);
    let name = job.process_name(history);
    let mut text = format!("{name} was ended by SIGBUS, as by a /dev/shm that is full");
    if let Some(room) = host.and_then(|host| host.facts.shm_free_bytes) {
        text += &format!("; {} were free before the start", bytes(room));
    }
    if let Some(partition) = skew::partitions(job).get(&history.process.host) {
        let size = bytes(*partition);
        text += &format!(", and the files of its partition have {size}");
    }
    JobFinding::new(text)
        .shown_by(host)
        .shown_by(&history.last_line())
}

/// The process that failed first, by itself, before the end of the job.
fn failed_process(job: &JobHistory) -> Option<FirstFailure> {
    let (_, exited) = job
        .processes
        .iter()
        .filter_map(|history| {
            let exited = history.life.exited.as_ref()?;
            let has_failed = !exited.while_ending && !exited.end.is_complete();
            has_failed.then_some((history, exited))
        })
        .min_by_key(|(history, _)| history.life.end_ms())?;
    Some(FirstFailure {
        host: exited.host,
        id: Some(exited.id),
        end: exited.end,
        ..FirstFailure::default()
    })
}

/// For records that break off before the end of the job.
fn unfinished(job: &JobHistory) -> (RunOutcome, JobFinding) {
    if let Some(failure) = failed_process(job) {
        let outcome = if failure.end.reaped {
            RunOutcome::Interrupted
        } else {
            RunOutcome::Failed
        };
        return (outcome, failed(job, &failure));
    }
    if let Some(ended_by) = &job.ended_by {
        let (outcome, joint) = if ended_by.is_request {
            (RunOutcome::Interrupted, "; until then ")
        } else {
            (RunOutcome::Failed, ": ")
        };
        return (outcome, until_then(job, &ended_by.text, joint, ""));
    }
    if job.is_from_logs() {
        return (RunOutcome::Unknown, unexplained(job));
    }
    if job.attempts.is_empty() && !job.profiles.is_empty() {
        return (RunOutcome::Runs, profiled(job));
    }
    if job.attempts.is_empty() && job.is_seen {
        return match wait::awaited(job) {
            Some(finding) => (RunOutcome::Waits, finding),
            None => (RunOutcome::Runs, seen(job)),
        };
    }
    if let Some(asked) = job.asked.as_ref().filter(|_| job.processes.is_empty()) {
        return (RunOutcome::NotFound, first_fault(asked, NO_PROCESS));
    }
    if job.attempts.is_empty() && job.is_being_written {
        let text = "dgl-spawn has not started its processes yet";
        let fix = "it is checking the hosts, or waiting for another job (--wait): see its messages";
        return (RunOutcome::Runs, JobFinding::new(text).fix(fix));
    }
    if job.attempts.is_empty() {
        let text = "the records have no process that was started";
        return (RunOutcome::NotStarted, JobFinding::new(text));
    }
    let waits = wait::awaited(job).or_else(|| wait::start(job));
    match waits.or_else(|| wait::silence(job)) {
        Some(finding) => (RunOutcome::Waits, finding),
        None if job.is_being_written => (RunOutcome::Runs, running(job)),
        None => (RunOutcome::Unknown, running(job)),
    }
}

/// For logs without anything about an end.
fn unexplained(job: &JobHistory) -> JobFinding {
    let all = job.processes.iter();
    let with_most = all.max_by_key(|history| history.evidence.count);
    let last = with_most.map(ProcessHistory::last_words);
    let mut text = "its logs show neither how nor why; the last lines are below".to_owned();
    // a job that still runs may end its log so, too
    let logged = |history: &ProcessHistory| {
        let last = history
            .evidence
            .last_statement(|one| one.kind == StatementKind::Logged)?;
        let is_last = !history.evidence.continued_after(last);
        is_last.then(|| {
            let (name, error) = (job.process_name(history), account::quoted(last.cause()));
            let missing = last.lines().find_map(missing_followers);
            let missing = missing.map(|missing| missing + "; ");
            format!(
                "{}its logs do not show the end; the last line of {name} is an error: {error}",
                missing.unwrap_or_default()
            )
        })
    };
    if let Some(logged) = job.processes.iter().find_map(logged) {
        text = logged;
    }
    let raised = |history: &ProcessHistory| {
        let last = history.evidence.last_statement(Statement::is_raised)?;
        Some(account::quoted(last.cause()))
    };
    if let Some(raised) = job.processes.iter().find_map(raised) {
        text += &format!("; it had gone on after {raised}");
    }
    JobFinding::new(text).shown_by(&last.unwrap_or_default())
}

/// For a job that dgl-stacks has found.
fn seen(job: &JobHistory) -> JobFinding {
    let count = term::count(job.processes.len() as u64, "process");
    JobFinding::new(format!(
        "{count}; what dgl-stacks saw of them does not show that they wait for one"
    ))
}

/// For the records of `dgl-stacks --record`.
fn profiled(job: &JobHistory) -> JobFinding {
    let longest = job.profiles.iter().map(|profile| profile.elapsed_ms).max();
    JobFinding::new(format!(
        "{} were recorded for {}",
        term::count(job.profiles.len() as u64, "Python"),
        term::seconds(Duration::from_millis(longest.unwrap_or(0)))
    ))
}

/// For records without an end, of a job that shows no problem.
fn running(job: &JobHistory) -> JobFinding {
    let alive = job
        .processes
        .iter()
        .filter(|history| history.has_stayed())
        .count();
    let began = job.began_ms().unwrap_or(job.latest_ms);
    let age = term::seconds(Duration::from_millis(job.latest_ms.saturating_sub(began)));
    let processes = term::count(alive as u64, "process");
    let (text, fix) = match alive {
        0 => (
            format!("all processes have ended, {age} after the start; the end was not noted"),
            None,
        ),
        _ if job.is_being_written => (
            format!("{processes}; the last record is {age} after the start"),
            Some("if it has been silent since, this shows where it waits"),
        ),
        // dgl-spawn may run all the same: its stdout is not locked, and a copy never is
        _ => (
            format!("the records break off {age} after the start, before the end of {processes}"),
            Some(
                "if dgl-spawn no longer runs, it was killed or could not write its records; if it \
                 runs, this shows where the job waits",
            ),
        ),
    };
    let mut finding = JobFinding::new(text).shown_by(&last_line(job));
    const COMMAND: &str = "ipconf-check ip_config.txt | dgl-stacks --job NAME";
    finding.fix = fix.map(|fix| format!("{fix}: {COMMAND}"));
    finding
}

fn other_findings(job: &JobHistory, cause: &JobFinding) -> Vec<JobFinding> {
    let mut findings = Vec::from_iter(nccl::gave_up(job));
    if job.attempts.len() > 1 {
        let failed = job
            .earlier
            .iter()
            .filter_map(|life| life.exited.as_ref())
            .filter(|exited| !exited.while_ending && !exited.end.is_success());
        let text = format!("this was attempt {} of the job", job.attempts.len());
        findings.push(JobFinding::new(text).shown_by(failed.take(3)));
    }
    let culprit = cause.culprit.as_ref().and_then(|culprit| culprit.id);
    // once a culprit is known, a lost connection tells nothing
    let is_news = |account: &Account| culprit.is_none() || account.echo != Echo::Peer;
    let is_other = |history: &ProcessHistory| {
        let exited = history.life.exited.as_ref();
        let has_ended_well = exited.is_some_and(|exited| exited.end.is_success());
        culprit != Some(history.process.id) && !has_ended_well
    };
    if let Some(raised) = account::first_raised(job, is_other).filter(is_news) {
        let history = raised.process;
        let text = format!("{}{}", job.process_name(history), raised.words());
        findings.push(
            JobFinding::new(text)
                .since(raised.statement.named.time_ms)
                .caused_by(history.culprit())
                .shown_by([&history.output(&raised.statement.named)]),
        );
    }
    if job.unrecorded > 0 {
        let count = term::count(job.unrecorded as u64, "process record");
        let verb = if job.unrecorded == 1 { "is" } else { "are" };
        let text = format!("{count} {verb} missing in the records");
        findings.push(JobFinding::new(text));
    }
    let lines = job
        .dropped
        .iter()
        .map(|dropped| dropped.lines)
        .fold(0, u64::saturating_add);
    if lines > 0 {
        let count = term::count(lines, "line");
        let text = format!("{count} of output are missing in the records");
        findings.push(JobFinding::new(text).shown_by(&job.dropped));
    }
    findings
}
