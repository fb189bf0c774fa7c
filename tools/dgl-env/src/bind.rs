//! Decides on which processors each process of a host may run.
//!
//! Memory is not bound: Linux takes a page from the node of the processor that first writes to it,
//! and from another node if that one is full. So binding to processors is enough, and a full node
//! ends no process.

use clap::ValueEnum;
use std::ops::Range;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Bind {
    /// To all cores of one NUMA node, which other processes may share.
    Numa,
    /// To cores of its own, all in one NUMA node.
    Cores,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Binding {
    pub cpus: Vec<u32>,
    /// Cores that it may count as its own.
    pub cores: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostBindings {
    /// One for each graph server, in their order.
    pub servers: Vec<Binding>,
    /// One for each trainer or worker, in their order. Samplers run where their trainer does.
    pub clients: Vec<Binding>,
    /// Whether some processes share a core, because [`Bind::Cores`] finds too few.
    pub is_crowded: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct ProcessCounts {
    pub servers: u32,
    /// Cores that each server wants: as many as its threads.
    pub server_cores: u32,
    pub clients: u32,
}

/// The processor numbers of a core's hyper-threads.
type Core = Vec<u32>;

/// Places the processes of a host; `nodes` has its usable processors by NUMA node and core.
///
/// Servers and clients are each distributed over the nodes in blocks, because neighbours by rank
/// exchange most. On a node each server gets the cores that it wants as long as every client still
/// gets one, and the clients share the others evenly. Hyper-threads of a core stay together.
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

/// The processes of one node when `count` are distributed over `nodes` in blocks.
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
