//! Starts the agent on a host, and copies it there if it is missing.

use super::bootstrap::{Agents, no_agent};
use super::openssh::{self, LoginFailure};
use super::options::{RemoteOptions, STOP_CHECKED};
use record::term;
use session::buffered_channel::{Body, BufferedChannel, SSH_FAILED};
use session::channel::Channel;
use session::{HostFault, Session, reasons, session_token};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most bytes before the agent runs. A login shell that writes more never stops.
const MAX_GREETING: usize = 1 << 20;
/// How often a host may ask for the agent; the bootstrap tries five directories.
const MAX_DELIVERIES: usize = 8;
/// All deliveries together may take this many times the limit for progress: 5 minutes by default.
const MOST_LIMITS: u32 = 30;
/// The size of the first piece of an agent, in bytes. Each piece may be [`PIECE_GROWTH`] times as
/// large as the previous one, so that a link that only begins fast misleads little.
const FIRST_PIECE: usize = 64 << 10;
const PIECE_GROWTH: usize = 8;
const LEAST_PIECE: usize = 4 << 10;
/// Each login has a piece in memory.
const MAX_PIECE: usize = 4 << 20;
const MAX_SHELL_OUTPUT: usize = 200;

/// A shell runs [`super::bootstrap::COMMAND`] there. `may_lack_proxy` if ssh may not have reached
/// the host, because of a jump host or ProxyCommand.
pub fn start_agent(
    channel: Box<dyn Channel>,
    options: &RemoteOptions,
    may_lack_proxy: bool,
) -> Result<Session, HostFault> {
    let token = session_token()?;
    let agents = Agents::found()?;
    let mut channel = BufferedChannel::new(channel);
    channel.send(Body::Bytes(agents.script(&token)));
    greet(channel, token, agents, options, may_lack_proxy)
}

pub fn start_local_agent(options: &RemoteOptions) -> Result<Session, HostFault> {
    let token = session_token()?;
    let agents = Agents::found()?;
    let channel = super::program::run(agents.for_this_machine()?, &["serve", &token])?;
    greet(BufferedChannel::new(channel), token, agents, options, false).map(Session::with_child)
}

/// The agent has dialed in and was asked to serve.
pub fn greet_dialed(
    channel: Box<dyn Channel>,
    token: String,
    options: &RemoteOptions,
) -> Result<Session, HostFault> {
    greet(
        BufferedChannel::new(channel),
        token,
        Agents::found()?,
        options,
        false,
    )
}

fn greet(
    channel: BufferedChannel,
    token: String,
    agents: &Agents,
    options: &RemoteOptions,
    may_lack_proxy: bool,
) -> Result<Session, HostFault> {
    let mut greeting = Greeting {
        channel,
        token,
        line: Vec::new(),
        shell_output: String::new(),
        received: 0,
        deliveries: 0,
        delivery: None,
        instead: None,
        began: Instant::now(),
        last_progress: Instant::now(),
        may_lack_proxy,
    };
    match greeting.wait_for_agent(agents, options) {
        Ok(rest) => {
            // the login shell's output does not explain later failures
            greeting.channel.forget_stderr();
            Ok(Session::resumed(greeting.channel, &rest))
        }
        Err(fault) => {
            greeting.channel.channel.give_up();
            Err(fault)
        }
    }
}

/// What arrived before the agent runs.
struct Greeting {
    channel: BufferedChannel,
    token: String,
    line: Vec<u8>,
    /// The last line that is not the bootstrap's: a shell such as nologin writes why it ends.
    shell_output: String,
    /// In bytes.
    received: usize,
    deliveries: usize,
    delivery: Option<AgentDelivery>,
    /// The shell that has replaced the login shell, and that one.
    instead: Option<(String, String)>,
    began: Instant,
    /// When the greeting began, or the host last requested the agent or confirmed a piece of it.
    last_progress: Instant,
    may_lack_proxy: bool,
}

/// An agent that is sent in pieces, which the host confirms: the connector may buffer many bytes.
struct AgentDelivery {
    agent: Arc<[u8]>,
    queued: usize,
    /// The size of the last piece.
    piece: usize,
    since: Instant,
}

/// The time for a shell to print its name after the end of its stdin.
const LAST_WORDS: Duration = Duration::from_secs(2);

impl Greeting {
    /// Returns what follows the agent's first line.
    fn wait_for_agent(
        &mut self,
        agents: &Agents,
        options: &RemoteOptions,
    ) -> Result<Vec<u8>, HostFault> {
        let limit = options.connect_timeout;
        loop {
            // on a slow link the agent may take longer, as long as pieces arrive
            let left = limit.saturating_sub(self.last_progress.elapsed());
            if let Some(rest) = self.turn(agents, limit, left)? {
                return Ok(rest);
            }
            if options.is_stopped() {
                return Err(HostFault::stopped());
            }
            if self.began.elapsed() >= limit * MOST_LIMITS {
                let seconds = (limit * MOST_LIMITS).as_secs_f32();
                let problem = format!("it has not received host-agent within {seconds} s");
                let fault = HostFault::unreachable(problem);
                return Err(fault.fix("allow more time with DGL_TOOLS_CONNECT_TIMEOUT"));
            }
            // what had arrived was read, and may have been progress
            if left.is_zero() && self.last_progress.elapsed() >= limit {
                return Err(self.silent(limit, agents));
            }
        }
    }

    /// Sends, receives or waits once; returns what follows the agent's first line.
    fn turn(
        &mut self,
        agents: &Agents,
        limit: Duration,
        left: Duration,
    ) -> Result<Option<Vec<u8>>, HostFault> {
        self.channel.write_some();
        let received = self.channel.receive();
        let received = received.map_err(|error| {
            HostFault::unreachable(reasons::explain_libssh2(&error.to_string()))
        })?;
        if let Some(count) = received {
            let bytes = self.channel.buffer[..count].to_vec();
            return self.handle(&bytes, agents, limit);
        }
        if self.channel.is_closed() {
            return Err(self.lost());
        }
        self.channel.wait(None, left.min(STOP_CHECKED));
        Ok(None)
    }

    /// Returns what follows the agent's first line.
    fn handle(
        &mut self,
        bytes: &[u8],
        agents: &Agents,
        limit: Duration,
    ) -> Result<Option<Vec<u8>>, HostFault> {
        self.received += bytes.len();
        if self.received > MAX_GREETING {
            return Err(HostFault::unreachable(format!(
                "its login shell prints more than {MAX_GREETING} bytes before it runs a command"
            ))
            .fix("check what start-up files such as ~/.bashrc print on the host"));
        }
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.line.extend_from_slice(&rest[..end]);
            rest = &rest[end + 1..];
            let line = std::mem::take(&mut self.line);
            let text = String::from_utf8_lossy(&line);
            let Some(words) = text.strip_prefix(self.token.as_str()).map(str::trim) else {
                self.remember(&text);
                continue;
            };
            let (word, about) = words.split_once(' ').unwrap_or((words, ""));
            let (first, second) = about.split_once(' ').unwrap_or((about, ""));
            match word {
                "runs" => return Ok(Some(rest.to_vec())),
                "need" => self.start_delivery(agents.bytes(first, second == "gzip")?)?,
                "took" => self.continue_delivery(limit)?,
                "refused" => return Err(refused(about)),
                "instead" => {
                    if let Some(command) = self.channel.channel.command() {
                        return Err(joined(command));
                    }
                    self.instead = Some((first.to_owned(), second.to_owned()));
                }
                _ => self.remember(&text),
            }
        }
        self.line.extend_from_slice(rest);
        Ok(None)
    }

    /// An honest host receives an agent completely before it asks for another.
    fn start_delivery(&mut self, agent: Arc<[u8]>) -> Result<(), HostFault> {
        self.deliveries += 1;
        if self.delivery.is_some() || self.channel.pending() > 0 {
            let problem = "it asks for host-agent again before it has received the last one";
            return Err(HostFault::unreachable(problem));
        }
        if self.deliveries > MAX_DELIVERIES {
            let problem = format!("it asks for host-agent more than {MAX_DELIVERIES} times");
            return Err(HostFault::unreachable(problem));
        }
        self.send_piece(agent, 0, FIRST_PIECE);
        Ok(())
    }

    fn continue_delivery(&mut self, limit: Duration) -> Result<(), HostFault> {
        let delivery = self.delivery.take();
        let Some(delivery) = delivery.filter(|_| self.channel.pending() == 0) else {
            let problem = "it confirms a piece of host-agent that was not sent";
            return Err(HostFault::unreachable(problem));
        };
        let piece = next_piece(delivery.piece, delivery.since.elapsed(), limit);
        self.send_piece(delivery.agent, delivery.queued, piece);
        Ok(())
    }

    /// Queues at most `piece` bytes of an agent from `start`, or its end.
    fn send_piece(&mut self, agent: Arc<[u8]>, start: usize, piece: usize) {
        self.last_progress = Instant::now();
        let piece = piece.min(agent.len() - start);
        let queued = start + piece;
        let mut bytes = format!("{piece}\n").into_bytes();
        bytes.extend_from_slice(&agent[start..queued]);
        self.channel.send(Body::Bytes(bytes));
        self.delivery = (piece > 0).then_some(AgentDelivery {
            agent,
            queued,
            piece,
            since: self.last_progress,
        });
    }

    fn remember(&mut self, words: &str) {
        if !words.trim().is_empty() {
            self.shell_output = term::cut(words.trim(), MAX_SHELL_OUTPUT);
        }
    }

    fn lost(&mut self) -> HostFault {
        let unfinished = std::mem::take(&mut self.line);
        self.remember(&String::from_utf8_lossy(&unfinished));
        if let Some(fault) = self.startup_file_fault() {
            return fault;
        }
        let why = self.channel.why_ended();
        let stderr = self.channel.stderr();
        let failure = openssh::failure(&stderr, self.may_lack_proxy);
        if failure == LoginFailure::Proxy {
            return openssh::proxy_fault(&stderr, &why);
        }
        let problem = if self.channel.command_stderr().is_empty() && !self.shell_output.is_empty() {
            format!("{why}; its login shell printed: {}", self.shell_output)
        } else {
            why
        };
        let command = self.channel.channel.command();
        let fix = command.and_then(|_| reasons::fix_of_srun(&self.channel.last_words()));
        HostFault {
            fix: fix.map(str::to_owned),
            again: failure == LoginFailure::HungUp,
            timed_out: failure == LoginFailure::Unreachable,
            ..HostFault::unreachable(problem)
        }
    }

    /// The fault of a start-up file that ends the login shell or replaces it.
    fn startup_file_fault(&mut self) -> Option<HostFault> {
        if self.channel.channel.command().is_some() {
            return None;
        }
        let stderr = self.channel.last_words();
        if let Some((shell, login_shell)) = &self.instead {
            return Some(startup_file_starts(shell, login_shell));
        }
        if let Some(program) = reasons::wants_a_terminal(&stderr)
            .or_else(|| reasons::wants_a_terminal(&self.shell_output))
        {
            return Some(startup_file_starts(program, ""));
        }
        // output explains the end
        if !stderr.is_empty() || !self.shell_output.is_empty() {
            return None;
        }
        let status = self.channel.channel.exit_status()?;
        if status.code() == Some(SSH_FAILED) {
            return None;
        }
        let fault = HostFault::unreachable(format!(
            "its login shell ended before it ran a command, {status}"
        ));
        Some(fault.fix(format!(
            "check what ends the shell on the host, such as `exit` in ~/.bashrc; {RETURN_EARLY}"
        )))
    }

    /// A shell that first reads all of its stdin prints its name afterwards.
    fn silent(&mut self, limit: Duration, agents: &Agents) -> HostFault {
        let mut stderr = self.channel.command_stderr();
        if self.channel.channel.command().is_none() {
            stderr.clear();
            self.channel.close_stdin();
            let until = Instant::now() + LAST_WORDS;
            let left = || until.saturating_duration_since(Instant::now());
            while self.instead.is_none()
                && !self.channel.is_closed()
                && !left().is_zero()
                && self.turn(agents, limit, left()).is_ok()
            {}
        }
        if let Some((shell, login_shell)) = &self.instead {
            return startup_file_starts(shell, login_shell);
        }
        // a forced command, or a shell that asks something, has answered in place of the agent
        if stderr.is_empty() && !self.shell_output.is_empty() {
            let seconds = limit.as_secs_f32();
            let problem = format!(
                "the login runs another program than a shell, or one that waits for an answer: \
                 host-agent did not start within {seconds} s; it printed: {}",
                self.shell_output
            );
            return HostFault::unreachable(problem).fix(
                "see what it prints when you log in by hand with ssh. For another user, name it in \
                 ssh_config, in the list of hosts (NAME@HOST) or in DGL_TOOLS_SSH_USERNAME",
            );
        }
        HostFault::silent(limit, &stderr)
    }
}

const RETURN_EARLY: &str = "have the file return before that if there is no terminal: in bash, \
    `[[ $- == *i* ]] || return`";

fn startup_file_starts(program: &str, login_shell: &str) -> HostFault {
    let file = match login_shell.rsplit('/').next().unwrap_or_default() {
        "bash" => "~/.bashrc",
        "zsh" => "~/.zshenv",
        "fish" => "~/.config/fish/config.fish",
        "csh" => "~/.cshrc",
        "tcsh" => "~/.tcshrc or ~/.cshrc",
        _ => "a start-up file such as ~/.bashrc",
    };
    let program: String = program.chars().filter(|c| !c.is_control()).collect();
    let problem = format!(
        "{file} on the host starts {program} even for logins without a \
                           terminal"
    );
    HostFault::unreachable(problem).fix(RETURN_EARLY)
}

/// The command joins its arguments to one line, which another shell splits.
fn joined(command: &str) -> HostFault {
    let fix = match command.rsplit('/').next() {
        Some("ssh") => "use --connect ssh, which takes its options from ssh_config".to_owned(),
        _ => format!(
            "{command} must pass on each word that follows it as a separate argument, as \
             `env` does; for ssh, use --connect ssh"
        ),
    };
    let problem = format!("{command} joins the words that follow it into one command line");
    HostFault::unreachable(problem).fix(fix)
}

/// The size of the piece after one that was confirmed after `elapsed`: what the same rate carries
/// in a quarter of `limit`, the longest allowed silence. So a link may slow down to a quarter of
/// its rate, and a fast one needs few pieces.
fn next_piece(piece: usize, elapsed: Duration, limit: Duration) -> usize {
    let quarter = limit.as_micros() / 4 * piece as u128 / elapsed.as_micros().max(1);
    let most = (piece * PIECE_GROWTH).clamp(LEAST_PIECE, MAX_PIECE);
    usize::try_from(quarter)
        .unwrap_or(usize::MAX)
        .clamp(LEAST_PIECE, most)
}

fn refused(why: &str) -> HostFault {
    match why.split_once(' ').unwrap_or((why, "")) {
        ("machine", machine) => no_agent(machine),
        (_, tried) => {
            let printable: String = tried
                .chars()
                .filter(|c| !c.is_control())
                .take(1000)
                .collect();
            HostFault::unreachable(format!(
                "no directory on the host can hold and run host-agent; tried:{}",
                printable.trim_end()
            ))
            .fix(
                "name one that allows execution in DGL_TOOLS_AGENT_DIR on the host, in what its \
                 login shell reads (~/.bashrc, ~/.zshenv)",
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Request;
    use wire::codec;

    #[test]
    fn a_piece_is_what_a_quarter_of_the_limit_carries() {
        let limit = Duration::from_secs(8);
        // the last piece, its milliseconds, the next piece
        let table = [
            (64 << 10, 0, 512 << 10),
            (64 << 10, 1, 512 << 10),
            (64 << 10, 1000, 128 << 10),
            (64 << 10, 2000, 64 << 10),
            (64 << 10, 8000, 16 << 10),
            (4 << 10, 8000, 4 << 10),
            (512 << 10, 1000, 1 << 20),
            (1 << 20, 1, 4 << 20),
        ];
        for (piece, millis, next) in table {
            assert_eq!(
                next_piece(piece, Duration::from_millis(millis), limit),
                next,
                "{piece} bytes in {millis} ms"
            );
        }
    }

    /// As with an agent whose host hangs, part of a long request is never sent.
    #[test]
    fn a_host_that_takes_nothing_is_not_waited_for_without_end() {
        let sleeps = crate::program::run("sleep".as_ref(), &["30"]).unwrap();
        let mut session = Session::new(sleeps);
        let ip = record::IpAddr::default();
        let mut process = record::Process::new(0, 0, ip, record::Role::Worker, 0);
        process.cwd = Some("x".repeat(codec::MAX_LINE / 2));
        let request = Request::Process(Box::new(process));
        // more than any pipe holds
        (0..8).for_each(|_| session.send(&request));
        let fault = session.ask(&request, Duration::from_millis(500));
        let problem = fault.unwrap_err().problem;
        assert!(
            problem.contains("its answer was not complete within"),
            "{problem}"
        );
        assert!(session.pending() > 0);
    }
}
