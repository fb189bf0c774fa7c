//! Words what the dumps show.

use super::dump::Operation;
use super::waits::{self, Dumps, Programs, Wait};
use crate::findings::{Finding, Outcome, Verdict};
use crate::job::Job;
use record::stacks::Comparison;
use record::{Culprit, Role, cpus, term};
use std::collections::BTreeSet;

/// What torch appends to the name of each program's dumps, as dgl-env sets it: the rest is the name
/// of a program.
const SUFFIX: &str = "_nccl_trace_rank_";
/// More findings than these are read by nobody.
const MAX_CAUSES: usize = 3;

/// The verdict from dumps alone, without the records of the run.
pub fn verdict(programs: &Programs) -> Verdict {
    let mut findings = findings(programs, &Job::default());
    let outcome = match findings.is_empty() {
        false => Outcome::Waits,
        true => Outcome::Runs,
    };
    if findings.is_empty() {
        findings = completed(programs);
    }
    Verdict {
        outcome,
        cause: findings.remove(0),
        others: findings,
        began_ms: None,
        comparison: Comparison::default(),
    }
}

/// Adds what the dumps show to the verdict on a run, before all else that is beside the cause.
pub fn add(verdict: &mut Verdict, programs: &Programs, job: &Job) {
    let mut findings = findings(programs, job);
    if findings.is_empty() {
        findings = completed(programs);
    }
    verdict.others.splice(0..0, findings);
}

/// The finding that nothing waits, and the ranks of which nothing is known.
fn completed(programs: &Programs) -> Vec<Finding> {
    let count: usize = programs.values().map(Dumps::len).sum();
    let count = term::count(count as u64, "rank");
    let mut all = vec![Finding::new(format!(
        "in the dumps of {count} nothing waits"
    ))];
    for dumps in programs.values() {
        let named = dumps.values().flat_map(|dump| dump.groups.values());
        let missing: BTreeSet<u32> = named.flatten().copied().collect();
        let missing: Vec<u32> = missing
            .into_iter()
            .filter(|rank| !dumps.contains_key(rank))
            .collect();
        if !missing.is_empty() {
            all.push(Finding::new(format!(
                "there is no dump of {}",
                ranks(missing)
            )));
        }
    }
    all
}

fn findings(programs: &Programs, job: &Job) -> Vec<Finding> {
    let mut all = Vec::new();
    for (prefix, dumps) in programs {
        let program = prefix.strip_suffix(SUFFIX);
        let names = Names { job, program };
        let (causes, mut others) = waits::find(dumps);
        let mut causes = causes.into_iter();
        let first: Vec<Finding> = causes
            .by_ref()
            .take(MAX_CAUSES)
            .map(|wait| finding(&wait, dumps, &names))
            .collect();
        all.extend(first);
        others.splice(0..0, causes);
        if let Some(one) = others.first() {
            let mut text = format!("{} in {}", waiting(one), one.operation.words());
            if !one.culprits().is_empty() {
                text += &format!(" for {}", ranks(one.culprits()));
            }
            if others.len() > 1 {
                text += &format!("; {} more operations wait in consequence", others.len() - 1);
            }
            all.push(Finding::new(text));
        }
    }
    all
}

/// Names ranks as the records of the run do.
struct Names<'a> {
    job: &'a Job,
    program: Option<&'a str>,
}

impl Names<'_> {
    /// The process of a rank, which under torchrun has several.
    fn culprit(&self, rank: u32) -> Option<Culprit> {
        let is_of_program = |role: &Role| match (role, self.program) {
            (Role::Server, _) => false,
            (Role::Program(_), program) => program == Some(role.name()),
            (_, program) => program.is_none(),
        };
        let mut of_program =
            (self.job.processes.iter()).filter(|one| is_of_program(&one.process.role));
        let is_rank = |process: &record::Process| {
            let count = process.nproc.unwrap_or(1).max(1);
            process.rank == rank / count
        };
        let one = of_program.find(|one| is_rank(&one.process))?;
        Some(one.culprit())
    }

    /// Ranks in words, with the host of each if they are few.
    fn words(&self, all: &BTreeSet<u32>) -> String {
        let locations = all
            .iter()
            .filter_map(|rank| Some(self.job.name(&self.culprit(*rank)?)));
        let locations: Vec<String> = locations.take(MAX_CAUSES + 1).collect();
        let words = match self.program {
            Some(program) => format!("{} of {program}", ranks(all.iter().copied())),
            None => ranks(all.iter().copied()),
        };
        match locations.len() {
            0 => words,
            few if few <= MAX_CAUSES => format!("{words} ({})", locations.join(", ")),
            _ => words,
        }
    }
}

/// Ranks in words: `rank 1`, `ranks 0-2, 5 and 7`.
fn ranks(all: impl IntoIterator<Item = u32>) -> String {
    let runs = cpus::list(all).replace(',', ", ");
    match runs.rsplit_once(", ") {
        Some((rest, last)) => format!("ranks {rest} and {last}"),
        None if runs.contains('-') => format!("ranks {runs}"),
        None => format!("rank {runs}"),
    }
}

/// `ranks 0 and 2 wait`
fn waiting(wait: &Wait) -> String {
    let verb = if wait.waiting.len() == 1 {
        "waits"
    } else {
        "wait"
    };
    format!("{} {verb}", ranks(wait.waiting.keys().copied()))
}

/// The finding about an operation that waits.
fn finding(wait: &Wait, dumps: &Dumps, names: &Names) -> Finding {
    let last = last_of_absent(wait, dumps);
    let (mut text, fix) = sentence(wait, last, names);
    if !wait.unknown.is_empty() {
        let unknown = ranks(wait.unknown.iter().copied());
        let group = &wait.operation.group_words;
        text += &format!("; {unknown} overwrote what was noted of {group}");
    }
    let mut finding = Finding::new(text).fix(fix);
    if let [rank] = wait.culprits()[..] {
        finding.culprit = names.culprit(rank);
    }
    let shown = wait.waiting.iter().next().map(|(rank, one)| (rank, *one));
    let shown = shown.into_iter().chain(wait.absent.first().zip(last));
    let evidence = shown.filter_map(|(rank, one)| {
        let (file, state) = (&dumps.get(rank)?.file, one.state.words());
        Some(format!("{file}: {}, {state}, {}", one.words(), one.input))
    });
    evidence.fold(finding, Finding::with_evidence)
}

/// What an operation waits for, and what can be done.
fn sentence(wait: &Wait, last: Option<&Operation>, names: &Names) -> (String, &'static str) {
    let operation = wait.operation;
    let (words, group) = (operation.words(), &operation.group_words);
    let frames = wait.waiting.values().filter_map(|one| one.frame.as_deref());
    let frames: Vec<&str> = frames.collect::<BTreeSet<_>>().into_iter().collect();
    let begun = match frames.as_slice() {
        [] => String::new(),
        frames => format!(", begun in {}", frames.join(" or ")),
    };
    let waiting = waiting(wait);
    let have = if wait.missing.len() == 1 {
        "has"
    } else {
        "have"
    };
    let missing = format!("{} {have} no dump", names.words(&wait.missing));
    if !wait.different.is_empty() {
        let fix = "let all ranks of a group begin the same operations in the same order";
        (different(wait, names), fix)
    } else if !wait.absent.is_empty() {
        let absent = names.words(&wait.absent);
        let did_not = match operation.is_p2p {
            true => "did not begin its side of",
            false => "did not come to",
        };
        let mut text = format!("{absent} {did_not} {words}, for which {waiting}{begun}");
        if let Some(last) = last {
            text += &format!(
                "; the last that it began is {}{}",
                last.words(),
                begun_in(last)
            );
        }
        if !wait.missing.is_empty() {
            text += &format!("; {missing}");
        }
        let fix = "look at its log, or at its stack with dgl-stacks --job NAME while the job runs";
        (text, fix)
    } else if !wait.missing.is_empty() {
        let text = format!("{missing}, and {waiting} in {words}{begun}");
        (
            text,
            "look at its log, why it ended; or fetch its dump, if there is one",
        )
    } else if wait.is_all_there() {
        let text = format!("all its ranks came to {words}, and {waiting}{begun}");
        let fix = "look at the network between the hosts, with link-probe or NCCL_DEBUG=INFO; or \
                   let all ranks begin the operations of several groups in one order";
        (text, fix)
    } else {
        let mut text = format!("{waiting} in {words}{begun}");
        if wait.size.is_none() {
            text += &format!("; the dumps do not name the ranks of {group}");
        }
        (
            text,
            "look at all stacks with dgl-stacks --job NAME while the job runs",
        )
    }
}

/// The newest operation of the rank that did not come, if it is only one.
fn last_of_absent<'a>(wait: &Wait, dumps: &'a Dumps) -> Option<&'a Operation> {
    let rank = wait.absent.first().filter(|_| wait.absent.len() == 1)?;
    dumps.get(rank)?.operations.last()
}

/// Where an operation was begun: ` in train (train.py:30)`.
fn begun_in(operation: &Operation) -> String {
    let frame = operation.frame.as_ref();
    frame.map_or_else(String::new, |frame| format!(" in {frame}"))
}

/// The finding that ranks came with operations that do not fit together; the rarest comes first.
fn different(wait: &Wait, names: &Names) -> String {
    let mut kinds: Vec<_> = wait.different.iter().collect();
    kinds.sort_by_key(|(_, all)| all.len());
    let has_one_name = kinds.iter().all(|(one, _)| one.name == kinds[0].0.name);
    let kinds = kinds.iter().take(MAX_CAUSES).map(|(one, all)| {
        let tensors = if has_one_name {
            format!(" of {}", one.common())
        } else {
            String::new()
        };
        format!(
            "{} began {}{tensors}{}",
            names.words(all),
            one.name,
            begun_in(one)
        )
    });
    let kinds: Vec<String> = kinds.collect();
    let one = wait
        .different
        .first()
        .map_or(wait.operation, |(one, _)| one);
    let (number, group) = (one.sequence, &one.group_words);
    format!("as operation {number} of {group}, {}", kinds.join(", but "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flight_recorder::dump::State;

    #[expect(clippy::too_many_lines, reason = "it is a table of cases")]
    #[test]
    fn waits_that_no_recorded_dump_has() {
        let operation = Operation {
            group: "3".into(),
            group_words: "left".into(),
            sequence: 7,
            is_p2p: false,
            name: "all_reduce".into(),
            input: "[4] Float".into(),
            output: String::new(),
            state: State::Pending,
            frame: Some("train (train.py:9)".into()),
            created_ns: 0,
        };
        let waits = "ranks 0-1 wait";
        let begun = "begun in train (train.py:9)";
        let table = [
            (
                (Some(4), [2].as_slice(), [].as_slice(), [].as_slice()),
                format!("rank 2 did not come to all_reduce 7 of left, for which {waits}, {begun}"),
            ),
            (
                (Some(9), &[2, 3, 4, 6], &[7, 8], &[]),
                format!(
                    "ranks 2-4 and 6 did not come to all_reduce 7 of left, for which {waits}, \
                     {begun}; ranks 7-8 have no dump"
                ),
            ),
            (
                (Some(2), &[], &[], &[]),
                format!("all its ranks came to all_reduce 7 of left, and {waits}, {begun}"),
            ),
            (
                (Some(3), &[], &[], &[2]),
                format!(
                    "{waits} in all_reduce 7 of left, {begun}; rank 2 overwrote what was noted of \
                     left"
                ),
            ),
            (
                (None, &[], &[], &[]),
                format!(
                    "{waits} in all_reduce 7 of left, {begun}; the dumps do not name the ranks of \
                     left"
                ),
            ),
        ];
        let job = Job::default();
        let names = Names {
            job: &job,
            program: None,
        };
        for ((size, absent, missing, unknown), wanted) in table {
            let set = |ranks: &[u32]| ranks.iter().copied().collect();
            let wait = Wait {
                operation: &operation,
                size,
                waiting: [(0, &operation), (1, &operation)].into(),
                absent: set(absent),
                missing: set(missing),
                unknown: set(unknown),
                different: Vec::new(),
            };
            assert_eq!(finding(&wait, &Dumps::new(), &names).text, wanted);
        }
    }
}
