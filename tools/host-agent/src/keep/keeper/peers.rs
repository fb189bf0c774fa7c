//! The keepers of all hosts: what the leader learns and decides, and what each host does then.

use super::state::{Keeper, Leader, Peer};
use crate::keep::listener::NewPeer;
use job::{Ending, Loss, Step};
use std::time::{Duration, Instant};
use wire::codec;
use wire::keep::PeerMessage;
use wire::supervise::{End, Over, Start};
use wire::{Event, Request};

impl Keeper {
    pub(super) fn own_host(&self) -> u32 {
        self.job.as_ref().map_or(0, |job| job.host)
    }

    pub(super) fn send_to_peers(&mut self, message: &PeerMessage) {
        let bytes = codec::encode(message, &[]);
        for peer in self.peers.values_mut() {
            // a peer that accepts nothing will be missed by its silence
            let _ = peer.link.send(&bytes);
        }
    }

    /// Sends a message to the leader, which may be this keeper.
    fn send_to_leader(&mut self, message: PeerMessage) {
        match self.leader {
            Some(_) => self.lead(self.own_host(), message),
            None => self.send_to_peers(&message),
        }
    }

    /// Reports something about this host to the leader.
    pub(super) fn report(&mut self, event: Event) {
        self.send_to_leader(PeerMessage::Event(event));
    }

    /// Somebody on this host wants the job to end.
    pub(super) fn order(&mut self, request: Request) {
        if matches!(request, Request::End(_) | Request::Kill) {
            self.send_to_leader(PeerMessage::Request(request));
        }
    }

    pub(super) fn admit_peers(&mut self) {
        let Some(leader) = &mut self.leader else {
            return;
        };
        let Some(listener) = &mut leader.listener else {
            return;
        };
        let arrived = listener.turn();
        if self.start.is_some() && listener.is_complete() {
            leader.listener = None;
        }
        for NewPeer {
            host,
            link,
            received,
        } in arrived
        {
            self.peers.insert(host, Peer::new(link, &received));
            self.read_peer(host);
        }
    }

    pub(super) fn read_peer(&mut self, host: u32) {
        let Some(peer) = self.peers.get_mut(&host) else {
            return;
        };
        let (messages, open) = peer.read();
        for message in messages {
            match message {
                message if self.leader.is_some() => self.lead(host, message),
                PeerMessage::Request(request) => self.obey_leader(request),
                PeerMessage::Event(_) => {}
            }
        }
        if !open {
            self.peer_is_gone(host, Loss::KeeperGone);
        }
    }

    pub(super) fn peer_is_gone(&mut self, host: u32, loss: Loss) {
        if self.peers.remove(&host).is_none() {
            return;
        }
        if let Some(leader) = &mut self.leader {
            let steps = leader.job.host_lost(host, loss);
            return self.take(steps);
        }
        let patience = self.patience();
        let pause = self.paused.filter(|(_, at)| at.elapsed() < patience);
        let ending = match pause {
            Some((time, _)) => Ending::paused(time),
            None => Ending::lost(host, loss),
        };
        self.end(self.end_for(ending));
    }

    /// This keeper did not run for so long that others may have taken it for gone.
    pub(super) fn was_paused(&mut self, time: Duration) {
        let (now, patience) = (Instant::now(), self.patience());
        self.paused = Some((time, now));
        if let Some(leader) = &mut self.leader {
            leader.job.paused(time, now, patience);
        }
    }

    /// Handles a message to the leader, which this keeper is.
    fn lead(&mut self, host: u32, message: PeerMessage) {
        let Some(leader) = &mut self.leader else {
            return;
        };
        let (job, now) = (&mut leader.job, Instant::now());
        let steps = match message {
            PeerMessage::Event(Event::Ready) => {
                let was_awaited = leader.awaited.remove(&host);
                if !was_awaited || !leader.awaited.is_empty() || job.ending().is_some() {
                    return;
                }
                job.begin(now);
                vec![Step::Send(Request::Start(Start::default()))]
            }
            PeerMessage::Event(event) => job.event(host, &event, now),
            PeerMessage::Request(order @ (Request::End(_) | Request::Kill)) => {
                job.order(&order, now)
            }
            PeerMessage::Request(Request::Alive) => return,
            PeerMessage::Request(_) => job.host_lost(host, "it speaks as the leader of the job"),
        };
        self.take(steps);
    }

    pub(super) fn check_limits(&mut self, now: Instant) {
        let own = self.own_host();
        let Some(Leader {
            job,
            awaited,
            join_until,
            ..
        }) = &mut self.leader
        else {
            return;
        };
        let steps = match awaited.len() {
            0 => {
                let action = job.tick(now);
                job.steps(action)
            }
            missing if now >= *join_until => {
                let hosts = self.job.as_ref().map_or(0, |job| job.hosts);
                let missing = u32::try_from(missing).unwrap_or(u32::MAX);
                let joined = hosts.saturating_sub(missing);
                job.host_lost(own, Loss::NotJoined { joined, hosts })
            }
            _ => return,
        };
        self.take(steps);
    }

    /// Does on all hosts what the leader has decided.
    fn take(&mut self, steps: Vec<Step>) {
        for step in steps {
            match step {
                Step::Note(event) => self.note(event),
                Step::Send(request) => {
                    self.send_to_peers(&request.clone().into());
                    self.obey_leader(request);
                }
            }
        }
    }

    /// Does on this host what the leader has decided.
    fn obey_leader(&mut self, request: Request) {
        match (request, &self.start) {
            (Request::Start(_), Some(start))
                if self.ending.is_none() && !self.supervisor.started =>
            {
                self.supervisor.started = true;
                self.supervisor.ask(&Request::Start(start.clone()));
            }
            (Request::End(end), _) => self.end(end),
            (Request::Kill, _) => self.supervisor.ask(&Request::Kill),
            (Request::Stand(stand), _) if self.ending.is_none() => {
                self.supervisor.ask(&Request::Stand(stand));
            }
            _ => {}
        }
    }

    pub(super) fn end_for(&self, ending: Ending) -> End {
        End {
            grace_ms: self.job.as_ref().map_or(0, |job| job.grace_ms),
            stacks: false,
            ending,
        }
    }

    /// Ends the job on this host; only the first cause counts.
    fn end(&mut self, end: End) {
        if self.ending.is_some() {
            return;
        }
        self.ending = Some(end.ending.clone());
        if self.start.is_none() {
            return;
        }
        if !self.supervisor.started {
            return self.end_before_start(end.ending);
        }
        self.note(Event::Ending(end.ending.clone()));
        self.supervisor.ask(&Request::End(end));
    }

    /// Ends the job before anything was started.
    pub(super) fn end_before_start(&mut self, ending: Ending) {
        self.note(Event::Ending(ending));
        self.note(Event::Over(Over { survivors: 0 }));
        self.supervisor.requests.close();
        self.over = Some(Instant::now());
    }
}
