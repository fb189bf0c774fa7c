//! The command that starts agents on all hosts.

use super::ticket::TicketFolder;
use crate::bootstrap::Agents;
use crate::{HostFault, program};
use parking_lot::Mutex;
use record::Host;
use record::quote;
use session::buffered_channel::{keep_tail, last_words};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The command ends by itself after its agents. Its watcher waits this long (dial/engine.rs of
/// host-agent), this tool a little longer.
const LEAVE: Duration = Duration::from_secs(10);
const AT_MOST: Duration = Duration::from_secs(20);

/// The kernel accepts 128 KiB in one word (MAX_ARG_STRLEN), with the text around the command.
const MAX_COMMAND: usize = (128 << 10) - 64;

/// A command for all hosts cannot use these.
pub const OF_ONE_HOST: [&str; 5] = ["{name}", "{login}", "{ip}", "{id}", "{dgl_port}"];

#[derive(Debug, PartialEq, Eq)]
pub struct Filled {
    text: String,
    input: PathBuf,
}

/// Without `{agent}`, the agent is appended.
pub fn fill(command: &str, folder: &TicketFolder, hosts: &[&Host]) -> Result<Filled, HostFault> {
    let path = |path: PathBuf| quote::shown(path.as_os_str().as_encoded_bytes());
    let mut text = command.to_owned();
    if runs_our_agent(command) && !text.contains("{agent}") {
        text.push_str(" {agent}");
    }
    let lists = [
        ("{names}", names(hosts)),
        ("{logins}", list(hosts, Host::target)),
        ("{ips}", list(hosts, |host| host.ip.to_string())),
        ("{count}", hosts.len().to_string()),
    ];
    let text = program::fill_in(&text, &lists)
        .replace("{agent}", &path(folder.agent()))
        .replace("{ticket}", &path(folder.ticket()))
        .replace("{stdin}", "-");
    if text.len() > MAX_COMMAND {
        let fault = HostFault::for_all(format!(
            "with all hosts the command has {} KiB, but the kernel accepts at most 128 KiB",
            text.len().div_ceil(1 << 10)
        ));
        return Err(fault.fix(
            "leave out {names}, {logins} and {ips}: give the number of hosts with {count}, or \
             have the command read their list elsewhere, as from a hostfile",
        ));
    }
    Ok(Filled {
        input: if command.contains("{stdin}") {
            folder.ticket()
        } else {
            PathBuf::from("/dev/null")
        },
        text,
    })
}

pub fn names(hosts: &[&Host]) -> String {
    list(hosts, Host::name_or_ip)
}

fn list(hosts: &[&Host], value: impl Fn(&Host) -> String) -> String {
    let values: Vec<String> = hosts.iter().map(|host| value(host)).collect();
    values.join(",")
}

/// Whether a command runs the agent that this tool put into the shared directory.
pub fn runs_our_agent(command: &str) -> bool {
    let has_own = command.contains("{ticket}") || command.contains("{stdin}");
    command.contains("{agent}") || !has_own
}

#[derive(Debug, Default)]
struct EngineOutput {
    stderr_tail: Vec<u8>,
    bytes: u64,
    status: Option<i32>,
}

pub struct Engine {
    name: String,
    watcher: Mutex<Child>,
    /// Its end shows the watcher that this tool has ended.
    presence: Mutex<Option<ChildStdin>>,
    output: Arc<Mutex<EngineOutput>>,
}

impl Engine {
    pub fn start(
        command: &str,
        filled: &Filled,
        folder: &TicketFolder,
    ) -> Result<Engine, HostFault> {
        let name = command.split_whitespace().next().unwrap_or(command);
        let failed = |error: std::io::Error| HostFault::for_all(format!("host-agent: {error}"));
        let mut watcher = watch(Agents::found()?.for_this_machine()?, folder.path(), filled)
            .spawn()
            .map_err(failed)?;
        let output: Arc<Mutex<EngineOutput>> = Arc::default();
        let (presence, status, stderr) = (
            watcher.stdin.take(),
            watcher.stdout.take(),
            watcher.stderr.take(),
        );
        for (status, stderr) in status.into_iter().zip(stderr) {
            keep_output(status, stderr, &output).map_err(failed)?;
        }
        Ok(Engine {
            name: name.to_owned(),
            watcher: Mutex::new(watcher),
            presence: Mutex::new(presence),
            output,
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn status(&self) -> Option<i32> {
        self.output.lock().status
    }

    /// Engines that only submit a request end at once with 0.
    pub fn has_failed(&self) -> bool {
        self.status().is_some_and(|code| code != 0)
    }

    pub fn written_bytes(&self) -> u64 {
        self.output.lock().bytes
    }

    pub fn written_since(&self, before: u64) -> Vec<u8> {
        let output = self.output.lock();
        let fresh = usize::try_from(output.bytes - before).unwrap_or(usize::MAX);
        let tail = &output.stderr_tail;
        tail[tail.len().saturating_sub(fresh)..].to_vec()
    }

    pub fn last_words(&self) -> String {
        last_words(&self.output.lock().stderr_tail)
    }

    /// Explains why an agent is missing: the command ended first, or time ran out.
    pub fn why_absent(&self, event: &str, missing: &str, limit: Duration) -> String {
        let (name, output) = (&self.name, self.output.lock());
        let late = format!("{missing} within {} s", limit.as_secs_f32());
        let words = last_words(&output.stderr_tail);
        let colon = if words.is_empty() { "" } else { ": " };
        match output.status {
            Some(0) => format!("{late}; {name} ended with status 0{colon}{words}"),
            Some(code) => format!("{name} ended with status {code} before {event}{colon}{words}"),
            None if words.is_empty() => late,
            None => format!("{late}; {name} said: {words}"),
        }
    }

    /// Waits for the command to end after its agents; ends it at once if none ever connected. May
    /// return a notice.
    pub fn end(&self, has_agents: bool) -> Option<String> {
        let begun = Instant::now();
        if let Some(mut presence) = self.presence.lock().take() {
            // a command that has ended needs no message
            let _ = presence.write_all(if has_agents { b"e" } else { b"n" });
        }
        program::end_within(&mut self.watcher.lock(), AT_MOST);
        (begun.elapsed() >= LEAVE).then(|| {
            format!(
                "{} did not exit within {} s of its agents, and was stopped",
                self.name,
                LEAVE.as_secs()
            )
        })
    }
}

/// The agent of this machine ends the command if this tool is killed.
fn watch(agent: &Path, folder: &Path, filled: &Filled) -> Command {
    let mut watcher = Command::new(agent);
    watcher
        .arg("engine")
        .args([folder, &filled.input])
        .arg(&filled.text)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // a process group of its own: Ctrl-C must not break the connection over which the job is
        // ended
        .process_group(0);
    watcher
}

fn keep_output(
    status: ChildStdout,
    mut stderr: ChildStderr,
    output: &Arc<Mutex<EngineOutput>>,
) -> std::io::Result<()> {
    let (of_status, of_stderr) = (Arc::clone(output), Arc::clone(output));
    std::thread::Builder::new().spawn(move || {
        let mut line = String::new();
        if BufReader::new(status).read_line(&mut line).is_ok() {
            of_status.lock().status = line.trim().parse().ok();
        }
    })?;
    std::thread::Builder::new().spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = stderr.read(&mut buffer) {
            let mut output = of_stderr.lock();
            output.bytes += count as u64;
            keep_tail(&mut output.stderr_tail, &buffer[..count]);
        }
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::IpAddr;

    #[test]
    fn what_stands_in_a_command() {
        let folder = TicketFolder::existing(Path::new("/c a/dial-1"));
        let host = |name: &str, last: u8| Host {
            ip: IpAddr([10, 0, 0, last].into()),
            name: Some(name.to_owned()),
            ..Host::default()
        };
        let hosts = [host("n1", 1), host("n2", 2)];
        let hosts: Vec<&Host> = hosts.iter().collect();
        let (null, ticket) = ("/dev/null", "/c a/dial-1/ticket");
        let table = [
            ("srun -N2", "srun -N2 '/c a/dial-1/agent'", null),
            (
                "srun -N{count} -w {names} {agent} x",
                "srun -N2 -w n1,n2 '/c a/dial-1/agent' x",
                null,
            ),
            ("./pods {ticket}", "./pods '/c a/dial-1/ticket'", null),
            (
                "clush -w {ips} a dial {stdin}",
                "clush -w 10.0.0.1,10.0.0.2 a dial -",
                ticket,
            ),
        ];
        for (command, text, input) in table {
            let filled = fill(command, &folder, &hosts).unwrap();
            assert_eq!(filled.text, text, "{command}");
            assert_eq!(filled.input, Path::new(input), "{command}");
        }
    }
}
