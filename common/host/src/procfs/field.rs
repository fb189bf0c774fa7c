//! Single numbers in the files of /proc.

/// The number after a key at the beginning of a line.
pub fn number_of(text: &str, key: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

/// The same for a number of KiB, in bytes.
pub fn kib_of(text: &str, key: &str) -> Option<u64> {
    number_of(text, key)?.checked_mul(1024)
}

pub fn ticks_to_ms(ticks: u64) -> u64 {
    ticks.saturating_mul(1000) / ticks_per_second()
}

pub fn ticks_per_second() -> u64 {
    rustix::param::clock_ticks_per_second().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_behind_keys() {
        let text = "MemTotal:       16318412 kB\nUid:\t7\t8\nMemFree:\n";
        assert_eq!(kib_of(text, "MemTotal:"), Some(16_318_412 * 1024));
        assert_eq!(number_of(text, "Uid:"), Some(7));
        assert_eq!(number_of(text, "MemFree:"), None);
        assert_eq!(number_of(text, "Total:"), None);
    }
}
