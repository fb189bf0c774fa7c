//! The processors that share a core, and the cores that share a NUMA node.

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use record::cpus;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

const NODES: &str = "/sys/devices/system/node";
const CPUS: &str = "/sys/devices/system/cpu";

/// The processors that this process may use, in order. A cpuset of a control group or a batch
/// system may restrict them. Empty if unknown.
pub fn usable_cpus() -> BTreeSet<u32> {
    let Ok(set) = sched_getaffinity(Pid::from_raw(0)) else {
        return BTreeSet::new();
    };
    (0..CpuSet::count())
        .filter(|cpu| set.is_set(*cpu).unwrap_or(false))
        .filter_map(|cpu| u32::try_from(cpu).ok())
        .collect()
}

pub fn cores_by_node() -> Vec<Vec<Vec<u32>>> {
    let read = |path: String| fs::read_to_string(path).unwrap_or_default();
    let number = |name: String| name.strip_prefix("node")?.parse::<u32>().ok();
    let entries = fs::read_dir(NODES).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let numbers: BTreeSet<u32> = names.filter_map(number).collect();
    let nodes: Vec<BTreeSet<u32>> = numbers
        .iter()
        .map(|node| cpu_list(&read(format!("{NODES}/node{node}/cpulist"))))
        .collect();
    let siblings = |cpu: u32| {
        cpu_list(&read(format!(
            "{CPUS}/cpu{cpu}/topology/thread_siblings_list"
        )))
    };
    grouped(&usable_cpus(), &nodes, siblings)
}

/// Nodes without usable processors are left out; processors without a node form another one.
fn grouped(
    usable: &BTreeSet<u32>,
    nodes: &[BTreeSet<u32>],
    siblings: impl Fn(u32) -> BTreeSet<u32>,
) -> Vec<Vec<Vec<u32>>> {
    let of_no_node = |cpu: &&u32| !nodes.iter().any(|node| node.contains(cpu));
    let rest: BTreeSet<u32> = usable.iter().filter(of_no_node).copied().collect();
    let mut found = Vec::new();
    for node in nodes.iter().chain([&rest]) {
        // ordered by the first processor of a core, even if it is not usable
        let mut cores: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for cpu in node.intersection(usable) {
            let first = siblings(*cpu).first().copied().unwrap_or(*cpu);
            cores.entry(first).or_default().push(*cpu);
        }
        if !cores.is_empty() {
            found.push(cores.into_values().collect());
        }
    }
    found
}

/// The kernel's file may be missing or empty.
fn cpu_list(text: &str) -> BTreeSet<u32> {
    cpus::parse(text.trim()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usable_processors_by_node_and_core() {
        // two sockets of two cores with two threads each
        let nodes = ["0-1,4-5", "2-3,6-7"].map(cpu_list);
        let siblings = |cpu: u32| BTreeSet::from([cpu % 4, cpu % 4 + 4]);
        let table: [(&str, &[BTreeSet<u32>], &str); 5] = [
            ("0-7", &nodes, "[[[0, 4], [1, 5]], [[2, 6], [3, 7]]]"),
            // a cpuset of three processors on one socket
            ("2-3,7", &nodes, "[[[2], [3, 7]]]"),
            // the first thread of a core is not usable
            ("4,6", &nodes, "[[[4]], [[6]]]"),
            // a kernel without NUMA
            ("0,4,1", &[], "[[[0, 4], [1]]]"),
            ("", &nodes, "[]"),
        ];
        for (usable, nodes, expected) in table {
            let found = grouped(&cpu_list(usable), nodes, siblings);
            assert_eq!(format!("{found:?}"), expected, "{usable}");
        }
        // a kernel that does not report which threads share a core
        let found = grouped(&cpu_list("0-1"), &[], |_| BTreeSet::new());
        assert_eq!(found, [[[0], [1]]]);
    }
}
