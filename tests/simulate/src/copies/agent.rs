//! A conversation with the agent of a host: requests are answered at once, unless the agent is
//! killed or the connection is lost.

use super::world::{Process, SHOWN, World};
use agent::output::EventOutput;
use agent::requests::Requests;
use agent_files::Serve;
use std::fs::{self, Metadata, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::rc::Rc;
use std::sync::Arc;
use wire::Event;
use wire::codec::Decoder;
use wire::files::{FileEvent, FileRequest, Receive};

/// The tool learns no more than that.
#[derive(Debug)]
pub struct Lost;

pub type Answer = Vec<(FileEvent, Vec<u8>)>;

pub struct Agent {
    world: Arc<World>,
    actor: usize,
    pub host: usize,
    process: Rc<Process>,
    /// `None` once it has ended.
    serving: Option<Box<dyn Serve>>,
    output: Arc<EventOutput>,
    is_lost: bool,
    /// For what cleans up after an agent that was killed.
    receive: Option<Receive>,
}

impl Agent {
    pub fn begin(
        world: &Arc<World>,
        actor: usize,
        host: usize,
        first: &FileRequest,
    ) -> (Agent, Result<FileEvent, Lost>) {
        let output = Arc::new(EventOutput::in_memory());
        let process = Process::new(world, actor, world.hosts[host]);
        let serving = process.run(|| agent_files::conversation(first.clone(), &output));
        if let Err(failure) = &serving {
            world.note(|| format!("host {host}: {}", failure.problem));
        }
        let receive = match first {
            FileRequest::Receive(receive) => Some(receive.clone()),
            _ => None,
        };
        let mut agent = Agent {
            world: Arc::clone(world),
            actor,
            host,
            process,
            serving: serving.ok(),
            output,
            is_lost: false,
            receive,
        };
        let first = agent
            .events()
            .and_then(|events| events.into_iter().next().ok_or(Lost));
        (agent, first.map(|(event, _)| event))
    }

    pub fn ask(&mut self, request: FileRequest, body: &[u8]) -> Result<Answer, Lost> {
        self.world.turns.pass(self.actor, 30);
        if self.world.fails(1) {
            self.is_lost = true;
            self.world
                .note(|| format!("actor {}: host {} is lost", self.actor, self.host));
            // otherwise it learns later that the tool is gone
            if self.world.percent(50) {
                self.end();
            }
        }
        if self.is_lost {
            return Err(Lost);
        }
        let serving = self.serving.as_mut().ok_or(Lost)?;
        let step = || serving.step(request, body.to_vec(), &mut Requests::none());
        let is_answered = self.process.run(step).is_ok();
        if !is_answered || self.process.is_killed() {
            self.end();
            return Err(Lost);
        }
        self.events()
    }

    fn events(&mut self) -> Result<Answer, Lost> {
        self.ignore_modes();
        let mut decoder = Decoder::default();
        decoder.push(&self.output.take_written());
        let mut events = Vec::new();
        while let Some(message) = decoder.next_message().unwrap() {
            match message.head {
                Event::File(event) => events.push((event, message.body)),
                _ => return Err(Lost),
            }
        }
        if self.process.is_killed() {
            Err(Lost)
        } else {
            Ok(events)
        }
    }

    /// A file system without modes shows the same one for all files.
    fn ignore_modes(&self) {
        let disk = &self.world.disks[self.world.hosts[self.host]];
        let mut folders = vec![disk.workspace()];
        while let Some(folder) = folders.pop().filter(|_| disk.ignores_modes) {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                if entry.file_type().unwrap().is_dir() {
                    folders.push(entry.path());
                }
                let has_other = |meta: Metadata| meta.permissions().mode() & 0o7777 != SHOWN;
                if entry.metadata().is_ok_and(has_other) {
                    let _ = fs::set_permissions(entry.path(), Permissions::from_mode(SHOWN));
                }
            }
        }
    }

    /// It has entered the workspace.
    pub fn hold(&self, run: &str) {
        if self.serving.is_some() && !self.process.is_killed() {
            self.world.hold(run, &self.process);
        }
    }

    fn end(&mut self) {
        let Some(serving) = self.serving.take() else {
            return;
        };
        self.world.release(&self.process);
        self.process.run(|| drop(serving));
        if self.process.is_killed()
            && !self.process.lost_power()
            && let Some(receive) = self.receive.take().filter(|_| self.world.percent(50))
        {
            let watcher = Process::new(&self.world, self.actor, self.world.hosts[self.host]);
            watcher.run(|| agent_files::put_away(&receive));
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.end();
    }
}
