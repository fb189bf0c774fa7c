//! Checks for the launcher of trainers whether persistent graph servers run on all hosts, with the
//! settings that the trainers need.

use crate::detached::start::on_host;
use crate::preflight::conversation::Conversation;
use crate::preflight::describe::locations;
use crate::run::outcome::Stopped;
use record::error::{Fault, Report};
use record::{FirstFailure, Host, Process, Role};
use std::collections::BTreeMap;
use wire::job::JobOnHost;
use wire::servers::{Data, Find, ServersLiveness, ServersState, TrainerGroup};
use wire::{Event, Request};

/// The state of the graph servers that a job uses.
#[derive(Debug, PartialEq, Eq)]
pub enum FoundServers {
    /// They listen on all hosts.
    Ready,
    /// They load their graph.
    Starting,
    /// Why they are missing, on some or all hosts.
    Missing(String),
}

/// Asks all hosts for the servers. Other settings than those of the trainers are a fault.
pub fn find(
    talk: &mut Conversation<'_, '_>,
    hosts: &[Host],
    processes: &[Process],
    name: &str,
) -> Result<FoundServers, Stopped> {
    for host_index in talk.host_indices() {
        let session = &talk.hosts.sessions[host_index];
        if let Some(process) = session.members.first().map(|member| &processes[*member]) {
            talk.ask(
                host_index,
                Request::FindServers(Box::new(Find {
                    servers: on_host(name, session.host),
                    data: data(process),
                })),
            );
        }
    }
    let mut states: BTreeMap<usize, ServersState> = BTreeMap::new();
    talk.collect(|host_index, event, _| {
        if let Event::Servers(state) = event {
            states.insert(host_index, *state);
        }
    })?;
    let states: Vec<(&Host, ServersState)> = states
        .into_iter()
        .map(|(host_index, state)| (talk.hosts.sessions[host_index].host, state))
        .collect();
    differences(&states).check().map_err(Stopped::Preflight)?;
    Ok(judge(&states, hosts))
}

/// The state of the servers, which are useful only if all hosts have them.
fn judge(states: &[(&Host, ServersState)], hosts: &[Host]) -> FoundServers {
    let dead = states.iter().find_map(|(host, state)| {
        if let ServersLiveness::Dead(failure) = &state.life {
            Some((host, failure))
        } else {
            None
        }
    });
    if let Some((host, failure)) = dead {
        return FoundServers::Missing(format!(
            "they have ended: {}",
            end_label(host, failure.as_deref(), hosts)
        ));
    }
    let missing = states
        .iter()
        .find(|(_, state)| state.life == ServersLiveness::None);
    let starts = states
        .iter()
        .any(|(_, state)| state.life == ServersLiveness::Starting);
    match missing {
        Some(_)
            if states
                .iter()
                .all(|(_, state)| state.life == ServersLiveness::None) =>
        {
            FoundServers::Missing("there are none on these hosts".to_owned())
        }
        Some((host, _)) if !starts => {
            FoundServers::Missing(format!("{} has none", host.location()))
        }
        _ if starts => FoundServers::Starting,
        _ => FoundServers::Ready,
    }
}

/// Why the servers have ended, as their first host reports it.
fn end_label(host: &Host, failure: Option<&FirstFailure>, hosts: &[Host]) -> String {
    let Some(failure) = failure else {
        return format!("{}: none of them has failed", host.location());
    };
    let location = record::location_of(hosts, failure.host);
    match (failure.role, failure.end.signal) {
        (None, _) => format!("{location} was lost"),
        _ if failure.end.reaped => format!("{location}: dgl-reap has ended one"),
        (_, Some(signal)) => format!("{location}: one was ended by SIG{signal}"),
        (_, None) => format!("{location}: one {}", failure.words()),
    }
}

/// Whether a process is a persistent graph server.
pub fn is_staying(process: &Process) -> bool {
    process.server_name.is_some() && process.role == Role::Server
}

/// The settings that persistent graph servers and their trainers must have in common.
pub fn data(process: &Process) -> Data {
    let variable = |name: &str| process.env.get(name).map_or("", String::as_str);
    Data {
        folder: process.cwd.as_deref().unwrap_or(".").into(),
        ip_config: variable("DGL_IP_CONFIG").into(),
        part_config: variable("DGL_CONF_PATH").into(),
        clients: variable("DGL_NUM_CLIENT").to_owned(),
        servers: variable("DGL_NUM_SERVER").to_owned(),
        samplers: variable("DGL_NUM_SAMPLER").to_owned(),
    }
}

/// The faults of servers that differ from what these trainers need.
fn differences(states: &[(&Host, ServersState)]) -> Report {
    let mut report = Report::default();
    let mut grouped: Vec<(String, Vec<&Host>)> = Vec::new();
    for (host, label) in states.iter().flat_map(|(host, state)| {
        let labels = difference_labels(&state.theirs, &state.ours).into_iter();
        labels.map(|label| (*host, label))
    }) {
        match grouped.iter_mut().find(|(other, _)| *other == label) {
            Some((_, hosts)) => hosts.push(host),
            None => grouped.push((label, vec![host])),
        }
    }
    for (label, hosts) in grouped {
        let fix = "give dgl-env the same numbers and files, or end the servers with dgl-reap \
            --server-name NAME and start them again";
        report.push(Fault::unreachable(locations(&hosts), label).fix(fix));
    }
    report
}

/// What differs between the settings of servers and those of trainers.
fn difference_labels(theirs: &Data, ours: &Data) -> Vec<String> {
    let settings = [
        (
            theirs.clients != ours.clients,
            format!(
                "its graph servers wait for {} trainers and samplers, but this job has {}",
                theirs.clients, ours.clients
            ),
        ),
        (
            theirs.servers != ours.servers,
            format!(
                "it has {} of the graph servers, but this job needs {} per host",
                theirs.servers, ours.servers
            ),
        ),
        (
            theirs.samplers != ours.samplers,
            format!(
                "its graph servers were started for {} samplers per trainer, but this job has {}",
                theirs.samplers, ours.samplers
            ),
        ),
        (
            theirs.ip_config != ours.ip_config,
            "its ip_config is not the one that its graph servers were started with".to_owned(),
        ),
        (
            theirs.part_config != ours.part_config,
            "its partition config is not the one that its graph servers have loaded".to_owned(),
        ),
    ];
    let differing = settings.into_iter().filter(|(differs, _)| *differs);
    differing.map(|(_, label)| label).collect()
}

/// Claims the right to start the graph servers; `false` if another launcher is starting them. The
/// right lasts as long as the sessions.
pub fn claim_start(talk: &mut Conversation<'_, '_>, name: &str) -> Result<bool, Stopped> {
    match ask_first(talk, name, Request::ClaimServers)? {
        Some(Event::StartClaimed(claimed)) => Ok(claimed.ours),
        _ => Ok(false),
    }
}

/// The number and the port of a new group of trainers, which the first host assigns.
pub fn take_group(talk: &mut Conversation<'_, '_>, name: &str) -> Result<TrainerGroup, Stopped> {
    match ask_first(talk, name, Request::TakeGroup)? {
        Some(Event::Group(group)) => Ok(group),
        _ => Err(no_host()),
    }
}

fn ask_first(
    talk: &mut Conversation<'_, '_>,
    name: &str,
    request: fn(JobOnHost) -> Request,
) -> Result<Option<Event>, Stopped> {
    let first = talk.hosts.sessions.first().ok_or_else(no_host)?.host;
    talk.ask(0, request(on_host(name, first)));
    let mut answer = None;
    talk.collect(|_, event, _| answer = Some(event))?;
    Ok(answer)
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
    use record::exit::{ProcessEnd, SignalNumber};

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

    fn state(life: ServersLiveness) -> ServersState {
        ServersState {
            life,
            theirs: Data::default(),
            ours: Data::default(),
        }
    }

    #[test]
    fn all_hosts_must_have_them() {
        let killed = FirstFailure {
            host: 0,
            role: Some(Role::Server),
            end: ProcessEnd::killed(SignalNumber::KILL),
            ..FirstFailure::default()
        };
        let lost = FirstFailure {
            host: 1,
            ..FirstFailure::default()
        };
        let missing = |text: &str| FoundServers::Missing(text.to_owned());
        let table = [
            (
                [ServersLiveness::Alive, ServersLiveness::Alive],
                FoundServers::Ready,
            ),
            (
                [ServersLiveness::Alive, ServersLiveness::Starting],
                FoundServers::Starting,
            ),
            (
                [ServersLiveness::None, ServersLiveness::Starting],
                FoundServers::Starting,
            ),
            (
                [ServersLiveness::None, ServersLiveness::None],
                missing("there are none on these hosts"),
            ),
            (
                [ServersLiveness::Alive, ServersLiveness::None],
                missing("host 1 (10.0.0.2) has none"),
            ),
            (
                [ServersLiveness::Alive, ServersLiveness::Dead(None)],
                missing("they have ended: host 1 (10.0.0.2): none of them has failed"),
            ),
            (
                [
                    ServersLiveness::Alive,
                    ServersLiveness::Dead(Some(killed.into())),
                ],
                missing("they have ended: host 0 (10.0.0.1): one was ended by SIGKILL"),
            ),
            (
                [
                    ServersLiveness::Dead(Some(lost.into())),
                    ServersLiveness::None,
                ],
                missing("they have ended: host 1 (10.0.0.2) was lost"),
            ),
        ];
        let hosts = hosts(2);
        for (lives, expected) in table {
            let states: Vec<(&Host, ServersState)> =
                hosts.iter().zip(lives.clone().map(state)).collect();
            assert_eq!(judge(&states, &hosts), expected, "{lives:?}");
        }
    }

    #[test]
    fn the_same_difference_is_told_once() {
        let hosts = hosts(3);
        let data = |clients: &str, part_config: &str| Data {
            clients: clients.to_owned(),
            part_config: part_config.into(),
            ..Data::default()
        };
        let state = |ours| ServersState {
            life: ServersLiveness::Alive,
            theirs: data("4", "a"),
            ours,
        };
        let states: Vec<(&Host, ServersState)> = hosts
            .iter()
            .zip(["a", "a", "b"].map(|part_config| state(data("8", part_config))))
            .collect();
        let lines = differences(&states).lines("dgl-spawn").join("\n");
        assert!(
            lines.contains(
                "hosts 0-2: its graph servers wait for 4 trainers and samplers, but this job has 8"
            ),
            "{lines}"
        );
        assert!(
            lines.contains("host 2 (10.0.0.3): its partition config is not the one"),
            "{lines}"
        );
    }
}
