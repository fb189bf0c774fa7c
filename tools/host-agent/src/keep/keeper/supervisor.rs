//! The keeper and the agent that supervises: what happens to the processes is written down and
//! reported to the leader.

use super::state::Keeper;
use crate::processes;
use job::{Exit, Loss};
use std::io::Write;
use std::time::{Duration, Instant};
use wire::Event;
use wire::codec::{self, Message};
use wire::keep::PeerMessage;
use wire::supervise::{Exited, Output, Over};

/// How long a guardian may take beyond the grace, for KILL and the removal of shared memory.
const GUARDIAN_LIMIT: Duration = Duration::from_secs(15);

impl Keeper {
    pub(super) fn read_supervisor(&mut self) {
        self.supervisor.events.read();
        self.supervisor.heard = Instant::now();
        loop {
            match self.supervisor.events.next::<Event>() {
                Ok(Some(message)) if self.start.is_some() => self.happened(message),
                Ok(Some(message)) => self.hand_back(&message),
                Ok(None) => break,
                Err(_) => return self.supervisor_is_gone(),
            }
        }
        if self.supervisor.events.has_ended() {
            self.supervisor_is_gone();
        }
    }

    fn hand_back(&mut self, message: &Message<Event>) {
        self.launcher_out
            .send(&codec::encode(&message.head, &message.body));
        if matches!(message.head, Event::Done | Event::Failed(_)) {
            self.unanswered = self.unanswered.saturating_sub(1);
            self.serve();
        }
    }

    fn happened(&mut self, Message { head, body }: Message<Event>) {
        match &head {
            Event::Output(output) => return self.write_log(output, &body),
            Event::Failed(failure) => {
                let loss = Loss::Other(failure.problem.clone());
                return self.tell(PeerMessage::Lost { loss });
            }
            Event::Started(_)
            | Event::Listening(_)
            | Event::Exited(_)
            | Event::ShmRemoved(_)
            | Event::ServersEnded(_)
            | Event::Stack(_)
            | Event::Stands(_)
            | Event::Raised(_)
            | Event::Over(_) => {
                self.note(head.clone());
            }
            Event::Idle(_) | Event::Moves(_) => {}
            _ => return,
        }
        self.tell_leader(head);
    }

    /// Reports to the leader what matters for its decisions.
    fn tell_leader(&mut self, head: Event) {
        match head {
            Event::Listening(listening) => self.tell(PeerMessage::Listening {
                index: listening.index,
            }),
            Event::Exited(exited) => {
                self.tell(PeerMessage::Exited {
                    index: exited.index,
                    exit: exit_of(&exited),
                });
            }
            Event::Idle(idle) => self.tell(PeerMessage::Idle {
                for_ms: idle.for_ms,
            }),
            Event::Moves(moves) => self.tell(PeerMessage::Moves(moves)),
            Event::Stands(stands) => self.tell(PeerMessage::Stands {
                number: stands.number,
                idle_ms: stands.idle_ms,
            }),
            Event::Raised(raised) => {
                let fails = self
                    .start
                    .as_ref()
                    .is_some_and(|start| start.fail_on_exception);
                if fails && raised.left_script.unwrap_or(true) {
                    self.tell(PeerMessage::Raised {
                        index: raised.index,
                        exception: raised.exception,
                    });
                }
            }
            Event::ServersEnded(ended) => self.tell(PeerMessage::ServersEnded(ended)),
            Event::Over(_) => {
                self.supervisor.over = true;
                self.over = Some(Instant::now());
                if self.ending.is_none() {
                    self.tell(PeerMessage::Lost {
                        loss: Loss::SupervisorGone,
                    });
                }
            }
            _ => {}
        }
    }

    /// Writes to a log. If the disk is full, the job goes on without it.
    fn write_log(&mut self, output: &Output, text: &[u8]) {
        if let Some(log) = self
            .files
            .as_mut()
            .and_then(|files| files.logs.get_mut(output.index as usize))
        {
            let _ = log.write_all(text);
        }
    }

    pub(super) fn note(&mut self, event: Event) {
        if let Some(files) = &mut self.files {
            files.journal.note(event);
        }
    }

    /// The supervising agent is gone; its guardian ends what it had.
    fn supervisor_is_gone(&mut self) {
        self.supervisor.requests.close();
        if self.start.is_none() {
            // the launcher notices by our end
            self.launcher = None;
        } else if !self.supervisor.over && self.supervisor.gone.is_none() {
            self.supervisor.gone = Some(Instant::now());
            if self.ending.is_none() {
                self.tell(PeerMessage::Lost {
                    loss: Loss::SupervisorGone,
                });
            }
            self.await_guardian();
        }
    }

    /// Once the guardian of a supervisor that is gone has ended too, or takes too long, counts what
    /// is left of the job.
    pub(super) fn await_guardian(&mut self) {
        let (Some(since), Some(job)) = (self.supervisor.gone, &self.job) else {
            return;
        };
        let limit = Duration::from_millis(job.grace_ms) + GUARDIAN_LIMIT;
        let has_ended = !matches!(self.supervisor.child.try_wait(), Ok(None));
        if self.supervisor.over || !has_ended && since.elapsed() < limit {
            return;
        }
        let left = processes::find_by_token(&job.token).len();
        self.supervisor.over = true;
        self.note(Event::Over(Over {
            survivors: u32::try_from(left).unwrap_or(u32::MAX),
        }));
        self.over = Some(Instant::now());
    }
}

fn exit_of(exited: &Exited) -> Exit {
    Exit {
        status: exited.status,
        reaped: exited.reaped,
        out_of_memory: exited.oom,
    }
}
