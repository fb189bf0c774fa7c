//! Decides on which processors each process of a host may run.
//!
//! Memory is not bound: Linux takes a page from the node of the processor that first writes to it,
//! and from another node if that one is full. So binding to processors is enough, and a full node
//! ends no process.

use clap::ValueEnum;
use std::ops::Range;

/// How each process is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Bind {
    /// To all cores of one NUMA node, which other processes may share.
    Numa,
    /// To cores of its own, all in one NUMA node.
    Cores,
}

/// The processors of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Binding {
    /// The processors on which it may run.
    pub cpus: Vec<u32>,
    /// How many cores it may count as its own.
    pub cores: u32,
}

/// The processors of all processes of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostBindings {
    /// Those of the graph servers, in their order.
    pub servers: Vec<Binding>,
    /// Those of trainers or workers, in their order. Samplers run where their trainer does.
    pub clients: Vec<Binding>,
    /// Whether some processes share a core, because with [`Bind::Cores`] there are more processes
    /// than cores.
    pub is_crowded: bool,
}

/// The processes of a host, as their binding needs them.
#[derive(Clone, Copy, Debug)]
pub struct ProcessCounts {
    /// The number of graph servers.
    pub servers: u32,
    /// How many cores each of them wants: as many as its threads.
    pub server_cores: u32,
    /// The number of trainers or workers.
    pub clients: u32,
}

/// The processor numbers of a core's hyper-threads.
type Core = Vec<u32>;

/// Places the processes of a host, whose usable processors are given by NUMA node and core.
///
/// Servers and clients are each distributed over the nodes in blocks, because neighbours by rank
/// exchange most. On a node each server gets the cores that it wants as long as every client still
/// gets one, and the clients share the other cores evenly. Hyper-threads of a core stay together.
pub fn bindings(nodes: &[Vec<Core>], counts: ProcessCounts, how: Bind) -> HostBindings {
    let mut bindings = HostBindings::default();
    for (node, cores) in nodes.iter().enumerate() {
        let here = |count: u32| block(count, nodes.len(), node).len();
        let (servers, clients) = (here(counts.servers), here(counts.clients));
        match how {
            Bind::Numa => {
                bindings
                    .servers
                    .extend(vec![binding(cores, cores.len()); servers]);
                let own = (cores.len() / clients.max(1)).max(1);
                bindings.clients.extend(vec![binding(cores, own); clients]);
            }
            Bind::Cores if servers + clients > cores.len() => {
                bindings.is_crowded = true;
                let mut one = (0..servers + clients)
                    .map(|process| binding(&cores[process % cores.len()..][..1], 1));
                bindings.servers.extend(one.by_ref().take(servers));
                bindings.clients.extend(one);
            }
            Bind::Cores => {
                let wanted = usize::try_from(counts.server_cores).unwrap_or(usize::MAX);
                let at_most = (cores.len() - clients) / servers.max(1);
                let for_servers = match clients {
                    0 => cores.len(),
                    _ => servers * wanted.clamp(1, at_most.max(1)),
                };
                let (first, rest) = cores.split_at(for_servers);
                bindings.servers.extend(shares(first, servers));
                bindings.clients.extend(shares(rest, clients));
            }
        }
    }
    bindings
}

/// The processes that fall to a node when `count` are distributed over `nodes` in blocks.
fn block(count: u32, nodes: usize, node: usize) -> Range<usize> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    // the first of two falls to the first of four nodes, the second to the third
    let first = |node: usize| (node * count).div_ceil(nodes);
    first(node)..first(node + 1)
}

fn shares(cores: &[Core], processes: usize) -> impl Iterator<Item = Binding> {
    (0..processes).map(move |process| {
        let begin = cores.len() * process / processes;
        let end = cores.len() * (process + 1) / processes;
        binding(&cores[begin..end], end - begin)
    })
}

fn binding(cores: &[Core], own: usize) -> Binding {
    Binding {
        cpus: cores.concat(),
        cores: u32::try_from(own).unwrap_or(u32::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::cpus;

    /// Cores with two hyper-threads each, the second ones numbered last, as Linux does.
    fn host(nodes: usize, cores: u32) -> Vec<Vec<Core>> {
        let all = u32::try_from(nodes).unwrap() * cores;
        let cores: Vec<Core> = (0..all).map(|core| vec![core, core + all]).collect();
        cores
            .chunks(cores.len() / nodes)
            .map(<[Core]>::to_vec)
            .collect()
    }

    fn shown(nodes: &[Vec<Core>], servers: u32, clients: u32, how: Bind) -> (String, String, bool) {
        let counts = ProcessCounts {
            servers,
            server_cores: 1,
            clients,
        };
        let found = bindings(nodes, counts, how);
        let show = |places: &[Binding]| {
            let each = places.iter().map(|one| cpus::list(one.cpus.clone()));
            each.collect::<Vec<_>>().join(" ")
        };
        (show(&found.servers), show(&found.clients), found.is_crowded)
    }

    #[expect(clippy::too_many_lines, reason = "it is a table of cases")]
    #[test]
    fn places_on_hosts() {
        let (one, two, four) = (host(1, 8), host(2, 8), host(4, 4));
        // a cpuset of one thread of a core, two cores of one socket and one of the other
        let cut = vec![vec![vec![3], vec![4, 12]], vec![vec![9, 25]]];
        let threads = vec![vec![vec![0], vec![1]]];
        use Bind::{Cores, Numa};
        let table: [(&str, &[Vec<Core>], u32, u32, Bind, &str, &str, bool); 13] = [
            (
                "one node",
                &one,
                1,
                2,
                Cores,
                "0,8",
                "1-3,9-11 4-7,12-15",
                false,
            ),
            ("one node", &one, 1, 2, Numa, "0-15", "0-15 0-15", false),
            (
                "no client",
                &one,
                2,
                0,
                Cores,
                "0-3,8-11 4-7,12-15",
                "",
                false,
            ),
            (
                "as many as cores",
                &one,
                4,
                4,
                Cores,
                "0,8 1,9 2,10 3,11",
                "4,12 5,13 6,14 7,15",
                false,
            ),
            (
                "two nodes",
                &two,
                2,
                4,
                Cores,
                "0,16 8,24",
                "1-3,17-19 4-7,20-23 9-11,25-27 12-15,28-31",
                false,
            ),
            (
                "two nodes",
                &two,
                1,
                2,
                Numa,
                "0-7,16-23",
                "0-7,16-23 8-15,24-31",
                false,
            ),
            (
                "a server on one of two",
                &two,
                1,
                2,
                Cores,
                "0,16",
                "1-7,17-23 8-15,24-31",
                false,
            ),
            (
                "an odd number",
                &two,
                1,
                3,
                Numa,
                "0-7,16-23",
                "0-7,16-23 0-7,16-23 8-15,24-31",
                false,
            ),
            (
                "fewer than nodes",
                &four,
                1,
                2,
                Cores,
                "0,16",
                "1-3,17-19 8-11,24-27",
                false,
            ),
            ("more than cores", &threads, 1, 3, Cores, "0", "1 0 1", true),
            ("a cpuset", &cut, 1, 2, Cores, "3", "4,12 9,25", false),
            (
                "a cpuset, crowded",
                &cut,
                1,
                4,
                Cores,
                "3",
                "4,12 3 9,25 9,25",
                true,
            ),
            ("nothing runs", &one, 0, 0, Cores, "", "", false),
        ];
        for (what, nodes, servers, clients, how, of_servers, of_clients, crowded) in table {
            assert_eq!(
                shown(nodes, servers, clients, how),
                (of_servers.to_owned(), of_clients.to_owned(), crowded),
                "{what}: {servers} servers, {clients} clients, {how:?}"
            );
        }
    }

    #[test]
    fn a_server_gets_cores_for_its_threads_while_clients_have_one() {
        // threads of a server, clients; cores of a server, of the first client
        for (wanted, clients, of_server, of_client) in [(2, 2, 2, 3), (20, 2, 6, 1), (1, 7, 1, 1)] {
            let counts = ProcessCounts {
                servers: 1,
                server_cores: wanted,
                clients,
            };
            let found = bindings(&host(1, 8), counts, Bind::Cores);
            let cores = (found.servers[0].cores, found.clients[0].cores);
            assert_eq!(
                cores,
                (of_server, of_client),
                "{wanted} threads, {clients} clients"
            );
        }
    }

    #[test]
    fn cores_of_a_node_are_shared_by_its_clients() {
        let counts = ProcessCounts {
            servers: 1,
            server_cores: 1,
            clients: 3,
        };
        let found = bindings(&host(2, 8), counts, Bind::Numa);
        let cores: Vec<u32> = found.clients.iter().map(|one| one.cores).collect();
        assert_eq!(cores, [4, 4, 8]);
    }
}
