//! The keeper and the agent that supervises: what happens to the processes is written down and
//! reported to the leader.

use super::state::Keeper;
use crate::processes;
use std::time::{Duration, Instant};
use wire::codec::{self, Message};
use wire::supervise::Over;
use wire::{Event, Failure};

/// How long a guardian may take beyond the grace, for KILL and the removal of shared memory.
const GUARDIAN_LIMIT: Duration = Duration::from_secs(15);

impl Keeper {
    pub(super) fn read_supervisor(&mut self) {
        self.supervisor.events.read();
        self.supervisor.received = Instant::now();
        let (events, open) = self.supervisor.events.messages::<Event>();
        for event in events {
            match self.start {
                Some(_) => self.happened(event),
                None => {
                    let event = codec::encode(&event.head, &event.body);
                    self.launcher_out.send(&event);
                }
            }
        }
        if !open {
            self.supervisor_is_gone();
        }
    }

    /// Whether the disk keeps up with what the agent says. Otherwise the agent is not read.
    pub(super) fn has_room(&self) -> bool {
        let files = self.files.as_ref();
        files.is_none_or(|files| files.writer.has_room())
    }

    fn happened(&mut self, Message { head, body }: Message<Event>) {
        match &head {
            Event::Output(output) => {
                if let Some(files) = &self.files {
                    files.writer.log(output.index, body);
                }
                return;
            }
            Event::Stack(_) => return self.note(head),
            Event::Started(_)
            | Event::Listening(_)
            | Event::Exited(_)
            | Event::ShmRemoved(_)
            | Event::ServersEnded(_)
            | Event::Stands(_)
            | Event::Raised(_) => self.note(head.clone()),
            Event::Over(_) => {
                self.note(head.clone());
                self.over = Some(Instant::now());
            }
            Event::Idle(_) | Event::Moves(_) | Event::Failed(_) => {}
            _ => return,
        }
        self.report(head);
    }

    /// The supervising agent is gone; its guardian ends what it had.
    fn supervisor_is_gone(&mut self) {
        self.supervisor.requests.close();
        if self.start.is_none() {
            // the launcher notices by our end
            self.launcher = None;
        } else if self.over.is_none() && self.supervisor.gone.is_none() {
            self.supervisor.gone = Some(Instant::now());
            self.report_gone_supervisor();
            self.await_guardian();
        }
    }

    fn report_gone_supervisor(&mut self) {
        let problem = "the agent that supervised its processes is gone";
        self.report(Event::Failed(Failure::new(problem)));
    }

    /// Checks whether the agent that supervises has ended, or gives no sign of life.
    pub(super) fn check_supervisor(&mut self, now: Instant) {
        if !self.has_room() {
            // it may be saying something
            self.supervisor.received = now;
        }
        let supervisor = &self.supervisor;
        let is_silent = now >= supervisor.received + self.patience();
        if supervisor.started && self.over.is_none() && is_silent {
            self.report_gone_supervisor();
        }
        self.await_guardian();
    }

    /// Once the guardian of a supervisor that is gone has ended too, or takes too long, counts what
    /// is left of the job.
    fn await_guardian(&mut self) {
        let (Some(since), Some(job)) = (self.supervisor.gone, &self.job) else {
            return;
        };
        let limit = Duration::from_millis(job.grace_ms) + GUARDIAN_LIMIT;
        let has_ended = !matches!(self.supervisor.child.try_wait(), Ok(None));
        if self.over.is_some() || !has_ended && since.elapsed() < limit {
            return;
        }
        let left = processes::find_by_token(&job.token).len();
        self.note(Event::Over(Over {
            survivors: u32::try_from(left).unwrap_or(u32::MAX),
        }));
        self.over = Some(Instant::now());
    }
}
