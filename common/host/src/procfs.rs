//! The kernel's facts in /proc, with one reader for each file. Pure functions parse the text,
//! which others only read.

pub mod cgroup;
mod field;
mod host;
mod process;
mod tcp;
mod thread;
mod topology;

pub use field::{number_of, ticks_to_ms};
pub use host::network_bytes;
pub use process::{
    IoCounts, Mapping, ProcessEnvironment, Stat, command_line, environment, io, is_own,
    kernel_function, mappings, network_namespace, parent, pids, shares_ipc_of_machine,
    shows_all_processes, socket_inodes, stat, stats, status, uses_files, words, working_directory,
};
pub use tcp::{TcpSocket, tcp_sockets};
pub use thread::{of_thread, threads};
pub use topology::{cores_by_node, usable_cpus};

use field::{kib_of, ticks_per_second};
use record::term::{self, millis};
use std::fs;
use wire::probe::EphemeralPorts;

/// The kernel gives these to outgoing connections in this network namespace.
pub fn ephemeral_ports() -> Option<EphemeralPorts> {
    let read = |name: &str| fs::read_to_string(format!("/proc/sys/net/ipv4/{name}"));
    let range = read("ip_local_port_range").ok()?;
    let reserved = read("ip_local_reserved_ports").unwrap_or_default();
    parse_ephemeral_ports(&range, &reserved)
}

/// `range` is two numbers, `reserved` a list such as `8080,9000-9010`.
fn parse_ephemeral_ports(range: &str, reserved: &str) -> Option<EphemeralPorts> {
    let mut range = range.split_whitespace().map(str::parse);
    let (first, last) = (range.next()?.ok()?, range.next()?.ok()?);
    let ports = |item: &str| {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        Some((first.parse().ok()?, last.parse().ok()?))
    };
    Some(EphemeralPorts {
        first,
        last,
        reserved: reserved.trim().split(',').filter_map(ports).collect(),
    })
}

/// How long the machine has run, in the clock ticks of /proc/PID/stat, by a clock that cannot be
/// set. A container's own /proc/uptime may not match the start times of processes.
pub fn uptime_ticks() -> u64 {
    millis(term::uptime()).saturating_mul(ticks_per_second()) / 1000
}

pub fn memory_bytes() -> Option<u64> {
    kib_of(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal:")
}

/// If several file systems are mounted on one directory, the last one counts.
pub fn file_system(folder: &str) -> Option<String> {
    file_system_of(&fs::read_to_string("/proc/mounts").ok()?, folder)
}

fn file_system_of(mounts: &str, folder: &str) -> Option<String> {
    let folder = format!("{}/", folder.trim_end_matches('/'));
    let mut best: Option<(usize, &str)> = None;
    for line in mounts.lines() {
        let mut words = line.split(' ').skip(1);
        let (Some(point), Some(kind)) = (words.next(), words.next()) else {
            continue;
        };
        let point = format!("{}/", unescape(point).trim_end_matches('/'));
        if folder.starts_with(&point) && best.is_none_or(|(length, _)| point.len() >= length) {
            best = Some((point.len(), kind));
        }
    }
    best.map(|(_, kind)| kind.to_owned())
}

/// Replaces the escapes of /proc/mounts, such as `\040`.
fn unescape(text: &str) -> String {
    [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ]
    .iter()
    .fold(text.to_owned(), |text, (escaped, plain)| {
        text.replace(escaped, plain)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_outgoing_connections() {
        let ports = |first, last, reserved: &[(u16, u16)]| {
            let reserved = reserved.to_vec();
            Some(EphemeralPorts {
                first,
                last,
                reserved,
            })
        };
        let table = [
            ("32768\t60999\n", "\n", ports(32768, 60999, &[])),
            (
                "1024 65535",
                "8080,30050-30053\n",
                ports(1024, 65535, &[(8080, 8080), (30050, 30053)]),
            ),
            ("", "", None),
        ];
        for (range, reserved, expected) in table {
            assert_eq!(parse_ephemeral_ports(range, reserved), expected, "{range}");
        }
    }

    #[test]
    fn the_last_and_longest_mount_counts() {
        let mounts = "overlay / overlay rw 0 0\n/dev/sda /data ext4 rw 0 0\nnas:/x /data nfs4 rw \
            0 0\ntmpfs /my\\040disk tmpfs rw 0 0\n";
        let table = [
            ("/", "overlay"),
            ("/database", "overlay"),
            ("/data", "nfs4"),
            ("/data/job/", "nfs4"),
            ("/my disk/a", "tmpfs"),
        ];
        for (folder, kind) in table {
            assert_eq!(
                file_system_of(mounts, folder).as_deref(),
                Some(kind),
                "{folder}"
            );
        }
    }
}
