//! More connections to one host, where one core or one TCP stream is the limit: each of them brings
//! a range of one large file.

use std::time::{Duration, Instant};

/// What is written and read at once on a host; a range begins at a whole one.
pub const BLOCK: u64 = 64 << 10;
/// What a connection brings before all wait for one another.
const RANGE: u64 = 64 << 20;
/// Without `--streams` no more connections by logins than so many,
const MOST: usize = 4;
/// and directly no more than so many;
const MOST_DIRECT: usize = 8;
/// and only for what takes much longer than a login.
const WORTH: u64 = 256 << 20;
/// Less is not worth a range.
const LEAST: u64 = 1 << 20;
/// One more connection stays if all together are so much quicker with it.
const FAIR: f64 = 1.15;

/// How many connections there are to be to a host.
#[derive(Clone, Copy, Debug)]
pub struct Streams {
    said: Option<u16>,
    by_login: usize,
}

impl Streams {
    /// As said; else directly as many as make it quicker, and by logins of ssh to so many hosts at
    /// once one for each processor that there is for a host, because the cipher of one keeps one
    /// busy.
    pub fn wanted(said: Option<u16>, hosts: usize, by_ssh: bool) -> Streams {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let by_login = match by_ssh {
            true => (processors / hosts.max(1)).clamp(1, MOST),
            false => 1,
        };
        Streams { said, by_login }
    }
}

/// How many connections are quickest: one more is tried as long as that helps.
#[derive(Debug, Default)]
struct Growth {
    /// Bytes a second of the last number of connections that was tried, and that number.
    seen: Option<(usize, f64)>,
    settled: Option<usize>,
}

impl Growth {
    /// With how many the next is to be brought.
    fn streams(&self) -> usize {
        let next = self.seen.map_or(1, |(streams, _)| streams + 1);
        self.settled.unwrap_or(next.min(MOST_DIRECT))
    }

    /// So many have brought it at this rate.
    fn saw(&mut self, streams: usize, rate: f64) {
        if self.settled.is_some() || streams != self.streams() {
            return;
        }
        match self.seen {
            Some((fewer, before)) if rate < before * FAIR => self.settled = Some(fewer),
            _ if streams == MOST_DIRECT => self.settled = Some(streams),
            _ => self.seen = Some((streams, rate)),
        }
    }

    /// No more can be had.
    fn settle(&mut self, streams: usize) {
        self.settled = Some(streams);
    }
}

/// The connections beside the first; made when there is something to bring over them.
pub struct Lanes<'a, S> {
    /// `None` where it is found out.
    wanted: Option<usize>,
    growth: Growth,
    from_bytes: u64,
    open: &'a dyn Fn() -> Option<S>,
    sites: Vec<S>,
    made: bool,
}

impl<'a, S> Lanes<'a, S> {
    /// To a host that is reached directly or by logins. A connection that `open` does not get is
    /// done without.
    pub fn new(streams: Streams, is_direct: bool, open: &'a dyn Fn() -> Option<S>) -> Lanes<'a, S> {
        let (wanted, from_bytes) = match streams.said {
            Some(said) => (Some(usize::from(said)), LEAST),
            None if is_direct => (None, WORTH),
            None => (Some(streams.by_login), WORTH),
        };
        Lanes {
            wanted,
            growth: Growth::default(),
            from_bytes,
            open,
            sites: Vec::new(),
            made: false,
        }
    }

    /// With how many connections the next is to be brought.
    fn streams(&self) -> usize {
        self.wanted.unwrap_or_else(|| self.growth.streams())
    }

    /// Whether so many bytes are better brought over several; makes them.
    pub fn pays(&mut self, bytes: u64) -> bool {
        // what is left of a file that went over them does too
        let least = if self.made { LEAST } else { self.from_bytes };
        let beside = self.streams().saturating_sub(1);
        if beside == 0 || bytes < least {
            return false;
        }
        while self.sites.len() < beside && !(self.made && self.wanted.is_some()) {
            match (self.open)() {
                Some(site) => self.sites.push(site),
                None => {
                    self.growth.settle(self.sites.len() + 1);
                    break;
                }
            }
        }
        self.made = true;
        !self.sites.is_empty()
    }

    /// Whether it is still to be found out how quick one connection is, for so many bytes.
    pub fn wants_rate(&self, bytes: u64) -> bool {
        self.wanted.is_none() && self.growth.seen.is_none() && bytes >= self.from_bytes
    }

    /// One connection alone has brought so many bytes in that time.
    pub fn saw_one(&mut self, bytes: u64, took: Duration) {
        self.growth.saw(1, rate(bytes, took));
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
        let beside = self.streams().saturating_sub(1).min(self.sites.len());
        let ranges = ranges(at, end, 1 + beside as u64);
        let sites = std::iter::once(first).chain(&mut self.sites[..beside]);
        let begun = Instant::now();
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
        let bytes = ranges.iter().map(|(_, length)| length).sum();
        // a round in which one had nothing to do shows nothing
        if ranges.len() == 1 + beside && bytes >= RANGE {
            self.growth.saw(1 + beside, rate(bytes, begun.elapsed()));
        }
        (bytes, brought)
    }

    /// The connections beside the first, when they have brought all.
    pub fn into_sites(self) -> impl Iterator<Item = S> {
        self.sites.into_iter()
    }
}

fn rate(bytes: u64, took: Duration) -> f64 {
    bytes as f64 / took.as_secs_f64().max(1e-6)
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
    fn connections_are_added_as_long_as_that_helps() {
        // the rates of 1, 2, 3, ... connections, and how many it comes to
        let table: [(&[f64], usize); 5] = [
            (&[100.0, 105.0], 1),
            (&[100.0, 200.0, 210.0], 2),
            (&[100.0, 200.0, 300.0, 290.0], 3),
            (&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.5, 9.0], 8),
            (&[100.0, 50.0], 1),
        ];
        for (rates, expected) in table {
            let mut growth = Growth::default();
            for (at, rate) in rates.iter().enumerate() {
                assert_eq!(growth.streams(), at + 1, "{rates:?}");
                growth.saw(at + 1, *rate);
            }
            assert_eq!(
                (growth.streams(), growth.settled),
                (expected, Some(expected))
            );
        }
    }

    #[test]
    fn as_many_connections_as_said() {
        let open = || Some(());
        let lanes = |said, is_direct| {
            let streams = Streams { said, by_login: 2 };
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
