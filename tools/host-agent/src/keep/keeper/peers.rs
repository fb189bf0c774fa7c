//! The keeper and those of other hosts: what the leader learns and decides, and what the others do
//! then.

use super::peer::Peer;
use super::state::{Keeper, Place};
use crate::keep::guests::NewGuest;
use crate::keep::leader::Decision;
use job::Loss;
use std::time::{Duration, Instant};
use wire::keep::{Ending, PeerMessage};
use wire::supervise::{End, Over, Stand};
use wire::{Event, Request};

impl Keeper {
    pub(super) fn own_host(&self) -> u32 {
        self.job.as_ref().map_or(0, |job| job.host)
    }

    /// Sends a message to the leader, which may be this keeper.
    pub(super) fn tell(&mut self, message: PeerMessage) {
        match &mut self.place {
            Place::Leads { .. } => self.hear(self.own_host(), message),
            Place::Joins {
                peer: Some(peer), ..
            } => peer.tell(&message),
            _ => {}
        }
    }

    pub(super) fn admit_guests(&mut self) {
        let Place::Leads { door, peers, .. } = &mut self.place else {
            return;
        };
        let Some(listener) = door else { return };
        let mut hosts = Vec::new();
        for NewGuest { host, link, said } in listener.turn() {
            peers.insert(host, Peer::new(link, &said, Instant::now()));
            hosts.push(host);
        }
        if self.start.is_some() && listener.is_complete() {
            *door = None;
        }
        hosts.into_iter().for_each(|host| self.read_peer(host));
    }

    pub(super) fn read_peer(&mut self, host: u32) {
        let now = Instant::now();
        let (messages, open) = match &mut self.place {
            Place::Leads { peers, .. } => match peers.get_mut(&host) {
                Some(peer) => peer.read(now),
                None => return,
            },
            Place::Joins {
                peer: Some(peer), ..
            } => peer.read(now),
            _ => return,
        };
        let leads = matches!(self.place, Place::Leads { .. });
        for message in messages {
            if leads {
                self.hear(host, message);
            } else {
                self.follow_leader(message);
            }
        }
        if !open {
            self.peer_is_gone(host, Loss::KeeperGone);
        }
    }

    pub(super) fn peer_is_gone(&mut self, host: u32, loss: Loss) {
        let was_there = match &mut self.place {
            Place::Leads { peers, .. } => peers.remove(&host).is_some(),
            Place::Joins { peer, .. } => peer.take().is_some(),
            _ => false,
        };
        match &mut self.place {
            Place::Leads { leader, .. } if was_there => {
                let decision = leader.lost(host, loss);
                self.apply(decision);
            }
            Place::Joins { .. } if was_there => {
                let patience = self.patience();
                let pause = self.paused.filter(|(_, at)| at.elapsed() < patience);
                let ending = match pause {
                    Some((time, _)) => Ending::paused(time),
                    None => Ending::lost(host, loss),
                };
                self.end(false, ending);
            }
            _ => {}
        }
    }

    /// This keeper did not run for so long that others may have taken it for gone.
    pub(super) fn was_paused(&mut self, time: Duration) {
        let now = Instant::now();
        self.paused = Some((time, now));
        if let Place::Leads { leader, .. } = &mut self.place {
            leader.paused(time, now);
        }
    }

    /// Handles a message to the leader.
    fn hear(&mut self, host: u32, message: PeerMessage) {
        let Place::Leads { leader, .. } = &mut self.place else {
            return;
        };
        let now = Instant::now();
        let decision = match message {
            PeerMessage::Member { role, awaited } => leader.member(host, role, awaited),
            PeerMessage::Joined => leader.joined(host, now),
            PeerMessage::Listening { index } => leader.listening(host, index),
            PeerMessage::Exited { index, exit } => leader.exited(host, index, exit, now),
            PeerMessage::Lost { loss } => leader.lost(host, loss),
            PeerMessage::ServersEnded(ended) => leader.servers_ended(ended.failure),
            PeerMessage::Stop {
                signal: Some(signal),
            } => leader.stop(host, signal, now),
            PeerMessage::Stop { signal: None } => leader.end(now),
            PeerMessage::Kill => {
                let decisions = leader.kill(now);
                return self.apply_all(decisions);
            }
            PeerMessage::Raised { index, exception } => leader.raised(host, index, exception),
            PeerMessage::Idle { for_ms } => {
                let decisions = leader.idle(host, Duration::from_millis(for_ms));
                return self.apply_all(decisions);
            }
            PeerMessage::Moves(moves) => {
                let decisions = leader.moves(host, moves);
                return self.apply_all(decisions);
            }
            PeerMessage::Stands { number, idle_ms } => {
                let decisions = leader.stands(host, number, Duration::from_millis(idle_ms));
                return self.apply_all(decisions);
            }
            PeerMessage::Alive => None,
            PeerMessage::Begin | PeerMessage::End { .. } | PeerMessage::Stand { .. } => {
                leader.lost(host, "it speaks as the leader of the job".into())
            }
        };
        self.apply(decision);
    }

    fn apply_all(&mut self, decisions: Vec<Decision>) {
        for decision in decisions {
            self.apply(Some(decision));
        }
    }

    /// Applies the leader's decision on all hosts.
    pub(super) fn apply(&mut self, decision: Option<Decision>) {
        let Some(decision) = decision else { return };
        let message = match decision {
            Decision::Begin => PeerMessage::Begin,
            Decision::End { stacks, ending } => PeerMessage::End { stacks, ending },
            Decision::Kill => PeerMessage::Kill,
            Decision::Ask(number) => PeerMessage::Stand { number },
            Decision::Stalled(stalled) => return self.note(Event::Stalled(stalled)),
            Decision::Resumed(resumed) => return self.note(Event::Resumed(resumed)),
        };
        if let Place::Leads { peers, .. } = &mut self.place {
            peers.values_mut().for_each(|peer| peer.tell(&message));
        }
        self.follow_leader(message);
    }

    /// Obeys the leader on this host.
    fn follow_leader(&mut self, message: PeerMessage) {
        match message {
            PeerMessage::Begin => {
                if let Some(start) = self
                    .start
                    .clone()
                    .filter(|_| self.ending.is_none() && !self.supervisor.started)
                {
                    self.supervisor.started = true;
                    self.supervisor.ask(&Request::Start(start));
                }
            }
            PeerMessage::End { stacks, ending } => self.end(stacks, ending),
            PeerMessage::Kill => self.supervisor.ask(&Request::Kill),
            PeerMessage::Stand { number } if self.ending.is_none() => {
                self.supervisor.ask(&Request::Stand(Stand { number }));
            }
            _ => {}
        }
    }

    /// Ends the job on this host; only the first cause counts.
    fn end(&mut self, stacks: bool, ending: Ending) {
        if self.ending.is_some() {
            return;
        }
        self.ending = Some(ending.clone());
        if self.start.is_none() {
            return;
        }
        if !self.supervisor.started {
            return self.end_before_start(ending);
        }
        self.note(Event::Ending(ending));
        let grace_ms = self.job.as_ref().map_or(0, |job| job.grace_ms);
        self.supervisor.ask(&Request::End(End { grace_ms, stacks }));
    }

    /// Ends the job before anything was started.
    pub(super) fn end_before_start(&mut self, ending: Ending) {
        self.note(Event::Ending(ending));
        self.note(Event::Over(Over { survivors: 0 }));
        self.supervisor.over = true;
        self.supervisor.requests.close();
        self.over = Some(Instant::now());
    }
}
