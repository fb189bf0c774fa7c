//! More connections to one host, where one core or one TCP stream is the limit: each of them brings
//! a range of one large file.

/// What is written and read at once on a host; a range begins at a whole one.
pub const BLOCK: u64 = 64 << 10;
/// What a connection brings before all wait for one another; as much has to come again when it
/// breaks off.
const RANGE: u64 = 64 << 20;
/// Without `--streams` no more connections than so many,
const MOST: usize = 4;
/// and only for what takes much longer than a login.
const WORTH: u64 = 256 << 20;
/// Less is not worth a range.
const LEAST: u64 = 1 << 20;

/// How many connections to each of so many hosts at once, and from which size on: as said, or by
/// ssh one for each processor that there is for a host, because the cipher of one keeps one busy.
pub fn wanted(said: Option<u16>, hosts: usize, by_ssh: bool) -> (usize, u64) {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    match said {
        Some(streams) => (usize::from(streams), LEAST),
        None if by_ssh => ((processors / hosts.max(1)).clamp(1, MOST), WORTH),
        None => (1, WORTH),
    }
}

/// The connections beside the first; made when there is something to bring over them.
pub struct Lanes<'a, S> {
    wanted: usize,
    from_bytes: u64,
    open: &'a dyn Fn() -> Option<S>,
    sites: Option<Vec<S>>,
}

impl<'a, S> Lanes<'a, S> {
    /// So many connections in all, for what is at least so large. One that `open` does not get is
    /// done without.
    pub fn new(
        (streams, from_bytes): (usize, u64),
        open: &'a dyn Fn() -> Option<S>,
    ) -> Lanes<'a, S> {
        Lanes {
            wanted: streams.saturating_sub(1),
            from_bytes,
            open,
            sites: None,
        }
    }

    /// Whether so many bytes are better brought over all of them; makes them.
    pub fn pays(&mut self, bytes: u64) -> bool {
        // what is left of a file that went over them does too
        let least = if self.sites.is_some() {
            LEAST
        } else {
            self.from_bytes
        };
        if self.wanted == 0 || bytes < least {
            return false;
        }
        let sites = self
            .sites
            .get_or_insert_with(|| (0..self.wanted).map_while(|_| (self.open)()).collect());
        !sites.is_empty()
    }

    /// Brings the next of a file that goes on at a whole block, a range over each connection: how
    /// much, and what became of each.
    pub fn round<T: Send>(
        &mut self,
        first: &mut S,
        (at, end): (u64, u64),
        bring: &(dyn Fn(&mut S, (u64, u64)) -> T + Sync),
    ) -> (u64, Vec<T>)
    where
        S: Send,
    {
        let ranges = ranges(at, end, 1 + self.sites.as_ref().map_or(0, Vec::len) as u64);
        let sites = std::iter::once(first).chain(self.sites.iter_mut().flatten());
        let brought = std::thread::scope(|scope| {
            let threads: Vec<_> = sites
                .zip(&ranges)
                .map(|(site, range)| scope.spawn(move || bring(site, *range)))
                .collect();
            threads
                .into_iter()
                .map(|thread| {
                    thread
                        .join()
                        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                })
                .collect()
        });
        (ranges.iter().map(|(_, length)| length).sum(), brought)
    }

    /// The connections beside the first, when they have brought all.
    pub fn into_sites(self) -> impl Iterator<Item = S> {
        self.sites.into_iter().flatten()
    }
}

fn ranges(at: u64, end: u64, streams: u64) -> Vec<(u64, u64)> {
    let each = (end - at)
        .div_ceil(streams)
        .next_multiple_of(BLOCK)
        .min(RANGE);
    let begins = (0..streams)
        .map(|number| at + number * each)
        .take_while(|begin| *begin < end);
    begins.map(|begin| (begin, each.min(end - begin))).collect()
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
            (
                0,
                2 * BLOCK + 1,
                4,
                vec![(0, BLOCK), (BLOCK, BLOCK), (2 * BLOCK, 1)],
            ),
        ];
        for (at, end, streams, expected) in table {
            assert_eq!(ranges(at, end, streams), expected, "{at} {end} {streams}");
        }
    }
}
