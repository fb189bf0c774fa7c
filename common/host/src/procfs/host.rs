//! The kernel's counters of the whole host.

use std::fs;

/// Bytes that were received and sent over network interfaces since the start of the machine; 0 if
/// unreadable.
pub fn network_bytes() -> u64 {
    let dev = fs::read_to_string("/proc/net/dev").unwrap_or_default();
    dev.lines().filter_map(interface_bytes).sum()
}

/// Parses `NAME: BYTES PACKETS and six more for received data, BYTES PACKETS … for sent data`. The
/// loopback interface does not count.
fn interface_bytes(line: &str) -> Option<u64> {
    let (name, counts) = line.split_once(':')?;
    let counts: Vec<&str> = counts.split_ascii_whitespace().collect();
    let count = |column: usize| counts.get(column)?.parse::<u64>().ok();
    (name.trim() != "lo").then_some(count(0)?.saturating_add(count(8)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_does_not_count() {
        let text = "Inter-|   Receive\n face |bytes    packets\n    lo: 9 1 0 0 0 0 0 0 9 1 0 0\n\
            \x20 eth0: 100 1 0 0 0 0 0 0 20 1 0 0 0 0 0 0\neth1:5 1 0 0 0 0 0 0 6 1 0\n";
        let bytes: Vec<u64> = text.lines().filter_map(interface_bytes).collect();
        assert_eq!(bytes, [120, 11]);
    }
}
