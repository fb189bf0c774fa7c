//! Further connections to one host, where one core or one TCP stream is the limit. Each of them
//! carries a range of one large file.

use super::fault::HostFault;

/// How many bytes are written and read at once on a host; a range begins at a multiple of it.
pub const BLOCK: u64 = 64 << 10;
/// How many bytes a connection carries before all wait for one another.
const RANGE: u64 = 64 << 20;
/// Without `--streams`, a host gets at most this many connections by logins.
const MOST: usize = 4;
/// Without `--streams`, smaller files come over one connection: another login would take longer.
const WORTH: u64 = 256 << 20;
/// A smaller range is not worth a connection.
const LEAST: u64 = 1 << 20;

/// How many connections a host gets.
#[derive(Clone, Copy, Debug)]
pub struct Streams {
    requested: Option<u16>,
    by_login: usize,
}

impl Streams {
    /// `--streams` if given. Otherwise one direct connection, because two share a link unfairly.
    /// Over ssh it is one for each processor available to a host, with `hosts` of them served at
    /// once, because the cipher of a connection keeps a processor busy.
    pub fn wanted(requested: Option<u16>, hosts: usize, by_ssh: bool) -> Streams {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let by_login = match by_ssh {
            true => (processors / hosts.max(1)).clamp(1, MOST),
            false => 1,
        };
        Streams {
            requested,
            by_login,
        }
    }
}

/// The connections beside the first, opened when there is something to carry over them.
pub struct Lanes<'a, S> {
    wanted: usize,
    from_bytes: u64,
    open: &'a dyn Fn() -> Option<S>,
    sites: Vec<S>,
    made: bool,
}

impl<'a, S> Lanes<'a, S> {
    /// Prepares connections to a host that is reached directly or by logins. If `open` fails, the
    /// copy goes on without that connection.
    pub fn new(streams: Streams, is_direct: bool, open: &'a dyn Fn() -> Option<S>) -> Lanes<'a, S> {
        let (wanted, from_bytes) = match streams.requested {
            Some(requested) => (usize::from(requested), LEAST),
            None if is_direct => (1, WORTH),
            None => (streams.by_login, WORTH),
        };
        Lanes {
            wanted,
            from_bytes,
            open,
            sites: Vec::new(),
            made: false,
        }
    }

    /// Whether this many bytes are better carried over several connections; opens them.
    pub fn pays(&mut self, bytes: u64) -> bool {
        // the same holds for the rest of a file that went over several
        let least = if self.made { LEAST } else { self.from_bytes };
        let beside = self.wanted.saturating_sub(1);
        if beside == 0 || bytes < least {
            return false;
        }
        if !self.made {
            self.sites.extend((0..beside).map_while(|_| (self.open)()));
        }
        self.made = true;
        !self.sites.is_empty()
    }

    /// Carries the next part of a file, which begins at a multiple of a block, one range over each
    /// connection. Returns the length of the part and the result of each range; one for which there
    /// is no thread has failed.
    pub fn round<T: Send>(
        &mut self,
        first: &mut S,
        (at, end): (u64, u64),
        bring: &(dyn Fn(&mut S, (u64, u64)) -> Result<T, HostFault> + Sync),
    ) -> (u64, Vec<Result<T, HostFault>>)
    where
        S: Send,
    {
        let ranges = ranges(at, end, 1 + self.sites.len() as u64);
        let brought = std::thread::scope(|scope| {
            let beside = self.sites.iter_mut().zip(ranges.iter().skip(1));
            let threads: Vec<_> = beside
                .map(|(site, range)| {
                    let work = move || bring(site, *range);
                    std::thread::Builder::new().spawn_scoped(scope, work)
                })
                .collect();
            let own = ranges.first().map(|range| bring(first, *range));
            let joined = threads.into_iter().map(|thread| match thread {
                Ok(thread) => thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                Err(error) => Err(HostFault::reported(format!("no thread here: {error}"))
                    .fix("let this user have more processes: ulimit -u")),
            });
            own.into_iter().chain(joined).collect()
        });
        let bytes = ranges.iter().map(|(_, length)| length).sum();
        (bytes, brought)
    }

    /// The connections beside the first, after all work.
    pub fn into_connections(self) -> impl Iterator<Item = S> {
        self.sites.into_iter()
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
    fn as_many_connections_as_said() {
        let open = || Some(());
        let lanes = |requested, is_direct| {
            let streams = Streams {
                requested,
                by_login: 2,
            };
            let mut lanes = Lanes::new(streams, is_direct, &open);
            let pays = [lanes.pays(WORTH - 1), lanes.pays(WORTH)];
            (pays, lanes.sites.len())
        };
        assert_eq!(lanes(Some(3), true), ([true, true], 2));
        assert_eq!(lanes(Some(1), false), ([false, false], 0));
        assert_eq!(lanes(None, false), ([false, true], 1));
        assert_eq!(lanes(None, true), ([false, false], 0));
    }

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
