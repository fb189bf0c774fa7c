//! Graph servers that stay, as the launcher of their trainers sees them: whether they are on all
//! hosts, and whether they are the ones that the trainers need.

use super::answers::{ANSWER_LIMIT, SEE_FOLDER};
use super::launch::data;
use crate::preflight::conversation::Conversation;
use crate::preflight::describe::place_of;
use crate::run::outcome::Stopped;
use job::{Cause, ExitStatus, Reason};
use record::error::{Fault, Report};
use record::{Host, Process};
use remote::SessionEvent;
use wire::keep::Ending;
use wire::servers::{DataKey, Difference, Find, Group, Liveness, Servers, State};
use wire::{Event, Request};

/// The state of the graph servers that a job uses.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// They listen on all hosts.
    Ready,
    /// They load their graph.
    Starting,
    /// They are missing, on some hosts or on all; why.
    Missing(String),
}

/// Identifies the servers on one of the hosts.
pub fn servers_of(name: &str, host: &Host) -> Servers {
    Servers {
        name: name.to_owned(),
        address: host.ip.0,
    }
}

/// Asks all hosts for the servers. It is a fault if they were started with other settings.
pub fn find(
    talk: &mut Conversation<'_, '_>,
    all: &[Host],
    processes: &[Process],
    name: &str,
) -> Result<Found, Stopped> {
    for at in talk.all() {
        let session = &talk.hosts.sessions[at];
        if let Some(process) = session.members.first().map(|member| &processes[*member]) {
            talk.ask(
                at,
                Request::FindServers(Box::new(Find {
                    servers: servers_of(name, session.host),
                    data: data(process),
                })),
            );
        }
    }
    let states = answers(talk, |event| {
        if let Event::Servers(state) = event {
            Some(state)
        } else {
            None
        }
    })?;
    let told: Vec<(&Host, State)> = states
        .into_iter()
        .map(|(at, state)| (talk.hosts.sessions[at].host, state))
        .collect();
    differences(&told).check().map_err(Stopped::Preflight)?;
    Ok(judge(&told, all))
}

/// The answers of the hosts to a request; it is a fault if one fails or is lost.
fn answers<T>(
    talk: &mut Conversation<'_, '_>,
    answer: impl Fn(Event) -> Option<T>,
) -> Result<Vec<(usize, T)>, Stopped> {
    let (mut answers, mut faults) = (Vec::new(), Vec::new());
    let late = talk.listen(ANSWER_LIMIT, |at, said| match said {
        SessionEvent::Event(Event::Failed(failure), _) => faults.push((at, failure.problem)),
        SessionEvent::Event(event, _) => answers.extend(answer(event).map(|answer| (at, answer))),
        SessionEvent::Lost(why) => faults.push((at, why)),
    })?;
    faults.extend(
        late.into_iter()
            .map(|at| (at, format!("no answer within {} s", ANSWER_LIMIT.as_secs()))),
    );
    let fault = |(at, problem): (usize, String)| {
        Fault::unreachable(talk.hosts.sessions[at].host.place(), problem).fix(SEE_FOLDER)
    };
    let mut report = Report::default();
    faults
        .into_iter()
        .map(fault)
        .for_each(|fault| report.push(fault));
    report.check().map_err(Stopped::Hosts)?;
    answers.sort_by_key(|(at, _)| *at);
    Ok(answers)
}

/// Judges the servers: they are useful only if all hosts have them.
fn judge(told: &[(&Host, State)], all: &[Host]) -> Found {
    let dead = told.iter().find_map(|(host, state)| {
        if let Liveness::Dead(ending) = &state.life {
            Some((host, ending))
        } else {
            None
        }
    });
    if let Some((host, ending)) = dead {
        return Found::Missing(format!(
            "they have ended: {}",
            end_label(host, ending.as_ref(), all)
        ));
    }
    let missing = told.iter().find(|(_, state)| state.life == Liveness::None);
    let starts = told
        .iter()
        .any(|(_, state)| state.life == Liveness::Starting);
    match missing {
        Some(_) if told.iter().all(|(_, state)| state.life == Liveness::None) => {
            Found::Missing("there are none on these hosts".to_owned())
        }
        Some((host, _)) if !starts => Found::Missing(format!("{} has none", host.place())),
        _ if starts => Found::Starting,
        _ => Found::Ready,
    }
}

/// Why the servers have ended, as a host reports it.
fn end_label(host: &Host, ending: Option<&Ending>, all: &[Host]) -> String {
    let place = |id: u32| {
        all.iter()
            .find(|host| host.id == id)
            .map_or_else(|| format!("host {id}"), Host::place)
    };
    let Some(ending) = ending else {
        return format!("{}: nobody keeps them there any more", host.place());
    };
    match (&ending.cause, &ending.failure) {
        (Some(Cause::Process), Some(failure)) => match &failure.reason {
            Reason::Ended(exit) => match exit.status {
                _ if exit.reaped => format!("{}: dgl-reap has ended one", place(failure.host)),
                ExitStatus::Signal(number) => format!(
                    "{}: one was ended by SIG{}",
                    place(failure.host),
                    record::exit::signal_name(number)
                ),
                ExitStatus::Code(code) => {
                    format!("{}: one exited with status {code}", place(failure.host))
                }
            },
            _ => format!("{}: one has failed", place(failure.host)),
        },
        (Some(Cause::Host), Some(failure)) => format!("{} was lost", place(failure.host)),
        (Some(Cause::Time(_) | Cause::Stalled(_)), _) => "a time limit was over".to_owned(),
        (Some(Cause::Paused(_)), _) => "the agent that kept them was stopped".to_owned(),
        _ => "by order".to_owned(),
    }
}

/// The faults of servers that differ from what these trainers need.
fn differences(told: &[(&Host, State)]) -> Report {
    let mut report = Report::default();
    let mut said: Vec<(String, Vec<&Host>)> = Vec::new();
    for (host, difference) in told
        .iter()
        .flat_map(|(host, state)| state.differences.iter().map(move |one| (*host, one)))
    {
        let label = difference_label(difference);
        match said.iter_mut().find(|(one, _)| *one == label) {
            Some((_, hosts)) => hosts.push(host),
            None => said.push((label, vec![host])),
        }
    }
    for (label, hosts) in said {
        let fix = "give dgl-env the same numbers and files, or end the servers with dgl-reap \
            --server-name NAME and start them anew";
        report.push(Fault::unreachable(place_of(&hosts), label).fix(fix));
    }
    report
}

fn difference_label(Difference { key, theirs, ours }: &Difference) -> String {
    let or_none = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let (theirs, ours) = (or_none(theirs), or_none(ours));
    match key {
        DataKey::Clients => format!(
            "its graph servers wait for {theirs} trainers and samplers, and this job has {ours}"
        ),
        DataKey::Servers => {
            format!("it has {theirs} of the graph servers, and this job wants {ours} a host")
        }
        DataKey::Samplers => format!(
            "its graph servers were started for {theirs} samplers a trainer, and this job has \
             {ours}"
        ),
        DataKey::IpConfig => {
            "its ip_config is not the one that its graph servers were started with".to_owned()
        }
        DataKey::PartConfig => {
            "its partition config is not the one that its graph servers have loaded".to_owned()
        }
    }
}

/// Whether the graph servers may be started from here; otherwise another launcher is starting them.
/// The right lasts as long as the sessions.
pub fn claim_start(talk: &mut Conversation<'_, '_>, name: &str) -> Result<bool, Stopped> {
    ask_first(talk, name, Request::ClaimServers)?;
    let claimed = answers(talk, |event| {
        if let Event::StartClaimed(claimed) = event {
            Some(claimed.ours)
        } else {
            None
        }
    })?;
    Ok(matches!(claimed[..], [(_, true)]))
}

/// The number and the port of a new group of trainers, which the first host assigns.
pub fn take_group(talk: &mut Conversation<'_, '_>, name: &str) -> Result<Group, Stopped> {
    ask_first(talk, name, Request::TakeGroup)?;
    let groups = answers(talk, |event| {
        if let Event::Group(group) = event {
            Some(group)
        } else {
            None
        }
    })?;
    groups.first().map(|(_, group)| *group).ok_or_else(no_host)
}

fn ask_first(
    talk: &mut Conversation<'_, '_>,
    name: &str,
    request: fn(Servers) -> Request,
) -> Result<(), Stopped> {
    let first = talk.hosts.sessions.first().ok_or_else(no_host)?.host;
    talk.ask(0, request(servers_of(name, first)));
    Ok(())
}

fn no_host() -> Stopped {
    Stopped::Hosts(
        Fault::unreachable("graph servers", "no host has trainers")
            .fix("give dgl-env trainers to plan")
            .report(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::keep::Failure;

    fn hosts(count: u32) -> Vec<Host> {
        let text = |id: u32| {
            format!(
                r#"{{"id":{id},"of":{count},"ip":"10.0.0.{}","port":30050}}"#,
                id + 1
            )
        };
        (0..count)
            .map(|id| serde_json::from_str(&text(id)).unwrap())
            .collect()
    }

    fn state(life: Liveness) -> State {
        State {
            life,
            differences: Vec::new(),
        }
    }

    #[test]
    fn all_hosts_must_have_them() {
        let killed = Failure {
            host: 0,
            index: Some(0),
            reason: Reason::Ended(ExitStatus::Signal(9).into()),
        };
        let ending = Ending {
            cause: Some(Cause::Process),
            failure: Some(killed),
        };
        let missing = |text: &str| Found::Missing(text.to_owned());
        let table = [
            ([Liveness::Alive, Liveness::Alive], Found::Ready),
            ([Liveness::Alive, Liveness::Starting], Found::Starting),
            ([Liveness::None, Liveness::Starting], Found::Starting),
            (
                [Liveness::None, Liveness::None],
                missing("there are none on these hosts"),
            ),
            (
                [Liveness::Alive, Liveness::None],
                missing("host 1 (10.0.0.2) has none"),
            ),
            (
                [Liveness::Alive, Liveness::Dead(None)],
                missing("they have ended: host 1 (10.0.0.2): nobody keeps them there any more"),
            ),
            (
                [Liveness::Alive, Liveness::Dead(Some(ending))],
                missing("they have ended: host 0 (10.0.0.1): one was ended by SIGKILL"),
            ),
            (
                [Liveness::Dead(Some(Ending::default())), Liveness::None],
                missing("they have ended: by order"),
            ),
        ];
        let hosts = hosts(2);
        for (lives, expected) in table {
            let told: Vec<(&Host, State)> = hosts.iter().zip(lives.clone().map(state)).collect();
            assert_eq!(judge(&told, &hosts), expected, "{lives:?}");
        }
    }

    #[test]
    fn the_same_difference_is_told_once() {
        let hosts = hosts(3);
        let clients = Difference {
            key: DataKey::Clients,
            theirs: Some("4".to_owned()),
            ours: Some("8".to_owned()),
        };
        let config = Difference {
            key: DataKey::PartConfig,
            theirs: None,
            ours: None,
        };
        let mut told: Vec<(&Host, State)> = hosts
            .iter()
            .map(|host| {
                (
                    host,
                    State {
                        life: Liveness::Alive,
                        differences: vec![clients.clone()],
                    },
                )
            })
            .collect();
        told[2].1.differences.push(config);
        let lines = differences(&told).lines("dgl-spawn").join("\n");
        assert!(
            lines.contains(
                "hosts 0-2: its graph servers wait for 4 trainers and samplers, and this job has 8"
            ),
            "{lines}"
        );
        assert!(
            lines.contains("host 2 (10.0.0.3): its partition config is not the one"),
            "{lines}"
        );
    }
}
