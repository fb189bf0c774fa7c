//! The keeper: one event loop for a job that was left, in which nothing blocks. Until the job
//! starts, it passes on what the launcher and the agent that supervises send each other.

mod agent;
mod launcher;
mod peer;
mod peers;
mod state;
mod supervisor;

use job::{Loss, heartbeat};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use peer::Peer;
use record::term;
use state::{Keeper, Place};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use wire::keep::PeerMessage;
use wire::{Event, Failure, Request};

/// How often time limits are checked.
const PACE: Duration = Duration::from_secs(1);

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
    Guests,
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
            if self.looked.elapsed() >= PACE {
                self.looked = Instant::now();
                self.tick();
            }
        }
        let _ = self.supervisor.child.try_wait();
        ExitCode::SUCCESS
    }

    /// Whether nothing is left to do: the launcher left before the job was kept, or everything has
    /// ended and all keepers know it.
    fn is_done(&self) -> bool {
        if self.start.is_none() {
            return self.launcher.is_none();
        }
        let Some(over) = self.over.filter(|_| self.ending.is_some()) else {
            return false;
        };
        match &self.place {
            Place::Leads { peers, .. } => peers.is_empty() || over.elapsed() >= self.patience(),
            _ => true,
        }
    }

    fn wait(&self) -> io::Result<Vec<Ready>> {
        let mut fds: Vec<(BorrowedFd<'_>, PollFlags, Ready)> =
            vec![(self.signals.as_fd(), PollFlags::POLLIN, Ready::Signals)];
        let input = PollFlags::POLLIN;
        fds.extend(
            self.launcher
                .as_ref()
                .map(|launcher| (launcher.as_fd(), input, Ready::Launcher)),
        );
        fds.extend(
            self.launcher_out
                .wants()
                .map(|fd| (fd, PollFlags::POLLOUT, Ready::LauncherOut)),
        );
        if !self.supervisor.events.has_ended() {
            fds.push((self.supervisor.events.as_fd(), input, Ready::Supervisor));
        }
        fds.extend(
            self.supervisor
                .requests
                .wants()
                .map(|fd| (fd, PollFlags::POLLOUT, Ready::SupervisorIn)),
        );
        match &self.place {
            Place::Leads { door, peers, .. } => {
                if let Some(door) = door {
                    fds.push((door.as_fd(), input, Ready::Guests));
                }
                fds.extend(peers.iter().map(|(host, peer)| {
                    (peer.link.as_fd(), peer.link.wait_for(), Ready::Peer(*host))
                }));
            }
            Place::Joins {
                host,
                peer: Some(peer),
            } => fds.push((peer.link.as_fd(), peer.link.wait_for(), Ready::Peer(*host))),
            _ => {}
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
        match poll(&mut polled, PollTimeout::from(250u16)) {
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
            Ready::LauncherOut => self.write_launcher(),
            Ready::Supervisor => self.read_supervisor(),
            Ready::SupervisorIn => self.supervisor.requests.write(),
            Ready::Signals => self.read_signals(),
            Ready::Guests => self.admit_guests(),
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
                orders.iter().for_each(|order| self.obey(order));
            }
        }
    }

    fn read_signals(&mut self) {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            if signal.ssi_signo == Signal::SIGTERM as u32 {
                self.tell(PeerMessage::Stop {
                    signal: Some(Signal::SIGTERM as i32),
                });
            }
        }
    }

    fn keep_alive(&mut self) {
        if self.said_alive.elapsed() < heartbeat(self.patience()) {
            return;
        }
        self.said_alive = Instant::now();
        // also while other hosts are waited for, because it holds what the job has claimed
        if self.start.is_some() {
            self.supervisor.ask(&Request::Alive);
        }
        match &mut self.place {
            Place::Leads { peers, .. } => peers
                .values_mut()
                .for_each(|peer| peer.tell(&PeerMessage::Alive)),
            Place::Joins {
                peer: Some(peer), ..
            } => peer.tell(&PeerMessage::Alive),
            _ => {}
        }
    }

    fn tick(&mut self) {
        let (now, patience, own) = (Instant::now(), self.patience(), self.own_host());
        // also those whose time is over, which nothing reports
        self.admit_guests();
        if self.start.is_none() {
            return;
        }
        let is_silent = |peer: &Peer| now >= peer.heard + patience;
        let silent: Vec<u32> = match &self.place {
            Place::Leads { peers, .. } => peers
                .iter()
                .filter(|(_, peer)| is_silent(peer))
                .map(|(host, _)| *host)
                .collect(),
            Place::Joins {
                host,
                peer: Some(peer),
            } if is_silent(peer) => vec![*host],
            _ => Vec::new(),
        };
        silent
            .into_iter()
            .for_each(|host| self.peer_is_gone(host, Loss::Silent(patience)));
        if self.supervisor.started
            && !self.supervisor.over
            && now >= self.supervisor.heard + patience
        {
            self.tell(PeerMessage::Lost {
                loss: Loss::SupervisorGone,
            });
        }
        self.await_guardian();
        if let Place::Leads { leader, .. } = &mut self.place {
            let decision = leader.tick(own, now);
            self.apply(decision);
        }
    }
}
