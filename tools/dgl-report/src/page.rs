//! The page: HTML with CSS and drawings, which loads nothing else. Only flame graphs need a script,
//! which is in the page. Drawings are also described in words, for readers who cannot see them or
//! who print the page.

use crate::plan::{Bar, CopySummary, EventKind, HostRun, RunReport, TimelineEvent};
use crate::profiles;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use record::stacks::{self, Comparison};
use record::term;
use record::{FirstFailure, Role};
use std::collections::BTreeSet;
use std::ops::Range;
use std::time::{Duration, UNIX_EPOCH};
use verdict::JobFinding;
use verdict::silence::Awaited;

const STYLE: &str = include_str!("page.css");
/// More marks cannot be read side by side on the time axis.
const MARKS: u64 = 8;
/// Thousands of listed failures would hide the rest of the page.
const NAMED: usize = 20;

pub fn page(run: &RunReport) -> String {
    let title = title(run);
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    h1 { (title) }
                    (summary(run))
                    (verdict(run))
                    (failure(run))
                    (other_failures(run))
                    @if has_timeline(run) { (timeline(run)) }
                    (profiles::section(run.profiles))
                    @if run.hosts.iter().any(|host| host.copied.is_some()) { (copies(&run.hosts)) }
                }
            }
        }
    }
    .into_string()
}

fn title(run: &RunReport) -> String {
    let job = run.summary.and_then(|summary| summary.job.as_deref());
    let recorded = run.profiles.first().map(|profile| profile.job.as_str());
    // a browser shows a title as it is, with what changes the direction of text
    let job = term::plain(job.or(recorded).unwrap_or("a job"));
    match run.summary {
        None if run.began_ms.is_none() && recorded.is_some() => {
            format!("{job}: where its time goes")
        }
        Some(summary) if summary.ok => format!("{job}: finished"),
        Some(_) => format!("{job}: failed"),
        None => format!("{job}: the records break off before its end"),
    }
}

fn summary(run: &RunReport) -> Markup {
    let processes: usize = run.hosts.iter().map(|host| host.processes.len()).sum();
    html! {
        p {
            (term::count(run.hosts.len() as u64, "host")) ", "
            (term::count(processes as u64, "process"))
            @if let Some(summary) = run.summary {
                ", " (time(summary.elapsed_ms)) ", exit status " (summary.code)
                @if let Some(cause) = &summary.cause { ", cause: " (cause) }
            }
            @if let Some(date) = run.began_ms.and_then(date) { ", began " (date) }
        }
    }
}

fn verdict(run: &RunReport) -> Markup {
    let verdict = &run.verdict;
    let is_fine = verdict.outcome.is_fine();
    html! {
        section.verdict.fine[is_fine] aria-labelledby="verdict" {
            h2 id="verdict" { "Why" }
            p.cause { "The job " (verdict.outcome.words()) ": " (finding(run, &verdict.cause)) }
            (culprit(run))
            (evidence(&verdict.cause))
            (stacks(&verdict.comparison))
            (waits(&verdict.waits))
            @if !verdict.at_failure.groups().is_empty() {
                p { "When it failed, those that still ran were here:" }
                (stacks(&verdict.at_failure))
            }
            @if !verdict.others.is_empty() {
                p { "Also:" }
                ul {
                    @for other in &verdict.others {
                        li { (finding(run, other)) (evidence(other)) }
                    }
                }
            } @else if is_fine {
                p { "Nothing unusual." }
            }
        }
    }
}

/// Where the processes are, outliers first.
fn stacks(comparison: &Comparison) -> Markup {
    let outliers = comparison.outliers().len();
    let groups = comparison.groups().iter().zip(comparison.lines());
    html! {
        @for (index, (group, line)) in groups.enumerate() {
            details.stack open[index < outliers] {
                summary { (term::plain(&line)) }
                pre { @for frame in &group.frames { (term::plain(frame)) "\n" } }
            }
        }
    }
}

/// An arrow begins at the processes that wait.
fn waits(waits: &[Awaited]) -> Markup {
    html! {
        @if !waits.is_empty() {
            p { "Who waited for whom, by the last data over their connections:" }
            ul.waits {
                @for wait in waits.iter().take(NAMED) {
                    li {
                        span { (stacks::names(&wait.waiting.iter().copied().collect::<Vec<_>>())) }
                        span.arrow aria-hidden="true" { (term::seconds(ms(wait.since_ms))) }
                        span { (stacks::names(&[wait.silent])) }
                        @if wait.unread_bytes > 0 {
                            span { "has not read " (term::bytes(wait.unread_bytes)) }
                        }
                        span.hidden { ": " (wait.words()) }
                    }
                }
                (more(waits.len(), "process"))
            }
        }
    }
}

fn ms(ms: u32) -> Duration {
    Duration::from_millis(ms.into())
}

/// A link to the process for which the others wait; a failure has its own section.
fn culprit(run: &RunReport) -> Markup {
    let bar = bar_of_culprit(run).filter(|_| first_failure(run).is_none());
    html! {
        @if let Some(bar) = bar {
            p {
                a href={ "#process-" (bar.id()) } { (bar.name()) " and its last lines" }
            }
        }
    }
}

fn bar_of_culprit<'a>(run: &'a RunReport) -> Option<&'a Bar<'a>> {
    let mut bars = run.hosts.iter().flat_map(|host| &host.processes);
    bars.find(|bar| bar.culprit)
}

fn finding(run: &RunReport, finding: &JobFinding) -> Markup {
    html! {
        (term::plain(&finding.text)) "."
        @if let Some(since) = verdict::since(finding, run.verdict.began_ms) {
            " Since " (since) "."
        }
        @if let Some(fix) = &finding.fix { br; "What to do: " (fix) "." }
    }
}

/// The records behind a finding, which can be unfolded.
fn evidence(finding: &JobFinding) -> Markup {
    html! {
        @if !finding.evidence.is_empty() {
            details {
                summary { "Shown by " (term::count(finding.evidence.len() as u64, "record")) }
                pre { @for record in &finding.evidence { (term::plain(record)) "\n" } }
            }
        }
    }
}

fn first_failure<'a>(run: &RunReport<'a>) -> Option<&'a FirstFailure> {
    run.summary?.first_failure.as_ref()
}

/// The failure that caused the others, with its last lines; and the first that arrived, if that is
/// another, because the exit status is its status.
fn failure(run: &RunReport) -> Markup {
    let Some(failure) = first_failure(run) else {
        return html! {};
    };
    let arrived = html! {
        (location(run, failure.host, failure.id))
        @if let (Some(role), Some(rank)) = (failure.role, failure.rank) {
            ", " (role.name()) " " (rank)
        }
        ": " (failure.words())
    };
    let cause = bar_of_culprit(run).filter(|bar| failure.id != Some(bar.id()));
    html! {
        section.failure {
            @if let Some(bar) = cause {
                @let mut lines = bar.last_lines(run.lines).peekable();
                h2 { "Cause: " (bar.name()) }
                p {
                    (location(run, bar.history.process.host, Some(bar.id())))
                    ", " (bar.name()) ": "
                    @match &bar.history.life.exited {
                        Some(exited) => (exited.end.to_string()),
                        None => "no end was recorded"
                    }
                }
                @if lines.peek().is_some() { pre { @for line in lines { (line) "\n" } } }
                p { "The exit status comes from the failure that arrived first: " (arrived) }
            } @else {
                h2 { "First failure" }
                p { (arrived) }
                @if !failure.last_lines.is_empty() { pre { (failure.last_lines.join("\n")) } }
            }
        }
    }
}

fn location(run: &RunReport, host: u32, id: Option<u32>) -> Markup {
    let shown = run
        .hosts
        .iter()
        .find(|shown| shown.id == host && !shown.processes.is_empty());
    html! {
        @match (shown, id) {
            (Some(host), Some(id)) if host.processes.iter().any(|bar| bar.id() == id) => {
                a href={ "#process-" (id) } { "host " (host.name) }
            },
            (Some(host), _) => a href={ "#host-" (host.id) } { "host " (host.name) },
            (None, _) => { "host " (host) }
        }
    }
}

/// The other failures, with links, because they are hard to find among many hosts.
fn other_failures(run: &RunReport) -> Markup {
    let failed = run
        .hosts
        .iter()
        .flat_map(|host| host.processes.iter().map(move |bar| (host, bar)));
    let failed: Vec<_> = failed
        .filter(|(_, bar)| bar.failed() && !bar.culprit)
        .collect();
    let not_copied: Vec<_> = run
        .hosts
        .iter()
        .filter_map(|host| Some((host, host.copied.as_ref()?)))
        .filter(|(_, copied)| copied.failed > 0)
        .collect();
    html! {
        @if !failed.is_empty() || !not_copied.is_empty() {
            section.failure {
                h2 { "Other failures" }
                ul {
                    @for (host, bar) in failed.iter().take(NAMED) {
                        li {
                            a href={ "#process-" (bar.id()) } { "host " (host.name) }
                            ", " (bar.name()) ": "
                            (bar.end.as_deref().unwrap_or_default())
                        }
                    }
                    (more(failed.len(), "process"))
                    @for (host, copied) in not_copied.iter().take(NAMED) {
                        li {
                            a href={ "#copied-" (host.id) } { "host " (host.name) }
                            ": " (term::count(copied.failed, "file")) " not copied"
                            @if let Some(error) = &copied.error { ": " (error) }
                        }
                    }
                    (more(not_copied.len(), "host"))
                }
            }
        }
    }
}

fn more(count: usize, noun: &str) -> Markup {
    html! {
        @if count > NAMED { li { "and " (term::count((count - NAMED) as u64, noun)) " more" } }
    }
}

/// Whether the records have processes, and say when one began unless they are of a recording.
fn has_timeline(run: &RunReport) -> bool {
    let is_recording = run.began_ms.is_none() && !run.profiles.is_empty();
    !is_recording && run.hosts.iter().any(|host| !host.processes.is_empty())
}

fn timeline(run: &RunReport) -> Markup {
    let step = step(run.length_ms);
    let bars = || run.hosts.iter().flat_map(|host| &host.processes);
    let roles: BTreeSet<Role> = bars().map(|bar| bar.history.process.role).collect();
    html! {
        section {
            h2 { "Processes" }
            p.legend {
                @for role in roles { span.(bar_class(role)) { (role.name()) } }
                @if bars().any(|bar| bar.culprit) {
                    span.culprit { "the cause: it failed first, or the others wait for it" }
                }
                @if bars().any(|bar| bar.listening_ms.is_some()) { span.tick { "listens" } }
                @if has(run, EventKind::Restart) { span.again { "another attempt" } }
                @if has(run, EventKind::Stall) { span.stall { "stalled" } }
            }
            (events(run))
            div.chart {
                div.axis {
                    @for mark in (0..=run.length_ms / step).map(|n| n * step) {
                        span style={ "--at:" (percent(mark, run.length_ms)) } { (time(mark)) }
                    }
                }
                @for host in run.hosts.iter().filter(|host| !host.processes.is_empty()) {
                    h3 id={ "host-" (host.id) } { "host " (host.name) }
                    @for bar in &host.processes { (row(bar, run)) }
                }
            }
        }
    }
}

fn has(run: &RunReport, kind: EventKind) -> bool {
    run.events.iter().any(|event| event.kind == kind)
}

/// What happened to the job, in words; if there are many failures, only the first.
fn events(run: &RunReport) -> Markup {
    let words = |event: &TimelineEvent| match event.to_ms {
        Some(to_ms) => format!("{} to {}: {}", time(event.at_ms), time(to_ms), event.text),
        None => format!("{}: {}", time(event.at_ms), event.text),
    };
    html! {
        @if !run.events.is_empty() {
            ul.events {
                @for event in run.events.iter().take(NAMED) {
                    li.(class(event.kind)) { (words(event)) }
                }
                (more(run.events.len(), "event"))
            }
        }
    }
}

fn class(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Failure => "culprit",
        EventKind::Restart => "again",
        EventKind::Stall => "stall",
    }
}

/// Tries and stalls, behind the bar of a process.
fn marks(run: &RunReport) -> Markup {
    let length_ms = run.length_ms;
    let of_all = |event: &&TimelineEvent| event.kind != EventKind::Failure;
    html! {
        @for event in run.events.iter().filter(of_all).take(NAMED) {
            @let width = event.to_ms.unwrap_or(event.at_ms).saturating_sub(event.at_ms);
            @let (left, width) = (percent(event.at_ms, length_ms), percent(width, length_ms));
            span.mark.(class(event.kind)) title=(event.text)
                style={ "left:" (left) ";width:" (width) } {}
        }
    }
}

fn bar_class(role: Role) -> &'static str {
    match role {
        Role::Server => "server",
        Role::Trainer => "trainer",
        Role::Worker | Role::Program(_) => "worker",
    }
}

fn row(bar: &Bar, run: &RunReport) -> Markup {
    let length_ms = run.length_ms;
    let end = bar.why.as_deref().or(bar.end.as_deref());
    let end = end.unwrap_or(match bar.from_ms {
        Some(_) => "no end was recorded",
        None if has(run, EventKind::Restart) => "not started in the last attempt",
        None => "never started",
    });
    let class = if bar.culprit {
        "culprit"
    } else {
        bar_class(bar.history.process.role)
    };
    let (name, id) = (bar.name(), bar.id());
    let started = bar.history.life.started.as_ref();
    let mut lines = bar.last_lines(run.lines).peekable();
    html! {
        details.row id={ "process-" (id) } {
            summary {
                span.name { (name) }
                span.track {
                    (marks(run))
                    @if let Some(from_ms) = bar.from_ms {
                        @let to_ms = bar.to_ms.unwrap_or(length_ms);
                        span class={ "bar " (class) @if bar.to_ms.is_none() { " open" } }
                            style={ "left:" (percent(from_ms,
                                length_ms)) ";width:" (percent(to_ms.saturating_sub(from_ms),
                                    length_ms)) }
                            title={ (time(from_ms)) " to " (time(to_ms)) } {}
                    }
                    @if let Some(listening_ms) = bar.listening_ms {
                        span.tick style={ "left:" (percent(listening_ms,
                            length_ms)) } title={ "listens after " (time(listening_ms)) } {}
                    }
                }
                span.end title=(end) { span.hidden { (spoken(bar)) } (end) }
            }
            p {
                (end) "; "
                @if let (Some(_), Some(how)) = (&bar.why, &bar.end) { (how) "; " }
                @if let Some(started) = started { "process " (started.pid) "; " }
                (silence(bar, run))
                @if lines.peek().is_none() { "it wrote no output" } @else { "its last lines:" }
            }
            @if lines.peek().is_some() { pre { @for line in lines { (line) "\n" } } }
        }
    }
}

/// The last silence of a process: from its last line before the job began to end, or from its
/// start, until it ended or the records do.
fn silence(bar: &Bar, run: &RunReport) -> Markup {
    let line = bar.history.last_line().map(|line| line.output.time_ms);
    let line_ms = line.map(|ms| ms.saturating_sub(run.began_ms.unwrap_or(0)));
    let end_ms = bar.to_ms.unwrap_or(run.length_ms);
    html! {
        @if let Some(from_ms) = bar.from_ms {
            @let since_ms = from_ms.max(line_ms.unwrap_or(0));
            "silent from " (time(since_ms)) " on, for " (time(end_ms.saturating_sub(since_ms)))
            "; "
        }
    }
}

/// The bar of a process in words.
fn spoken(bar: &Bar) -> String {
    let Some(from_ms) = bar.from_ms else {
        return String::new();
    };
    let mut words = format!("ran from {}", time(from_ms));
    if let Some(to_ms) = bar.to_ms {
        words += &format!(" to {}", time(to_ms));
    }
    if let Some(listening_ms) = bar.listening_ms {
        words += &format!(", listened after {}", time(listening_ms));
    }
    words + ": "
}

fn copies(hosts: &[HostRun<'_>]) -> Markup {
    const COLUMNS: [&str; 6] = ["host", "files", "there already", "failed", "sent", "time"];
    let copied = hosts
        .iter()
        .filter_map(|host| Some((host, host.copied.as_ref()?)));
    let fastest = copied.clone().filter_map(|(_, copied)| rate(copied)).max();
    let cells = |host: &HostRun, copied: &CopySummary| {
        let failed = match &copied.error {
            Some(error) => format!("{}: {error}", copied.failed),
            None => copied.failed.to_string(),
        };
        let (files, skipped) = (copied.files.to_string(), copied.skipped.to_string());
        let (sent, time) = (term::bytes(copied.sent_bytes), time(copied.elapsed_ms));
        COLUMNS
            .into_iter()
            .zip([host.name.clone(), files, skipped, failed, sent, time])
    };
    html! {
        section {
            h2 { "Copies" }
            div.wide {
                table {
                    tr { @for column in COLUMNS { th { (column) } } th.rate { "rate" } }
                    @for (host, copied) in copied {
                        tr id={ "copied-" (host.id) } {
                            @for (column, cell) in cells(host, copied) {
                                td data-name=(column) { (cell) }
                            }
                            td.rate data-name="rate" {
                                @if let Some(rate) = rate(copied) {
                                    @let width = percent(rate, fastest.unwrap_or(1));
                                    @let time = Duration::from_millis(copied.elapsed_ms);
                                    span.scale { span.bar.copy style={ "width:" (width) } {} }
                                    span { (term::rate(copied.sent_bytes, time)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// In bytes a second.
fn rate(copied: &CopySummary) -> Option<u64> {
    (copied.elapsed_ms > 0 && copied.sent_bytes > 0)
        .then(|| copied.sent_bytes.saturating_mul(1000) / copied.elapsed_ms)
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.2}%", part as f64 * 100.0 / whole.max(1) as f64)
}

fn time(ms: u64) -> String {
    term::seconds(Duration::from_millis(ms))
}

/// As `2026-01-31T12:00:00Z`; `None` if the format cannot hold the time.
fn date(ms: u64) -> Option<String> {
    /// The start of the year 10000, in milliseconds since 1970.
    const END: u64 = 253_402_300_800_000;
    let time = UNIX_EPOCH
        .checked_add(Duration::from_millis(ms))
        .filter(|_| ms < END)?;
    Some(humantime::format_rfc3339_seconds(time).to_string())
}

/// The step between marks of the time axis, in the units of clocks. Below a second and above a day
/// it is 1, 2 or 5 times a power of ten.
fn step(length_ms: u64) -> u64 {
    const SECOND: u64 = 1000;
    const MINUTE: u64 = 60 * SECOND;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    let decades = |powers: Range<u32>| {
        powers.flat_map(|power| [1, 2, 5].map(|digit| digit * 10u64.pow(power)))
    };
    let sixtieths = [SECOND, MINUTE]
        .into_iter()
        .flat_map(|unit| [1, 2, 5, 10, 15, 30].map(|count| count * unit));
    let hours = [1, 2, 3, 6, 12].map(|count| count * HOUR);
    let days = decades(0..11).map(|count| count.saturating_mul(DAY));
    let mut steps = decades(0..3).chain(sixtieths).chain(hours).chain(days);
    steps
        .find(|step| length_ms / step <= MARKS)
        .unwrap_or(length_ms)
}

#[cfg(test)]
mod tests {
    use crate::plan;

    #[test]
    fn the_cause_comes_before_the_failure_that_arrived_first() {
        let job = plan::tests::read(plan::tests::ECHO);
        let page = super::page(&plan::run(&job, 20));
        let plain = |text: &str| text.replace('\n', " ");
        let section = page
            .split_once("<section class=\"failure\">")
            .and_then(|(_, rest)| rest.split_once("</section>"));
        let (section, rest) = section.unwrap();
        assert_eq!(
            plain(section),
            "<h2>Cause: worker 0</h2><p><a href=\"#process-0\">host 0 10.0.0.1</a>, worker 0: \
             exited with status 1</p><pre>Traceback (most recent call last):   File \
             &quot;t.py&quot;, line 3, in &lt;module&gt; ValueError: bad feature </pre>\
             <p>The exit status comes from the failure that arrived first: \
             <a href=\"#process-1\">host 0 10.0.0.1</a>, worker 1: exited with status 1</p>"
        );
        let (others, chart) = rest.split_once("<h2>Processes</h2>").unwrap();
        assert!(others.contains("worker 1: status 1"), "{others}");
        assert_eq!(chart.matches("class=\"bar culprit\"").count(), 1, "{chart}");
    }

    #[test]
    fn dates_have_four_digits_of_a_year() {
        let table = [
            (0, Some("1970-01-01T00:00:00Z")),
            (253_402_300_799_999, Some("9999-12-31T23:59:59Z")),
            (253_402_300_800_000, None),
            (u64::MAX, None),
        ];
        for (ms, shown) in table {
            assert_eq!(super::date(ms).as_deref(), shown, "{ms}");
        }
    }

    #[test]
    fn marks_are_round_and_few() {
        for (length_ms, step) in [
            (1, 1),
            (9, 2),
            (u64::MAX, 50_000_000_000 * 24 * 3_600_000),
            (1000, 200),
            (61_000, 10_000),
            (600_000, 120_000),
            (1_835_000, 300_000),
            (3_600_000, 600_000),
            (30 * 3_600_000, 6 * 3_600_000),
            (12 * 24 * 3_600_000, 2 * 24 * 3_600_000),
        ] {
            assert_eq!(super::step(length_ms), step, "{length_ms}");
        }
    }
}
