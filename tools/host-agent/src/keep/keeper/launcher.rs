//! The keeper and the launcher. Until the job starts, requests are passed on or carried out in
//! their order; afterwards, orders are obeyed.

use super::peer::Peer;
use super::state::{Files, Keeper, Place};
use crate::keep::folder::{Folder, log_name};
use crate::keep::guests::GuestListener;
use crate::keep::journal::{BOOT, Journal};
use crate::keep::leader::Leader;
use crate::keep::orders::Orders;
use crate::keep::servers;
use crate::procfs;
use nix::sys::socket::{Shutdown, shutdown};
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};
use tls::{Link, PublicKey};
use wire::codec::{self, Message};
use wire::job::{Job, Process};
use wire::keep::{Guest, Join, Kept, PeerMessage, Prepare, Prepared, Refusal, Refused};
use wire::supervise::Start;
use wire::{Event, Failure, Request};

/// A keeper reaches the leader within this time, or the network between them cannot carry the job.
const JOIN_LIMIT: Duration = Duration::from_secs(10);

impl Keeper {
    pub(super) fn read_launcher(&mut self) {
        let Some(launcher) = &mut self.launcher else {
            return;
        };
        launcher.read();
        let mut open = !launcher.has_ended();
        loop {
            match launcher.next::<Request>() {
                Ok(Some(request)) => self.queue.push_back(request),
                Ok(None) => break,
                Err(_) => {
                    open = false;
                    break;
                }
            }
        }
        if !open {
            self.launcher = None;
        }
        self.serve();
    }

    pub(super) fn write_launcher(&mut self) {
        self.launcher_out.write();
        self.let_launcher_go();
    }

    /// Stops reporting to the launcher, because the job is kept; it may still send something.
    fn let_launcher_go(&mut self) {
        if self.start.is_some() && self.launcher_out.waiting() == 0 {
            let _ = shutdown(io::stdout().as_raw_fd(), Shutdown::Write);
            self.launcher_out.close();
        }
    }

    fn tell_launcher(&mut self, event: &Event) {
        self.launcher_out.send(&codec::encode(event, &[]));
    }

    /// Serves the launcher's requests in their order. Those that are not for the keeper go on to
    /// the agent that supervises.
    pub(super) fn serve(&mut self) {
        while let Some(request) = self.queue.pop_front() {
            if self.start.is_some() {
                self.obey(&request.head);
            } else if !is_for_keeper(&request.head) {
                self.hand_on(&request);
            } else if self.unanswered > 0 {
                self.queue.push_front(request);
                return;
            } else {
                let answer = self.carry_out(request.head);
                let answer = answer.map_or_else(Event::Failed, |()| Event::Done);
                if self.start.is_none() {
                    self.tell_launcher(&answer);
                }
            }
        }
    }

    fn hand_on(&mut self, request: &Message<Request>) {
        match &request.head {
            Request::Job(job) => {
                self.job = Some(job.clone());
                self.processes.clear();
                self.records.clear();
            }
            Request::Process(process) => self.processes.push(process.clone()),
            _ => {}
        }
        self.unanswered += usize::from(request.head != Request::Alive);
        self.supervisor
            .requests
            .send(&codec::encode(&request.head, &request.body));
    }

    fn carry_out(&mut self, request: Request) -> Result<(), Failure> {
        match request {
            Request::Record(record) => self.records.push(record.record),
            Request::Prepare(prepare) => self.prepare(&prepare)?,
            Request::Guest(guest) => self.expect(&guest)?,
            Request::Join(join) => self.join(&join)?,
            Request::Start(start) => self.keep_from_here(start)?,
            _ => return Err(Failure::new("this is a keeper already")),
        }
        Ok(())
    }

    fn prepare(&mut self, wanted: &Prepare) -> Result<(), Failure> {
        let job = self
            .job
            .clone()
            .ok_or_else(|| Failure::new("there is no job to keep"))?;
        if self.records.len() != self.processes.len() || !matches!(self.place, Place::None) {
            return Err(Failure::new(
                "a job is prepared once, when there is a record of each of its processes",
            ));
        }
        let made = self.make_files(&job, wanted).and_then(|files| {
            let leader = |error: io::Error| Refusal::Leader {
                error: error.to_string(),
            };
            let door = wanted
                .leads
                .then(|| GuestListener::open(job.address, self.identity.clone()))
                .transpose()
                .map_err(leader)?;
            let port = door.as_ref().map(GuestListener::port);
            Ok((files, door, port))
        });
        let (files, door, port) = match made {
            Ok(made) => made,
            Err(why) => {
                self.tell_launcher(&Event::Refused(Refused { why }));
                return Ok(());
            }
        };
        self.files = Some(files);
        self.place = match door {
            Some(door) => {
                let leader = Leader::new(
                    job.hosts as usize,
                    wanted.limits.clone(),
                    wanted.stall,
                    self.patience(),
                    Instant::now(),
                );
                Place::Leads {
                    leader: Box::new(leader),
                    door: Some(Box::new(door)),
                    peers: BTreeMap::new(),
                }
            }
            None => Place::WillJoin,
        };
        let key = self.identity.public_key().to_string();
        self.tell_launcher(&Event::Prepared(Prepared { key, port }));
        Ok(())
    }

    fn make_files(&self, job: &Job, wanted: &Prepare) -> Result<Files, Refusal> {
        let unnamed = || Refusal::Folder {
            path: "~/.local/state/dgl-tools".to_owned(),
            error: "HOME is not set".to_owned(),
        };
        let folder = Folder::of(&job.name, job.address).ok_or_else(unnamed)?;
        let refusal = |error: io::Error| Refusal::Folder {
            path: folder.path().display().to_string(),
            error: error.to_string(),
        };
        let records: String = self
            .records
            .iter()
            .map(|record| format!("{record}\n"))
            .collect();
        let guard = format!("{}\n", std::process::id());
        let boot = procfs::boot_id();
        let facts = wanted
            .serves
            .as_ref()
            .map(servers::facts)
            .transpose()
            .map_err(refusal)?;
        let mut files: Vec<(&str, &[u8])> = vec![
            ("token", job.token.as_bytes()),
            ("guard", guard.as_bytes()),
            (BOOT, boot.as_bytes()),
            ("processes", records.as_bytes()),
        ];
        files.extend(
            facts
                .as_ref()
                .map(|facts| (servers::FACTS, facts.as_bytes())),
        );
        let lock = folder.make(&files)?;
        let log = |process: &Process| folder.append(&log_name(process.role, process.rank));
        Ok(Files {
            _lock: lock,
            journal: Journal::new(&folder).map_err(refusal)?,
            logs: self
                .processes
                .iter()
                .map(log)
                .collect::<io::Result<_>>()
                .map_err(refusal)?,
            orders: Orders::listen(&folder).map_err(refusal)?,
            folder,
        })
    }

    fn expect(&mut self, guest: &Guest) -> Result<(), Failure> {
        let key = PublicKey::try_from(guest.key.clone()).map_err(Failure::new)?;
        let own = self.own_host();
        match &mut self.place {
            Place::Leads {
                door: Some(door), ..
            } if guest.host != own => {
                door.expect(guest.host, key);
                Ok(())
            }
            _ => Err(Failure::new(
                "this host does not lead the job, or is the guest itself",
            )),
        }
    }

    fn join(&mut self, join: &Join) -> Result<(), Failure> {
        let key = PublicKey::try_from(join.key.clone()).map_err(Failure::new)?;
        if !matches!(self.place, Place::WillJoin) {
            return Err(Failure::new("this host joins nobody"));
        }
        // before the start nothing else waits
        let connected = TcpStream::connect_timeout(
            &SocketAddr::from((join.address, join.port)),
            JOIN_LIMIT.min(self.patience()),
        );
        match connected.and_then(|stream| Link::connect(stream, &self.identity, key)) {
            Ok(link) => {
                let peer = Some(Box::new(Peer::new(link, &[], Instant::now())));
                self.place = Place::Joins {
                    host: join.host,
                    peer,
                };
            }
            Err(error) => self.tell_launcher(&Event::Refused(Refused {
                why: Refusal::Leader {
                    error: error.to_string(),
                },
            })),
        }
        Ok(())
    }

    /// From here on the job does not need its launcher. Nothing is started before all hosts have
    /// joined.
    fn keep_from_here(&mut self, start: Start) -> Result<(), Failure> {
        let Some(files) = self
            .files
            .as_ref()
            .filter(|_| !matches!(self.place, Place::WillJoin))
        else {
            return Err(Failure::new("the job is not prepared to be kept"));
        };
        let folder = files.folder.path().into();
        self.tell_launcher(&Event::Kept(Kept { folder }));
        self.start = Some(start);
        self.let_launcher_go();
        let now = Instant::now();
        self.supervisor.heard = now;
        match &mut self.place {
            Place::Leads {
                leader,
                peers,
                door,
            } => {
                leader.wait_from(now);
                *door = door.take().filter(|door| !door.is_complete());
                peers.values_mut().for_each(|peer| peer.heard = now);
            }
            Place::Joins {
                peer: Some(peer), ..
            } => peer.heard = now,
            _ => {}
        }
        if let Some(ending) = self.ending.clone() {
            // another host was lost before
            self.end_before_start(ending);
            return Ok(());
        }
        for process in self.processes.clone() {
            self.tell(PeerMessage::Member {
                role: process.role,
                awaited: process.port.is_some(),
            });
        }
        self.tell(PeerMessage::Joined);
        Ok(())
    }

    /// Obeys somebody who follows the job.
    pub(super) fn obey(&mut self, order: &Request) {
        match order {
            Request::End(_) => self.tell(PeerMessage::Stop { signal: None }),
            Request::Kill => self.tell(PeerMessage::Kill),
            _ => {}
        }
    }
}

/// Whether the keeper itself carries out a request.
fn is_for_keeper(request: &Request) -> bool {
    use Request::{Follow, Guest, Join, Keep, Prepare, Record, Start};
    matches!(
        request,
        Keep | Record(_) | Prepare(_) | Guest(_) | Join(_) | Start(_) | Follow(_)
    )
}
