//! Carries the deliveries out: looks at every host first, then sends to several at once.

use crate::args::{Args, When};
use crate::plan::{self, Delivery, Source};
use crate::site::{Options, Outcome, Site};
use common::error::{Fault, Report};
use common::exit::Exit;
use common::jsonl::{self, Out, Stream};
use common::quote;
use common::record::{Host, Pushed};
use common::remote::{self, Kind, Remote};
use common::term::{self, millis};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rayon::prelude::*;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

const HOST_SH: &str = include_str!("host.sh");
/// What a file system needs beside the files themselves.
const ROOM_TO_SPARE: u64 = 1 << 20;

/// A host with what it gets.
struct Task<'a> {
    host: &'a Host,
    deliveries: Vec<&'a Delivery>,
    /// None where it could not be reached; why is in `broken`.
    site: Option<Site>,
    broken: Option<String>,
    skipped: Vec<bool>,
}

/// Copies all that is not there yet.
pub fn run(args: &Args, stream: &Stream, hosts: &[Host], deliveries: &[Delivery]) -> Result<Exit, Report> {
    let remote = Remote::new(&args.connect, Kind::Ssh { bulk: true })?;
    let token = remote::random_token().map_err(|error| Fault::unreachable("/dev/urandom", error.to_string()))?;
    let of_host = |host: &Host| -> Vec<&Delivery> { deliveries.iter().filter(|delivery| delivery.host == host.id).collect() };
    let script = |host: &Host| {
        let base = plan::base(&of_host(host));
        [b"base=", quote::sh(base.as_os_str().as_bytes()).as_slice(), format!("\ntoken={token}\n").as_bytes(), HOST_SH.as_bytes()].concat()
    };
    let opened = remote.open_all(hosts, script)?;
    let faults: Vec<_> = hosts.iter().zip(&opened).filter_map(|(host, opened)| Some((host, opened.as_ref().err()?))).collect();
    let mut report = remote::report(faults, args.connect.host_key);
    let options = Options {
        verify: args.verify,
        compress: match args.compress {
            When::Auto => None,
            When::Always => Some(true),
            When::Never => Some(false),
        },
    };

    let mut tasks: Vec<Task<'_>> = Vec::new();
    for (host, opened) in hosts.iter().zip(opened) {
        let task = Task { host, deliveries: of_host(host), site: None, broken: None, skipped: Vec::new() };
        tasks.push(match opened {
            Err(fault) => Task { broken: Some(fault.problem), ..task },
            Ok(running) => match Site::new(running) {
                Ok(site) => Task { site: Some(site), ..task },
                Err(broken) => {
                    report.push(Fault::item(host.place(), broken.0.clone()));
                    Task { broken: Some(broken.0), ..task }
                }
            },
        });
    }
    let pool = remote::threads(hosts.len().min(usize::from(args.jobs)))?;
    pool.install(|| tasks.par_iter_mut().for_each(|task| look(task, options)));
    report.0.extend(tasks.iter().filter_map(no_room));
    if args.dry_run {
        return dry_run(&tasks, report);
    }
    if !report.0.is_empty() && tasks.iter().any(|task| no_room(task).is_some()) {
        // a disk that fills up in the middle helps nobody: nothing is sent anywhere
        return Err(report);
    }

    let out = Mutex::new(Out::new("part-push"));
    let human = args.connect.format.human();
    let write = |lines: Vec<u8>| {
        if !human {
            out.lock().unwrap_or_else(std::sync::PoisonError::into_inner).write(&lines);
        }
    };
    write(stream.lines().flat_map(|(line, _)| [line, b"\n"].concat()).collect());
    let bar = bar(args.progress, &tasks);
    let of = u32::try_from(deliveries.len()).unwrap_or(u32::MAX);
    let results: Vec<Report> = pool.install(|| {
        let one = |task: &mut Task<'_>| {
            let (lines, report) = push(task, options, of, &bar);
            write(lines);
            if args.progress != When::Never || human {
                bar.suspend(|| eprintln!("{}", told(task, &report)));
            }
            report
        };
        tasks.par_iter_mut().map(one).collect()
    });
    bar.finish_and_clear();
    results.into_iter().for_each(|result| report.extend(result));
    let exit = report.exit();
    report.print("part-push");
    Ok(exit)
}

fn look(task: &mut Task<'_>, options: Options) {
    let looked = task.site.as_mut().map(|site| site.look(&task.deliveries, options));
    match looked {
        Some(Ok(skipped)) => task.skipped = skipped,
        Some(Err(broken)) => {
            task.site = None;
            task.broken = Some(broken.0);
        }
        None => {}
    }
}

fn to_send<'a>(task: &Task<'a>) -> Vec<&'a Delivery> {
    task.deliveries.iter().zip(&task.skipped).filter(|(_, skipped)| !**skipped).map(|(delivery, _)| *delivery).collect()
}

fn no_room(task: &Task<'_>) -> Option<Fault> {
    let free = task.site.as_ref()?.free_bytes()?;
    let needed = to_send(task).iter().map(|delivery| delivery.bytes).sum::<u64>();
    (needed > 0 && needed + ROOM_TO_SPARE > free).then(|| {
        let problem = format!("no space left: {} are to be sent, {} are free", term::bytes(needed), term::bytes(free));
        Fault::item(task.host.place(), problem).fix("make room there, or choose a workspace on a larger disk; nothing was sent to any host")
    })
}

fn dry_run(tasks: &[Task<'_>], report: Report) -> Result<Exit, Report> {
    let mut out = Out::new("part-push");
    for task in tasks.iter().filter(|task| task.site.is_some()) {
        let send = to_send(task);
        for delivery in &send {
            let source = match &delivery.source {
                Source::File(path) => path.display().to_string(),
                Source::Content(_) => "(made)".to_owned(),
                Source::Folder => "(an empty folder)".to_owned(),
                Source::There => "(not there)".to_owned(),
            };
            out.write(
                format!("{}: {source} -> {} ({})\n", task.host.place(), delivery.dst.display(), term::bytes(delivery.bytes)).as_bytes(),
            );
        }
        let bytes = send.iter().map(|delivery| delivery.bytes).sum();
        out.write(
            format!(
                "{}: {} to send, {}; {} there already\n",
                task.host.place(),
                term::count(send.len() as u64, "file"),
                term::bytes(bytes),
                task.deliveries.len() - send.len()
            )
            .as_bytes(),
        );
    }
    report.print("part-push");
    Ok(report.exit())
}

/// Sends what one host lacks; its records, and what failed.
fn push(task: &mut Task<'_>, options: Options, of: u32, bar: &ProgressBar) -> (Vec<u8>, Report) {
    let begun = Instant::now();
    let send = to_send(task);
    let outcomes = match (&mut task.site, send.is_empty()) {
        (Some(_), true) => Vec::new(),
        (Some(site), false) => match site.send(&send, options, &|bytes| bar.inc(bytes)) {
            Ok(outcomes) => outcomes,
            Err(broken) => {
                task.broken = Some(broken.0);
                Vec::new()
            }
        },
        (None, _) => Vec::new(),
    };
    let mut outcomes: std::collections::BTreeMap<u32, Outcome> = send.iter().map(|delivery| delivery.id).zip(outcomes).collect();
    let mut report = Report::default();
    let mut lines = Vec::new();
    for (at, delivery) in task.deliveries.iter().enumerate() {
        let skipped = task.skipped.get(at).copied().unwrap_or(false);
        let outcome = match outcomes.remove(&delivery.id) {
            Some(outcome) => outcome,
            None if skipped => Outcome { error: None, sent_bytes: 0, elapsed: Duration::ZERO },
            None => {
                let why = task.broken.clone().unwrap_or_else(|| "it was not sent".to_owned());
                Outcome { error: Some(why), sent_bytes: 0, elapsed: begun.elapsed() }
            }
        };
        lines.extend(jsonl::line(&Pushed {
            id: delivery.id,
            of,
            file: delivery.file,
            host: delivery.host,
            ok: outcome.error.is_none(),
            bytes: delivery.bytes,
            sent_bytes: outcome.sent_bytes,
            skipped,
            elapsed_ms: millis(outcome.elapsed),
            error: outcome.error.clone(),
        }));
        if let (Some(why), None) = (&outcome.error, &task.broken) {
            report.push(Fault::item(format!("{}: {}", task.host.place(), delivery.dst.display()), why.clone()));
        }
    }
    // a host that was never reached is reported by then
    if let (Some(why), Some(_)) = (&task.broken, &task.site) {
        report.push(Fault::unreachable(task.host.place(), why.clone()).fix("run it again: what is there already is skipped"));
    }
    (lines, report)
}

fn told(task: &Task<'_>, report: &Report) -> String {
    let sent = to_send(task);
    let bytes: u64 = sent.iter().map(|delivery| delivery.bytes).sum();
    let rate = match task.site.as_ref().map(Site::rate) {
        Some((_, time)) if !time.is_zero() && bytes > 1_000_000 => {
            format!(", {}/s", term::bytes((bytes as f64 / time.as_secs_f64()) as u64))
        }
        _ => String::new(),
    };
    let trouble = if report.0.is_empty() && task.broken.is_none() { "" } else { "; not all of it arrived" };
    let skipped = task.skipped.iter().filter(|skipped| **skipped).count();
    format!(
        "part-push: {}: {}, {}; {skipped} there already{rate}{trouble}",
        task.host.place(),
        term::count(sent.len() as u64, "file"),
        term::bytes(bytes)
    )
}

fn bar(progress: When, tasks: &[Task<'_>]) -> ProgressBar {
    let total = tasks.iter().filter(|task| task.site.is_some()).flat_map(to_send).map(|delivery| delivery.bytes).sum();
    let shown = progress == When::Always || (progress == When::Auto && std::io::stderr().is_terminal());
    let target = if shown { ProgressDrawTarget::stderr_with_hz(5) } else { ProgressDrawTarget::hidden() };
    let style = ProgressStyle::with_template("{bar:30} {bytes} of {total_bytes}  {bytes_per_sec}  {eta} left");
    ProgressBar::with_draw_target(Some(total), target).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
