//! Checks for the launcher of trainers whether persistent graph servers run on all hosts, with the
//! settings that the trainers need.

use crate::preflight::conversation::Conversation;
use crate::preflight::diagnosis::locations;
use crate::run::outcome::Stopped;
use record::error::{Fault, Report};
use record::{Host, Process};
use std::collections::BTreeMap;
use wire::servers::{Data, Find, ServersLiveness, ServersOnHost, ServersState, TrainerGroup};
use wire::{Event, Request};

/// The graph servers that a job uses are not ready, on some or all hosts.
#[derive(Debug, PartialEq, Eq)]
pub struct NotReady {
    why: String,
    /// Whether they load their graph, so that waiting helps.
    is_starting: bool,
}

/// Asks all hosts for the servers; `None` if all listen. Settings that differ from the trainers'
/// are a fault.
pub fn find(
    conversation: &mut Conversation<'_, '_>,
    processes: &[Process],
    name: &str,
) -> Result<Option<NotReady>, Stopped> {
    for host_index in conversation.host_indices() {
        let session = &conversation.hosts.sessions[host_index];
        if let Some(process) = session.members.first().map(|member| &processes[*member]) {
            conversation.ask(
                host_index,
                Request::FindServers(Box::new(Find {
                    servers: on_host(name, session.host),
                    data: data(process),
                })),
            );
        }
    }
    let mut states: BTreeMap<usize, ServersState> = BTreeMap::new();
    conversation.collect(|host_index, event, _| {
        if let Event::Servers(state) = event {
            states.insert(host_index, *state);
        }
    })?;
    let states: Vec<(&Host, ServersState)> = states
        .into_iter()
        .map(|(host_index, state)| (conversation.hosts.sessions[host_index].host, state))
        .collect();
    differences(&states).check().map_err(Stopped::Preflight)?;
    Ok(judge(&states))
}

/// Why the servers are not ready: they must listen on all hosts.
fn judge(states: &[(&Host, ServersState)]) -> Option<NotReady> {
    let on = |life: ServersLiveness| -> Vec<&Host> {
        let hosts = states.iter().filter(|(_, state)| state.life == life);
        hosts.map(|(host, _)| *host).collect()
    };
    let (none, starting) = (on(ServersLiveness::None), on(ServersLiveness::Starting));
    let ending = on(ServersLiveness::Ending);
    let (why, is_starting) = if !ending.is_empty() {
        (
            format!("the servers of {} are being stopped", locations(&ending)),
            false,
        )
    } else if !starting.is_empty() {
        (
            format!(
                "the servers of {} are loading their graph",
                locations(&starting)
            ),
            true,
        )
    } else if none.len() == states.len() {
        ("none run on these hosts".to_owned(), false)
    } else if !none.is_empty() {
        (format!("none run on {}", locations(&none)), false)
    } else {
        return None;
    };
    Some(NotReady { why, is_starting })
}

impl NotReady {
    pub fn fault(&self, name: &str) -> Fault {
        let fix = if self.is_starting {
            "wait for them with --wait TIME, or see the output of their dgl-spawn".to_owned()
        } else {
            format!(
                "start them, and leave them running: … | dgl-env --role server --keep-alive \
             --server-name {name} … | dgl-spawn --job {name}; see \"Persistent graph servers\" \
             in dgl-tools-jobs(7)"
            )
        };
        Fault::unreachable(format!("graph servers {name}"), self.why.clone()).fix(fix)
    }
}

/// The settings that persistent graph servers and their trainers must share.
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

/// How servers differ from what these trainers need.
fn differences(states: &[(&Host, ServersState)]) -> Report {
    let mut report = Report::default();
    let mut grouped: BTreeMap<String, Vec<&Host>> = BTreeMap::new();
    for (host, state) in states {
        for label in difference_labels(&state.theirs, &state.ours) {
            grouped.entry(label).or_default().push(host);
        }
    }
    for (label, hosts) in grouped {
        let fix = "give dgl-env the same numbers and files, or stop the servers with dgl-reap \
                   --job NAME and start them again";
        report.push(Fault::unreachable(locations(&hosts), label).fix(fix));
    }
    report
}

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

/// A new group of trainers, which the first host assigns.
pub fn take_group(
    conversation: &mut Conversation<'_, '_>,
    name: &str,
) -> Result<TrainerGroup, Stopped> {
    let first = conversation
        .hosts
        .sessions
        .first()
        .ok_or_else(no_host)?
        .host;
    conversation.ask(0, Request::TakeGroup(on_host(name, first)));
    let mut group = None;
    conversation.collect(|_, event, _| {
        if let Event::Group(taken) = event {
            group = Some(taken);
        }
    })?;
    group.ok_or_else(no_host)
}

pub fn on_host(name: &str, host: &Host) -> ServersOnHost {
    ServersOnHost {
        name: name.to_owned(),
        address: host.ip.0,
    }
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

    #[test]
    fn all_hosts_must_have_them() {
        use ServersLiveness::{Alive, Ending, None, Starting};
        let not_ready = |why: &str, is_starting| {
            let why = why.to_owned();
            Some(NotReady { why, is_starting })
        };
        let table = [
            ([Alive, Alive], Option::None),
            (
                [Alive, Starting],
                not_ready(
                    "the servers of host 1 (10.0.0.2) are loading their graph",
                    true,
                ),
            ),
            (
                [None, Starting],
                not_ready(
                    "the servers of host 1 (10.0.0.2) are loading their graph",
                    true,
                ),
            ),
            ([None, None], not_ready("none run on these hosts", false)),
            (
                [Alive, None],
                not_ready("none run on host 1 (10.0.0.2)", false),
            ),
            (
                [Starting, Ending],
                not_ready("the servers of host 1 (10.0.0.2) are being stopped", false),
            ),
        ];
        let hosts = hosts(2);
        for (lives, expected) in table {
            let state = |life| ServersState {
                life,
                ..ServersState::default()
            };
            let states: Vec<(&Host, ServersState)> = hosts.iter().zip(lives.map(state)).collect();
            assert_eq!(judge(&states), expected, "{lives:?}");
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
            groups: 0,
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
