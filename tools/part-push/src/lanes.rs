//! More connections to one host, where one core or one TCP stream is the limit: all of them write one large file, each a range of it.

use crate::feed::BLOCK;
use crate::push::drain;
use crate::site::{Broken, Site};
use std::fs::File;
use std::time::Duration;

/// What a connection sends before all wait for one another; as much has to be sent again when it breaks off.
const RANGE: u64 = 64 << 20;
/// Without `--streams` no more connections than so many,
const MOST: usize = 4;
/// and only for what takes much longer than a login.
const WORTH: u64 = 256 << 20;
/// Less is not worth a range.
const LEAST: u64 = 1 << 20;

/// How many connections to each of so many hosts at once, and from which size on: as said, or by ssh one for each processor that there is
/// for a host, because the cipher of one keeps one busy.
pub fn wanted(said: Option<u16>, hosts: usize, by_ssh: bool) -> (usize, u64) {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    match said {
        Some(streams) => (usize::from(streams), LEAST),
        None if by_ssh => ((processors / hosts.max(1)).clamp(1, MOST), WORTH),
        None => (1, WORTH),
    }
}

/// The connections beside the first; made when there is something to send over them.
pub struct Lanes<'a> {
    wanted: usize,
    from_bytes: u64,
    open: &'a dyn Fn() -> Option<Site>,
    sites: Option<Vec<Site>>,
}

impl<'a> Lanes<'a> {
    /// So many connections in all, for what is at least so large. One that `open` does not get is done without.
    pub fn new((streams, from_bytes): (usize, u64), open: &'a dyn Fn() -> Option<Site>) -> Lanes<'a> {
        Lanes { wanted: streams.saturating_sub(1), from_bytes, open, sites: None }
    }

    /// Whether so many bytes are better sent over all of them; makes them.
    pub fn pays(&mut self, bytes: u64) -> bool {
        // what is left of a file that went over them does too
        let least = if self.sites.is_some() { LEAST } else { self.from_bytes };
        if self.wanted == 0 || bytes < least {
            return false;
        }
        let sites = self.sites.get_or_insert_with(|| (0..self.wanted).map_while(|_| (self.open)()).collect());
        !sites.is_empty()
    }

    /// What each connection sends next of a file that goes on at a whole block: where it begins, and how many bytes.
    pub fn ranges(&self, at: u64, end: u64) -> Vec<(u64, u64)> {
        ranges(at, end, 1 + self.sites.as_ref().map_or(0, Vec::len) as u64)
    }

    /// The connections beside the first.
    pub fn sites(&mut self) -> impl Iterator<Item = &mut Site> {
        self.sites.iter_mut().flatten()
    }

    /// Closes them.
    pub fn end(&mut self) {
        self.sites.take().into_iter().flatten().for_each(Site::end);
    }
}

fn ranges(at: u64, end: u64, streams: u64) -> Vec<(u64, u64)> {
    let each = (end - at).div_ceil(streams).next_multiple_of(BLOCK).min(RANGE);
    let begins = (0..streams).map(|number| at + number * each).take_while(|begin| *begin < end);
    begins.map(|begin| (begin, each.min(end - begin))).collect()
}

/// Sends one range, and waits until the host has it; what was wrong with the file.
pub fn send_range(
    site: &mut Site,
    source: &File,
    key: &str,
    (offset, length): (u64, u64),
    moved: &(dyn Fn(u64) + Sync),
) -> Result<Option<String>, Broken> {
    let source = source.try_clone().map_err(|error| Broken::said(error.to_string()))?;
    site.say(&format!("range {key} {offset} {length}"));
    site.running().send_file(source, offset, length);
    site.begin();
    drain(site, 0, moved)?;
    let wrong = site.source_fault();
    site.answer("got", Duration::ZERO)?;
    Ok(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_begin_at_whole_blocks_and_leave_nothing_out() {
        let table = [
            (0, 3 * BLOCK, 2, vec![(0, 2 * BLOCK), (2 * BLOCK, BLOCK)]),
            (BLOCK, BLOCK + 5, 3, vec![(BLOCK, 5)]),
            (0, 1 << 40, 2, vec![(0, RANGE), (RANGE, RANGE)]),
            (0, 2 * BLOCK + 1, 4, vec![(0, BLOCK), (BLOCK, BLOCK), (2 * BLOCK, 1)]),
        ];
        for (at, end, streams, expected) in table {
            assert_eq!(ranges(at, end, streams), expected, "{at} {end} {streams}");
        }
    }
}
