//! Before the start: what is looked at on each host, and what its answers mean. All hosts look at once; all that is wrong comes in one
//! report, and then nothing is started.

use crate::act::{Event, Site, Stopped};
use crate::plan::Text;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use common::error::{Fault, Report};
use common::quote;
use common::record::{Command, Host, Process, Role};
use common::remote::Heard;
use std::os::unix::ffi::OsStrExt;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// The checks themselves, for the host's script.
pub const SH: &str = include_str!("preflight.sh");

/// Looking at a host takes well under a second; a file system that hangs must not hold the job up for ever.
const PREFLIGHT_LIMIT: Duration = Duration::from_secs(60);

/// The calls that make up one host's look.
pub fn checks(text: &mut Text, host: &Host, processes: &[&Process]) -> Result<(), Fault> {
    let mut seen = std::collections::HashSet::new();
    let mut once = |text: &mut Text, words: Vec<u8>| {
        if seen.insert(words.clone()) {
            text.words([words.as_slice()]);
        }
    };
    let call = |name: &str, words: &[&[u8]]| [name.as_bytes(), b" ", &quote::sh_words(words)].concat();
    for (id, process) in processes.iter().enumerate() {
        let cwd = process.cwd.as_deref().unwrap_or(".").as_bytes();
        once(text, call("check_folder", &[cwd]));
        for (name, check) in [("DGL_CONF_PATH", "check_file"), ("DGL_IP_CONFIG", "check_file"), ("DGL_IP_CONFIG", "check_ip_config")] {
            if let Some(path) = process.env.get(name) {
                once(text, call(check, &[cwd, path.as_bytes()]));
            }
        }
        if let (Command::Words(words), None) = (process.command()?, &process.setup)
            && processes[..id]
                .iter()
                .all(|other| other.argv.as_ref().and_then(|argv| argv.first()) != process.argv.as_ref().and_then(|argv| argv.first()))
        {
            once(text, call("check_command", &[id.to_string().as_bytes(), words[0].as_bytes()]));
        }
        let master =
            process.env.get("MASTER_PORT").filter(|_| host.id == 0 && process.role != Role::Server).and_then(|port| port.parse().ok());
        for port in process.port.into_iter().chain(master) {
            once(text, call("check_port", &[port.to_string().as_bytes(), format!("{port:04X}").as_bytes()]));
        }
    }
    Ok(())
}

/// Lets every host look; all that is wrong anywhere comes in one report.
pub fn look(sites: &[Site<'_>], hosts: &[Host], happening: &Receiver<Event>) -> Result<(), Stopped> {
    let until = Instant::now() + PREFLIGHT_LIMIT;
    let mut ready = vec![false; sites.len()];
    let mut report = Report::default();
    while !ready.iter().all(|ready| *ready) {
        match happening.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Event::Signal(number)) => return Err(Stopped::Signal(number)),
            Ok(Event::Host(at, Heard::Line(line))) => {
                let text = String::from_utf8_lossy(&line);
                match text.split_once(' ').unwrap_or((&text, "")) {
                    ("ready", _) => ready[at] = true,
                    ("fault", problem) => report.push(fault_of(sites[at].host, problem)),
                    ("config", encoded) => report.0.extend(stale_ip_config(sites[at].host, encoded, hosts)),
                    _ => {}
                }
            }
            Ok(Event::Host(at, Heard::Lost(why))) => {
                report.push(Fault::unreachable(sites[at].host.place(), why));
                ready[at] = true;
            }
            Ok(Event::Host(at, Heard::Ended(status))) => {
                report.push(
                    Fault::unreachable(sites[at].host.place(), format!("its shell ended with status {status}"))
                        .fix("it must be a POSIX shell, with base64, grep and sed in its PATH"),
                );
                ready[at] = true;
            }
            Err(_) => {
                for (site, _) in sites.iter().zip(&ready).filter(|(_, ready)| !**ready) {
                    report.push(
                        Fault::unreachable(site.host.place(), format!("looking at it took more than {} s", PREFLIGHT_LIMIT.as_secs()))
                            .fix("is a file system hanging there? --no-preflight skips the look"),
                    );
                }
                break;
            }
        }
    }
    report.check().map_err(Stopped::Preflight)
}

fn fault_of(host: &Host, problem: &str) -> Fault {
    let fault = Fault::unreachable(host.place(), problem);
    match problem {
        _ if problem.starts_with("no such file") || problem.starts_with("no such folder") => {
            fault.fix("copy the job there with part-map and part-push, or correct --workspace")
        }
        _ if problem.starts_with("no such command") => {
            fault.fix("install it there, give its whole path, or set PATH with --env or --setup in dgl-env")
        }
        _ if problem.starts_with("port ") => {
            fault.fix("dgl-reap --list shows what jobs have left, dgl-reap --job NAME ends one; or choose another port in ip_config.txt")
        }
        _ => fault,
    }
}

/// DGL believes the ip_config in the workspace: an old one there starts a job that hangs.
fn stale_ip_config(host: &Host, encoded: &str, hosts: &[Host]) -> Option<Fault> {
    let text = BASE64.decode(encoded).ok()?;
    let text = String::from_utf8_lossy(&text);
    let read = |line: &str| -> Option<(String, u16)> {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_owned(), words.next().map_or(Some(30050), |word| word.parse().ok())?))
    };
    let there: Vec<Option<(String, u16)>> = text.lines().map(read).collect();
    let wanted: Vec<Option<(String, u16)>> = hosts.iter().map(|host| Some((host.ip.to_string(), host.port))).collect();
    match hosts.len() == host.of as usize && there != wanted {
        true => Some(
            Fault::unreachable(host.place(), "the ip_config there is not that of the records")
                .fix("copy it anew with part-map and part-push"),
        ),
        false => None,
    }
}
