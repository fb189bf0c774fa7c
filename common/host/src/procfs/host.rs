//! The kernel's counters of the whole host.

use super::field::kib_of;
use nix::sys::statvfs::statvfs;
use std::fs;

/// The current use of the host, and its counters since the start of the machine; 0 if unreadable.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostCounters {
    /// Processor time of all processors together, in clock ticks.
    pub cpu_ticks: u64,
    /// The number of processors.
    pub cpus: u32,
    /// Main memory in use now, in bytes.
    pub mem_used_bytes: u64,
    /// Main memory, in bytes.
    pub mem_bytes: u64,
    /// Bytes that /dev/shm holds now.
    pub shm_used_bytes: u64,
    /// Bytes received over network interfaces.
    pub net_rx_bytes: u64,
    /// Bytes sent over network interfaces.
    pub net_tx_bytes: u64,
    /// Bytes read from disks.
    pub disk_read_bytes: u64,
    /// Bytes written to disks.
    pub disk_write_bytes: u64,
}

/// Reads the counters of this host.
pub fn host_counters() -> HostCounters {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let (cpus, cpu_ticks) = processors(&text("/proc/stat"));
    let (mem_used_bytes, mem_bytes) = memory(&text("/proc/meminfo"));
    let shm_used_bytes = statvfs("/dev/shm").map_or(0, |shm| {
        (shm.blocks().saturating_sub(shm.blocks_free())).saturating_mul(shm.fragment_size())
    });
    let (net_rx_bytes, net_tx_bytes) = network(&text("/proc/net/dev"));
    let disks = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let disks: Vec<String> = disks
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    let (disk_read_bytes, disk_write_bytes) = disk_bytes(&text("/proc/diskstats"), &disks);
    HostCounters {
        cpu_ticks,
        cpus,
        mem_used_bytes,
        mem_bytes,
        shm_used_bytes,
        net_rx_bytes,
        net_tx_bytes,
        disk_read_bytes,
        disk_write_bytes,
    }
}

/// `cpu USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ STEAL …`, and a line for each processor. USER
/// includes the time of guests.
fn processors(stat: &str) -> (u32, u64) {
    let is_processor = |line: &&str| {
        line.strip_prefix("cpu")
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let cpus = stat.lines().filter(is_processor).count();
    let total = stat.lines().find_map(|line| line.strip_prefix("cpu "));
    let ticks = total
        .unwrap_or_default()
        .split_ascii_whitespace()
        .enumerate()
        .filter(|(column, _)| [0, 1, 2, 5, 6, 7].contains(column))
        .filter_map(|(_, ticks)| ticks.parse::<u64>().ok())
        .sum();
    (u32::try_from(cpus).unwrap_or(u32::MAX), ticks)
}

/// Parses `NAME: BYTES PACKETS and six more for received data, BYTES PACKETS … for sent data`. The
/// loopback interface does not count.
fn network(dev: &str) -> (u64, u64) {
    let card = |line: &str| {
        let (name, counts) = line.split_once(':')?;
        let counts: Vec<&str> = counts.split_ascii_whitespace().collect();
        let count = |column: usize| counts.get(column)?.parse::<u64>().ok();
        (name.trim() != "lo").then_some((count(0)?, count(8)?))
    };
    dev.lines()
        .filter_map(card)
        .fold((0, 0), |(rx, tx), card| (rx + card.0, tx + card.1))
}

/// Parses `MAJOR MINOR NAME READS MERGED SECTORS MS WRITES MERGED SECTORS …`, where a sector has
/// 512 bytes. Only whole disks count, because devices that consist of others would count twice.
fn disk_bytes(stats: &str, disks: &[String]) -> (u64, u64) {
    const MADE_OF_OTHERS: [&str; 5] = ["loop", "ram", "zram", "dm-", "md"];
    let is_disk = |name: &str| {
        disks.iter().any(|disk| disk == name)
            && !MADE_OF_OTHERS.iter().any(|begin| name.starts_with(begin))
    };
    let disk = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let sectors = |column: usize| words.get(column)?.parse::<u64>().ok();
        is_disk(words.get(2)?).then_some((sectors(5)?, sectors(9)?))
    };
    stats
        .lines()
        .filter_map(disk)
        .fold((0, 0), |(read, written), disk| {
            (read + disk.0 * 512, written + disk.1 * 512)
        })
}

/// Memory that is not available to programs, and all memory.
fn memory(meminfo: &str) -> (u64, u64) {
    let total = kib_of(meminfo, "MemTotal:").unwrap_or(0);
    // Linux before 3.14 has no MemAvailable
    let available = kib_of(meminfo, "MemAvailable:").or_else(|| kib_of(meminfo, "MemFree:"));
    (total.saturating_sub(available.unwrap_or(0)), total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_and_their_time() {
        let text = "cpu  10 1 5 1000 50 2 3 4 7 0\ncpu0 5 0 2 500 25 1 1 2 3 0\n\
            cpu1 5 1 3 500 25 1 2 2 4 0\nintr 99\n";
        assert_eq!(processors(text), (2, 25));
        assert_eq!(processors(""), (0, 0));
    }

    #[test]
    fn network_cards_without_the_hosts_own() {
        let text = "Inter-|   Receive\n face |bytes    packets\n    lo: 9 1 0 0 0 0 0 0 9 1 0 0\n\
            \x20 eth0: 100 1 0 0 0 0 0 0 20 1 0 0 0 0 0 0\neth1:5 1 0 0 0 0 0 0 6 1 0\n";
        assert_eq!(network(text), (105, 26));
    }

    #[test]
    fn whole_disks_alone() {
        let text = " 259 0 nvme0n1 10 0 8 1 5 0 4 1 0 1 1\n \
            259 1 nvme0n1p1 9 0 8 1 5 0 4 1 0 1 1\n 253 0 dm-0 9 0 8 1 5 0 4 1 0 1 1\n";
        let disks = ["nvme0n1".to_owned(), "dm-0".to_owned()];
        assert_eq!(disk_bytes(text, &disks), (8 * 512, 4 * 512));
    }

    #[test]
    fn memory_that_is_used() {
        let text = "MemTotal: 100 kB\nMemFree: 10 kB\nMemAvailable: 60 kB\n";
        assert_eq!(memory(text), (40 << 10, 100 << 10));
        assert_eq!(
            memory("MemTotal: 100 kB\nMemFree: 10 kB\n"),
            (90 << 10, 100 << 10)
        );
    }
}
