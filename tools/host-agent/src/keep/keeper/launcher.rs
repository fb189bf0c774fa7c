//! The keeper and the launcher. Until the job starts, requests are passed on or carried out;
//! afterwards, orders are obeyed.

use super::state::{Files, Keeper, Leader, Peer};
use crate::keep::file_writer::FileWriter;
use crate::keep::folder::{Folder, RECORDS};
use crate::keep::journal::BOOT;
use crate::keep::listener::PeerListener;
use crate::keep::orders::Orders;
use crate::keep::servers;
use crate::procfs;
use job::Mode;
use nix::sys::socket::{Shutdown, shutdown};
use std::collections::BTreeSet;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};
use tls::{Link, PublicKey};
use wire::codec::{self, Message};
use wire::job::{Job, Process};
use wire::keep::{ExpectPeer, Join, Kept, Member, Prepare, Prepared};
use wire::preflight::Finding;
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
        let (requests, open) = launcher.messages();
        requests.into_iter().for_each(|request| self.serve(request));
        self.launcher.take_if(|_| !open);
    }

    /// Stops reporting to the launcher once the job is kept; it may still send something.
    pub(super) fn let_launcher_go(&mut self) {
        if self.start.is_some() && self.launcher_out.waiting() == 0 {
            let _ = shutdown(io::stdout().as_raw_fd(), Shutdown::Write);
            self.launcher_out.close();
        }
    }

    fn send_to_launcher(&mut self, event: &Event) {
        self.launcher_out.send(&codec::encode(event, &[]));
    }

    fn serve(&mut self, Message { head, body }: Message<Request>) {
        if self.start.is_some() {
            return self.order(head);
        }
        let done = match head {
            Request::Keep | Request::Follow(_) => Err(Failure::new("this is a keeper already")),
            Request::Record(record) => {
                self.records.push(record.record);
                Ok(())
            }
            Request::Prepare(prepare) => self.prepare(*prepare),
            Request::ExpectPeer(peer) => self.expect(peer),
            Request::Join(join) => self.join(&join),
            Request::Start(start) => self.keep_from_here(start),
            other => return self.pass_on(&other, &body),
        };
        self.send_to_launcher(&done.map_or_else(Event::Failed, |()| Event::Done));
        self.let_launcher_go();
    }

    /// Passes a request on to the agent that supervises, which answers it.
    fn pass_on(&mut self, request: &Request, body: &[u8]) {
        match request {
            Request::Job(job) => {
                self.job = Some(job.clone());
                self.processes.clear();
                self.records.clear();
            }
            Request::Process(process) => self.processes.push(process.clone()),
            _ => {}
        }
        self.supervisor.requests.send(&codec::encode(request, body));
    }

    fn prepare(&mut self, wanted: Prepare) -> Result<(), Failure> {
        let job = self
            .job
            .clone()
            .ok_or_else(|| Failure::new("there is no job to keep"))?;
        if self.records.len() != self.processes.len() || self.files.is_some() {
            return Err(Failure::new(
                "a job is prepared once, when there is a record of each of its processes",
            ));
        }
        let Some(files) = self.make_files(&job, &wanted)? else {
            self.send_to_launcher(&Event::Preflight(Finding::NameInUse));
            return Ok(());
        };
        let now = Instant::now();
        let leader = wanted.leads.map(|rules| -> io::Result<Leader> {
            let member = |process: &Process| Member {
                role: process.role,
                service: process.service,
                awaited: process.port.is_some(),
            };
            let own = (job.host, self.processes.iter().map(member).collect());
            Ok(Leader {
                job: job::Job::new(Mode::Deciding, [own], rules, now),
                listener: Some(PeerListener::open(job.address, self.identity.clone())?),
                awaited: BTreeSet::from([job.host]),
                join_until: now,
            })
        });
        self.leader = leader.transpose().map_err(|error| unreachable(&error))?;
        self.files = Some(files);
        let listener = self
            .leader
            .as_ref()
            .and_then(|leader| leader.listener.as_ref());
        let prepared = Prepared {
            key: self.identity.public_key().to_string(),
            port: listener.map(PeerListener::port),
        };
        self.send_to_launcher(&Event::Prepared(prepared));
        Ok(())
    }

    /// Makes the job's folder; `None` if a job of this name is kept there.
    fn make_files(&self, job: &Job, wanted: &Prepare) -> Result<Option<Files>, Failure> {
        let unwritable = |path: &str, error: &dyn std::fmt::Display| {
            Failure::new(format!(
                "the job's folder cannot be made or written: {path}: {error}"
            ))
        };
        let folder = Folder::of(&job.name, job.address)
            .ok_or_else(|| unwritable("~/.local/state/dgl-tools", &"HOME is not set"))?;
        let make = || -> io::Result<Option<Files>> {
            let lines = self.records.iter().map(|record| format!("{record}\n"));
            let records: String = lines.collect();
            let guard = format!("{}\n", std::process::id());
            let boot = procfs::boot_id();
            let facts = wanted.serves.as_ref().map(servers::facts);
            let facts = facts.map(|facts| serde_json::to_vec(&facts)).transpose()?;
            let mut files: Vec<(&str, &[u8])> = vec![
                ("token", job.token.as_bytes()),
                ("guard", guard.as_bytes()),
                (BOOT, boot.as_bytes()),
                (RECORDS, records.as_bytes()),
            ];
            files.extend(
                facts
                    .as_ref()
                    .map(|facts| (servers::FACTS, facts.as_slice())),
            );
            let Some(lock) = folder.make(&files)? else {
                return Ok(None);
            };
            Ok(Some(Files {
                _lock: lock,
                writer: FileWriter::begin(&folder, &self.processes)?,
                orders: Orders::listen(&folder)?,
                folder: folder.clone(),
            }))
        };
        make().map_err(|error| unwritable(&folder.path().display().to_string(), &error))
    }

    fn expect(&mut self, peer: ExpectPeer) -> Result<(), Failure> {
        let key = PublicKey::try_from(peer.key).map_err(Failure::new)?;
        let Some(leader) = self.leader.as_mut() else {
            return Err(Failure::new("this host does not lead the job"));
        };
        if !leader.awaited.insert(peer.host) {
            return Err(Failure::new("this host has joined already, or it leads"));
        }
        leader.job.add_host(peer.host, peer.processes);
        if let Some(listener) = &mut leader.listener {
            listener.expect(peer.host, key);
        }
        Ok(())
    }

    fn join(&mut self, join: &Join) -> Result<(), Failure> {
        let key = PublicKey::try_from(join.key.clone()).map_err(Failure::new)?;
        if self.files.is_none() || self.leader.is_some() || !self.peers.is_empty() {
            return Err(Failure::new("this host joins nobody"));
        }
        // before the start nothing else waits
        let connected = TcpStream::connect_timeout(
            &SocketAddr::from((join.address, join.port)),
            JOIN_LIMIT.min(self.patience()),
        );
        let link = connected.and_then(|stream| Link::connect(stream, &self.identity, key));
        let link = link.map_err(|error| unreachable(&error))?;
        self.peers.insert(join.host, Peer::new(link, &[]));
        Ok(())
    }

    /// From here on the job does not need its launcher. Nothing is started before all hosts have
    /// joined.
    fn keep_from_here(&mut self, start: Start) -> Result<(), Failure> {
        let has_leader = self.leader.is_some() || !self.peers.is_empty() || self.ending.is_some();
        let Some(files) = self.files.as_ref().filter(|_| has_leader) else {
            return Err(Failure::new("the job is not prepared to be kept"));
        };
        let folder = files.folder.path().into();
        self.send_to_launcher(&Event::Kept(Kept { folder }));
        self.start = Some(start);
        let now = Instant::now();
        self.supervisor.received = now;
        self.peers.values_mut().for_each(|peer| peer.received = now);
        let patience = self.patience();
        if let Some(leader) = &mut self.leader {
            leader.join_until = now + patience;
            leader.listener.take_if(|listener| listener.is_complete());
        }
        match self.ending.clone() {
            // another host was lost before
            Some(ending) => self.end_before_start(ending),
            None => self.report(Event::Ready),
        }
        Ok(())
    }
}

fn unreachable(error: &io::Error) -> Failure {
    Failure::new(format!(
        "the agent that keeps the job on the first host cannot be reached: {error}"
    ))
}
