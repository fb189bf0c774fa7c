//! Converts between records and the state machine of a job: the members of the job, and the records
//! of its end.

use job::{Cause, Ending, JobFailure, JobMember, Loss, Reason};
use record::exit::{Exit, ProcessEnd};
use record::{self, FirstFailure, Process};

/// A process as the state machine sees it.
pub fn member(process: &Process) -> JobMember {
    JobMember {
        role: process.role,
        service: process.service,
        awaited: process.port.is_some(),
    }
}

/// The record of what failed first, with the last lines if it was a process.
pub fn first_failure(
    failure: &JobFailure,
    process: Option<(&Process, Vec<String>)>,
) -> FirstFailure {
    let mut first = FirstFailure {
        host: failure.host,
        ..FirstFailure::default()
    };
    if let Some((process, lines)) = process {
        (first.id, first.role, first.rank) =
            (Some(process.id), Some(process.role), Some(process.rank));
        first.last_lines = lines;
    }
    match &failure.reason {
        Reason::Ended(end) => first.end = *end,
        Reason::NotListening(time) => {
            first.error = Some(format!("does not listen after {} s", time.as_secs_f32()));
        }
        Reason::EndedEarly => {
            first.end = ProcessEnd::exited(0);
            first.error = Some("is a service, and ended before the other programs".to_owned());
        }
        Reason::Raised(exception) => {
            first.error = Some(format!("raised {exception} and did not end"));
        }
        Reason::Lost(loss) => first.error = Some(loss_label(loss)),
    }
    first
}

/// Why a host was lost, as it follows "lost: " in messages.
fn loss_label(loss: &Loss) -> String {
    match loss {
        Loss::Silent(time) => format!("no message from it for {} s", time.as_secs_f32()),
        Loss::SupervisorGone => {
            "the agent that supervised graph servers there has ended".to_owned()
        }
        Loss::Other(why) => why.clone(),
    }
}

/// The exit status of a job that ended like this.
pub fn exit(ending: &Ending) -> Exit {
    let reason = ending.failure.as_ref().map(|failure| &failure.reason);
    match (&ending.cause, reason) {
        (None, _) => Exit::Done,
        (Some(Cause::Signal(signal)), _) => Exit::Signal(*signal),
        (Some(Cause::Host | Cause::Servers | Cause::Paused(_)), _) => Exit::Unreachable,
        (Some(Cause::Time(_) | Cause::Stalled(_)), _) => Exit::TimeLimit,
        (Some(Cause::Process), Some(Reason::Ended(end))) => Exit::Process(end.shell_code()),
        (Some(Cause::Process), _) => Exit::Process(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use job::Limit;
    use record::exit::SignalNumber;
    use std::time::Duration;

    fn processes() -> Vec<Process> {
        let text = |role: &str, rank: u32, port: &str| {
            format!(
                "{{\"id\":{rank},\"of\":2,\"host\":{rank},\"ip\":\"10.0.0.1\",\
                     \"role\":\"{role}\",\"rank\":{rank},\"argv\":[\"t\"]{port}}}"
            )
        };
        [
            text("server", 0, r#","port":30050"#),
            text("trainer", 1, ""),
        ]
        .map(|text| serde_json::from_str(&text).unwrap())
        .into()
    }

    #[test]
    fn a_server_with_a_port_is_awaited() {
        let members: Vec<JobMember> = processes().iter().map(member).collect();
        let expected = [(job::Role::Server, true), (job::Role::Trainer, false)];
        assert_eq!(
            members,
            expected.map(|(role, awaited)| JobMember {
                role,
                service: false,
                awaited
            })
        );
    }

    #[expect(clippy::too_many_lines, reason = "it is a table of cases")]
    #[test]
    fn each_cause_has_its_exit_status_and_its_fields() {
        let minute = Duration::from_secs(60);
        let process = |reason| {
            Some(JobFailure {
                host: 1,
                index: Some(0),
                reason,
            })
        };
        let lost = Some(JobFailure {
            host: 0,
            index: None,
            reason: Reason::Lost("silent".into()),
        });
        let late = Some(JobFailure {
            host: 0,
            index: Some(0),
            reason: Reason::NotListening(minute),
        });
        let none = ProcessEnd::default();
        let (exited, killed) = (
            ProcessEnd::exited(3),
            ProcessEnd::killed(SignalNumber::KILL),
        );
        let table = [
            (None, None, 0, (None, none, None)),
            (
                Some(Cause::Process),
                process(Reason::Ended(exited)),
                3,
                (Some(1), exited, None),
            ),
            (
                Some(Cause::Process),
                process(Reason::Ended(killed)),
                137,
                (Some(1), killed, None),
            ),
            (Some(Cause::Host), lost, 74, (None, none, Some("silent"))),
            (
                Some(Cause::Signal(SignalNumber::INT)),
                None,
                130,
                (None, none, None),
            ),
            (
                Some(Cause::Process),
                process(Reason::Raised("KeyError: 7".to_owned())),
                1,
                (Some(1), none, Some("raised KeyError: 7 and did not end")),
            ),
            (Some(Cause::Stalled(minute)), None, 124, (None, none, None)),
            (
                Some(Cause::Time(Limit::Job(minute))),
                None,
                124,
                (None, none, None),
            ),
            (
                Some(Cause::Time(Limit::Start(minute))),
                late,
                124,
                (Some(0), none, Some("does not listen after 60 s")),
            ),
        ];
        let processes = processes();
        let lines = [Vec::new(), vec!["its last".to_owned()]];
        for (cause, failure, code, (id, end, error)) in table {
            let ending = Ending {
                cause: cause.clone(),
                failure: failure.clone(),
            };
            assert_eq!(exit(&ending).code(), code, "{cause:?}");
            let Some(failure) = failure else { continue };
            let failed_index = failure.index.map(|_| failure.host as usize);
            let process = failed_index
                .map(|failed_index| (&processes[failed_index], lines[failed_index].clone()));
            let first = first_failure(&failure, process);
            assert_eq!((first.host, first.id), (failure.host, id), "{cause:?}");
            assert_eq!(
                (first.end, first.error.as_deref()),
                (end, error),
                "{cause:?}"
            );
            assert_eq!(
                first.last_lines.len(),
                usize::from(id == Some(1)),
                "{cause:?}"
            );
        }
    }
}
