//! Asks all hosts at once, and tells what they found or ended.

use crate::args::Args;
use crate::plan::{self, Said, What};
use common::error::{Fault, Report};
use common::exit::Exit;
use common::jsonl::{Out, Stream};
use common::record::{Host, Summary};
use common::remote::{self, Heard, Kind, Remote, Running};
use common::term;
use rayon::prelude::*;
use std::time::{Duration, Instant};

/// Beyond the grace, a job: 10 s of KILL, and looking through /proc on a busy host.
const JOB_LIMIT: Duration = Duration::from_secs(60);
/// Hosts that are listened to at once: each waits, none computes.
const AT_ONCE: usize = 256;

/// Lists or ends.
pub fn run(args: &Args, stream: &Stream, hosts: &[Host]) -> Result<Exit, Report> {
    let begun = Instant::now();
    // their name is that of the job that they are
    let job = args.job.as_ref().or(args.server_name.as_ref());
    let what = match (job, &args.signal) {
        (Some(job), Some(signal)) => What::Signal { job, role: args.role(), rank: args.rank, signal },
        (Some(job), None) => What::Job(job),
        (None, _) if args.all => What::All,
        (None, _) if args.stale_shm => What::StaleShm,
        (None, _) => What::List,
    };
    let remote = Remote::new(&args.connect, Kind::Ssh2)?;
    let human = args.connect.format.human();
    let mut out = Out::new("dgl-reap");
    if !human {
        out.pass(stream);
    }
    let script = plan::script(&what, args.grace);
    let opened = remote.open_all(hosts, |_| script.clone())?;
    let refused = hosts.iter().zip(&opened).filter_map(|(host, opened)| Some((host, opened.as_ref().err()?)));
    let mut report = remote::report(refused, args.connect.host_key);
    let running: Vec<_> = hosts.iter().zip(opened).filter_map(|(host, opened)| Some((host, opened.ok()?))).collect();
    let limit = args.grace + JOB_LIMIT;
    let heard: Vec<_> = remote::threads(running.len().min(AT_ONCE))?
        .install(|| running.into_par_iter().map(|(host, running)| listen(host, running, limit, args.signal.as_deref())).collect());

    let (mut found, mut reaped) = (Vec::new(), Vec::new());
    for (said, fault) in heard {
        for said in said {
            match said {
                Said::Found(one) => found.push(one),
                Said::Reaped(one) => reaped.push(one),
            }
        }
        report.0.extend(fault);
    }
    let reaped = plan::merged(reaped);
    let all_reached = report.0.is_empty();
    for one in reaped.iter().filter(|one| !one.ok) {
        let place = hosts.iter().find(|host| host.id == one.host).map_or_else(String::new, Host::place);
        let fault = Fault::item(place, format!("job {}: {}", one.job, one.error.as_deref().unwrap_or("some are left")));
        report.push(fault.fix("--list shows what is left; what KILL does not end waits for a disk or a card: see ps and dmesg there"));
    }
    if found.is_empty() && reaped.is_empty() {
        let of = match (&args.job, &args.server_name) {
            (Some(name), _) => format!("job {name}"),
            (None, Some(name)) => format!("graph servers {name}"),
            (None, None) => "any job".to_owned(),
        };
        let hosts = if all_reached { "any host" } else { "any host that was reached" };
        match &args.signal {
            // who ends a job wants it to be gone; who sends a signal wants somebody to get it
            Some(_) => {
                let fault = Fault::item("--signal", format!("no such process of {of} on {hosts}"));
                report.push(fault.fix("--list shows which there are"));
            }
            None => eprintln!("dgl-reap: no process of {of} on {hosts}"),
        }
    }
    let exit = report.exit();
    if human {
        out.write((plan::table(&found) + &plan::ended(&reaped)).as_bytes());
    } else {
        found.iter().for_each(|one| out.record(one));
        reaped.iter().for_each(|one| out.record(one));
        let cause = match exit {
            Exit::Done => None,
            Exit::ItemFailed => Some("process".to_owned()),
            _ => Some("host".to_owned()),
        };
        let elapsed_ms = term::millis(begun.elapsed());
        out.record(&Summary { ok: exit == Exit::Done, code: exit.code(), cause, elapsed_ms, job: job.cloned(), ..Summary::default() });
    }
    report.check().map(|()| Exit::Done)
}

/// What a host says until its end; `limit` is the longest silence.
fn listen(host: &Host, mut running: Running, limit: Duration, signal: Option<&str>) -> (Vec<Said>, Option<Fault>) {
    running.close_stdin();
    let mut said = Vec::new();
    let fix = "run this again when the host is up; --list shows what is left";
    let fault = |problem: String| Some(Fault::unreachable(host.place(), problem).fix(fix));
    loop {
        let heard = running.step(None, limit);
        if heard.is_empty() && running.last_heard().elapsed() >= limit {
            return (said, fault(format!("silent for {} s", limit.as_secs())));
        }
        for heard in heard {
            match heard {
                Heard::Line(line) => said.extend(plan::said(host.id, &String::from_utf8_lossy(&line), signal)),
                Heard::Ended(0) => return (said, None),
                Heard::Ended(status) => {
                    return (said, fault(format!("the script there ended with status {status}: {}", running.last_words())));
                }
                Heard::Lost(why) => return (said, fault(why)),
            }
        }
    }
}
