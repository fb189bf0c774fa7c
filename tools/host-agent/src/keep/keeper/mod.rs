//! The keeper: one event loop for a detached job, in which nothing blocks. Until the job
//! starts, it passes on what the launcher and the agent that supervises send each other.

mod launcher;
mod peers;
mod state;
mod supervisor;

use job::{Ending, Loss, ONE_SIGNAL, heartbeat};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use record::term;
use state::{Keeper, Peer};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use wire::{Event, Failure, Request};

/// How often time limits are checked.
const PACE: Duration = Duration::from_secs(1);
/// How many milliseconds it waits for a disk that has too much to write.
const DISK_PACE: u16 = 10;

/// `host-agent keep on`: keeps a job for the launcher behind stdin and stdout, a socket.
pub fn keep() -> ExitCode {
    match Keeper::begin() {
        Ok(mut keeper) => keeper.run(),
        Err(error) => {
            crate::output::Output::default().event(&Event::Failed(Failure::new(format!(
                "the job cannot be kept: {error}"
            ))));
            ExitCode::FAILURE
        }
    }
}

/// What poll(2) reported as ready.
#[derive(Clone, Copy)]
enum Ready {
    Launcher,
    LauncherOut,
    Supervisor,
    SupervisorIn,
    Signals,
    Listener,
    Peer(u32),
    Orders,
    Order(u64),
}

impl Keeper {
    fn run(&mut self) -> ExitCode {
        while !self.is_done() {
            let ready = match self.wait() {
                Ok(ready) => ready,
                Err(_) => return ExitCode::FAILURE,
            };
            let paused = self.pauses.turn(term::uptime(), self.patience());
            if let Some(time) = paused.filter(|_| self.start.is_some()) {
                self.was_paused(time);
            }
            for one in ready {
                self.handle(one);
            }
            self.keep_alive();
            if self.checked.elapsed() >= PACE {
                self.checked = Instant::now();
                self.tick();
            }
        }
        let _ = self.supervisor.child.try_wait();
        ExitCode::SUCCESS
    }

    /// Whether nothing is left to do: the launcher left before the job was kept, or everything has
    /// ended, is written down, and all keepers know it.
    fn is_done(&self) -> bool {
        if self.start.is_none() {
            return self.launcher.is_none();
        }
        let Some(over) = self.over.filter(|_| self.ending.is_some()) else {
            return false;
        };
        let files = self.files.as_ref();
        if files.is_some_and(|files| !files.writer.is_done()) {
            return false;
        }
        self.leader.is_none() || self.peers.is_empty() || over.elapsed() >= self.patience()
    }

    fn wait(&self) -> io::Result<Vec<Ready>> {
        let (input, output) = (PollFlags::POLLIN, PollFlags::POLLOUT);
        let mut fds: Vec<(BorrowedFd<'_>, PollFlags, Ready)> =
            vec![(self.signals.as_fd(), input, Ready::Signals)];
        if let Some(launcher) = &self.launcher {
            fds.push((launcher.as_fd(), input, Ready::Launcher));
        }
        if let Some(fd) = self.launcher_out.wants() {
            fds.push((fd, output, Ready::LauncherOut));
        }
        let has_room = self.has_room();
        if has_room && !self.supervisor.events.has_ended() {
            fds.push((self.supervisor.events.as_fd(), input, Ready::Supervisor));
        }
        if let Some(fd) = self.supervisor.requests.wants() {
            fds.push((fd, output, Ready::SupervisorIn));
        }
        if let Some(listener) = self
            .leader
            .as_ref()
            .and_then(|leader| leader.listener.as_ref())
        {
            fds.push((listener.as_fd(), input, Ready::Listener));
        }
        for (host, Peer { link, .. }) in &self.peers {
            fds.push((link.as_fd(), link.wait_for(), Ready::Peer(*host)));
        }
        if let Some(files) = &self.files {
            let (listener, connected) = files.orders.wait_for();
            fds.push((listener, input, Ready::Orders));
            fds.extend(connected.map(|(number, fd)| (fd, input, Ready::Order(number))));
        }
        let mut polled: Vec<PollFd<'_>> = fds
            .iter()
            .map(|(fd, flags, _)| PollFd::new(*fd, *flags))
            .collect();
        let pace: u16 = if has_room { 250 } else { DISK_PACE };
        match poll(&mut polled, PollTimeout::from(pace)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let found = polled
            .iter()
            .zip(&fds)
            .filter(|(fd, _)| fd.any().unwrap_or(false));
        Ok(found.map(|(_, (_, _, ready))| *ready).collect())
    }

    fn handle(&mut self, ready: Ready) {
        match ready {
            Ready::Launcher => self.read_launcher(),
            Ready::LauncherOut => {
                self.launcher_out.write();
                self.let_launcher_go();
            }
            Ready::Supervisor => self.read_supervisor(),
            Ready::SupervisorIn => self.supervisor.requests.write(),
            Ready::Signals => self.read_signals(),
            Ready::Listener => self.admit_peers(),
            Ready::Peer(host) => self.read_peer(host),
            Ready::Orders => {
                if let Some(files) = &mut self.files {
                    files.orders.accept();
                }
            }
            Ready::Order(number) => {
                let orders = self
                    .files
                    .as_mut()
                    .map_or(Vec::new(), |files| files.orders.read(number));
                orders.into_iter().for_each(|order| self.order(order));
            }
        }
    }

    /// One SIGTERM ends the job, and a second one that is not of the same moment ends it at once.
    fn read_signals(&mut self) {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            let now = Instant::now();
            match self.terminated {
                _ if signal.ssi_signo != Signal::SIGTERM as u32 => {}
                None => {
                    self.terminated = Some(now);
                    self.order(Request::End(self.end_for(Ending::default())));
                }
                Some(first) if now >= first + ONE_SIGNAL => self.order(Request::Kill),
                Some(_) => {}
            }
        }
    }

    fn keep_alive(&mut self) {
        if self.sent_alive.elapsed() < heartbeat(self.patience()) {
            return;
        }
        self.sent_alive = Instant::now();
        // also while other hosts are waited for, because it holds what the job has claimed
        if self.start.is_some() {
            self.supervisor.ask(&Request::Alive);
        }
        self.send_to_peers(&Request::Alive.into());
    }

    fn tick(&mut self) {
        let (now, patience) = (Instant::now(), self.patience());
        // also those whose time is over, which nothing reports
        self.admit_peers();
        if self.start.is_none() {
            return;
        }
        let silent = self
            .peers
            .iter()
            .filter(|(_, peer)| now >= peer.received + patience);
        let silent: Vec<u32> = silent.map(|(host, _)| *host).collect();
        for host in silent {
            self.peer_is_gone(host, Loss::Silent(patience));
        }
        self.check_supervisor(now);
        self.check_limits(now);
    }
}
