//! The page: HTML and CSS, no script, nothing to load.

use crate::plan::{Bar, CopySummary, HostRun, Run};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use record::FirstFailure;
use record::term;
use std::time::{Duration, UNIX_EPOCH};

const STYLE: &str = include_str!("page.css");
/// As many marks on the time axis as can be read side by side.
const MARKS: u64 = 8;
/// As many failures are named one by one; below them a job of thousands would hide the rest of the
/// page.
const NAMED: usize = 20;

/// The whole page.
pub fn page(run: &Run) -> String {
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
                h1 { (title) }
                (summary(run))
                (failure(run))
                (other_failures(run))
                @if run.hosts.iter().any(|host| !host.processes.is_empty()) { (timeline(run)) }
                @if run.hosts.iter().any(|host| host.copied.is_some()) { (copies(&run.hosts)) }
            }
        }
    }
    .into_string()
}

fn title(run: &Run) -> String {
    let job = run
        .summary
        .as_ref()
        .and_then(|summary| summary.job.as_deref())
        .unwrap_or("a DGL job");
    match &run.summary {
        Some(summary) if summary.ok => format!("{job}: ended well"),
        Some(_) => format!("{job}: failed"),
        None => format!("{job}: the records break off before its end"),
    }
}

fn summary(run: &Run) -> Markup {
    let processes: usize = run.hosts.iter().map(|host| host.processes.len()).sum();
    html! {
        p {
            (term::count(run.hosts.len() as u64, "host")) ", "
            @if processes == 1 { "1 process" } @else { (processes) " processes" }
            @if let Some(summary) = &run.summary {
                ", " (time(summary.elapsed_ms)) ", exit status " (summary.code)
                @if let Some(cause) = &summary.cause { ", cause: " (cause) }
            }
            @if let Some(date) = run.began_ms.and_then(date) { ", began " (date) }
        }
    }
}

/// Who failed first, and its last words.
fn failure(run: &Run) -> Markup {
    let failure = run
        .summary
        .as_ref()
        .and_then(|summary| summary.first_failure.as_ref());
    html! {
        @if let Some(failure) = failure {
            section.failure {
                h2 { "First failure" }
                p {
                    (place(run, failure))
                    @if let (Some(role), Some(rank)) = (failure.role,
                        failure.rank) { ", " (role.name()) " " (rank) }
                    ": "
                    @if let Some(error) = &failure.error { (error) }
                    @else if let Some(signal) = &failure.signal { "ended by SIG" (signal) }
                    @else { "exited with status " (failure.code.unwrap_or(1)) }
                }
                @if !failure.last_lines.is_empty() { pre { (failure.last_lines.join("\n")) } }
            }
        }
    }
}

/// The host, and where on the page it is.
fn place(run: &Run, failure: &FirstFailure) -> Markup {
    let host = run
        .hosts
        .iter()
        .find(|host| host.id == failure.host && !host.processes.is_empty());
    let process = host.and_then(|host| host.processes.iter().find(|bar| bar.culprit));
    html! {
        @match (host, process) {
            (Some(host), Some(bar)) => a href={ "#process-" (bar.id) } { "host " (host.name) },
            (Some(host), None) => a href={ "#host-" (host.id) } { "host " (host.name) },
            (None, _) => { "host " (failure.host) }
        }
    }
}

/// What else failed, and where on the page it is: with many hosts nobody finds it otherwise.
fn other_failures(run: &Run) -> Markup {
    let failed = run
        .hosts
        .iter()
        .flat_map(|host| host.processes.iter().map(move |bar| (host, bar)));
    let failed: Vec<_> = failed
        .filter(|(_, bar)| bar.failed && !bar.culprit)
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
                            a href={ "#process-" (bar.id) } { "host " (host.name) }
                            ", " (bar.role) " " (bar.rank) ": "
                            (bar.end.as_deref().unwrap_or_default())
                        }
                    }
                    (more(failed.len(), "process", "processes"))
                    @for (host, copied) in not_copied.iter().take(NAMED) {
                        li {
                            a href={ "#copied-" (host.id) } { "host " (host.name) }
                            ": " (term::count(copied.failed, "file")) " not copied"
                            @if let Some(error) = &copied.error { ": " (error) }
                        }
                    }
                    (more(not_copied.len(), "host", "hosts"))
                }
            }
        }
    }
}

/// How many are not named.
fn more(count: usize, one: &str, several: &str) -> Markup {
    html! {
        @match count.saturating_sub(NAMED) {
            0 => {}
            1 => li { "and 1 " (one) " more" }
            more => li { "and " (more) " " (several) " more" }
        }
    }
}

fn timeline(run: &Run) -> Markup {
    let step = step(run.length_ms);
    html! {
        section {
            h2 { "Processes" }
            p.legend {
                span.server { "server" } span.trainer { "trainer" } span.worker { "worker" }
                span.culprit { "failed first" } span.tick { "listens" }
            }
            div.chart {
                div.axis {
                    @for mark in (0..=run.length_ms / step).map(|n| n * step) {
                        span style={ "--at:" (percent(mark, run.length_ms)) } { (time(mark)) }
                    }
                }
                @for host in run.hosts.iter().filter(|host| !host.processes.is_empty()) {
                    h3 id={ "host-" (host.id) } { "host " (host.name) }
                    @for bar in &host.processes { (row(bar, run.length_ms)) }
                }
            }
        }
    }
}

fn row(bar: &Bar, length_ms: u64) -> Markup {
    let end = bar.end.as_deref().unwrap_or(if bar.from_ms.is_some() {
        "no end was recorded"
    } else {
        "never started"
    });
    let class = if bar.culprit { "culprit" } else { bar.role };
    html! {
        details.row id={ "process-" (bar.id) } {
            summary {
                span.name { (bar.role) " " (bar.rank) }
                span.track {
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
                span.end { (end) }
            }
            p {
                @if let Some(pid) = bar.pid { "process " (pid) "; " }
                @if bar.last_lines.is_empty() { "it wrote nothing" } @else { "its last lines:" }
            }
            @if !bar.last_lines.is_empty() { pre { @for line in &bar.last_lines { (line) "\n" } } }
        }
    }
}

fn copies(hosts: &[HostRun]) -> Markup {
    let fastest = hosts
        .iter()
        .filter_map(|host| rate(host.copied.as_ref()?))
        .max()
        .unwrap_or(1);
    html! {
        section {
            h2 { "CopySummary" }
            div.wide {
                table {
                    tr { th { "host" } th { "files" } th { "there \
                        already" } th { "failed" } th { "sent" } th { "time" } th.rate { "rate" } }
                    @for (host, copied) in hosts.iter().filter_map(|host| Some((host,
                        host.copied.as_ref()?))) {
                        tr id={ "copied-" (host.id) } {
                            td { (host.name) }
                            td { (copied.files) }
                            td { (copied.skipped) }
                            td {
                                (copied.failed)
                                @if let Some(error) = &copied.error { ": " (error) }
                            }
                            td { (term::bytes(copied.sent_bytes)) }
                            td { (time(copied.elapsed_ms)) }
                            td.rate {
                                @if let Some(rate) = rate(copied) {
                                    span.scale { span.bar.copy style={ "width:" (percent(rate,
                                        fastest)) } {} }
                                    span { (term::rate(copied.sent_bytes,
                                        Duration::from_millis(copied.elapsed_ms))) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Bytes a second.
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

/// `2026-01-31T12:00:00Z`; none of a time that the format has no place for.
fn date(ms: u64) -> Option<String> {
    /// The first second of the year 10000.
    const END: u64 = 253_402_300_800_000;
    let time = UNIX_EPOCH
        .checked_add(Duration::from_millis(ms))
        .filter(|_| ms < END)?;
    Some(humantime::format_rfc3339_seconds(time).to_string())
}

/// Between two marks of the time axis: 1, 2 or 5 times a power of ten.
fn step(length_ms: u64) -> u64 {
    let steps = (0..16).flat_map(|power| [1, 2, 5].map(|digit| digit * 10u64.pow(power)));
    steps
        .into_iter()
        .find(|step| length_ms / step <= MARKS)
        .unwrap_or(length_ms)
}

#[cfg(test)]
mod tests {
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
            (u64::MAX, u64::MAX),
            (1000, 200),
            (61_000, 10_000),
            (3_600_000, 500_000),
        ] {
            assert_eq!(super::step(length_ms), step, "{length_ms}");
        }
    }
}
