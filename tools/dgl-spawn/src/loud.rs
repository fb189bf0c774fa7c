//! A stream that says much. A host's script relays line by line, which costs a shell some microseconds a byte: enough for what people
//! read, not for a stream of 100 MB/s. Such a stream gets a connection of its own, over which `cat` reads the very pipe that the
//! relay reads, while the relay waits. Its own connection, because one that is full would keep the launcher's word from the host.

use crate::site::{Aside, Event};
use common::record::Host;
use common::remote::{Heard, Remote};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// Streams of a host that get a connection; more would only compete for the same link and the same cores.
pub const AT_ONCE: usize = 4;
/// Blocks (64 KiB at most) that the job has not taken yet. Then the stream waits: --log-dir loses nothing.
const IN_FLIGHT: usize = 16;

/// A stream to be carried.
pub struct Stream {
    /// The position of its host's site.
    pub site: usize,
    /// The position of the process.
    pub at: usize,
    /// Not stdout.
    pub stderr: bool,
    /// The relay, whose stdin it is.
    pub relay: u32,
    /// The process that the relay waits for.
    pub waits: u32,
}

impl Stream {
    /// Carries it to its end; that it is there is told in any case.
    pub fn carry(&self, remote: &Remote, host: &Host, token: &str, events: &Sender<Event>) {
        self.read(remote, host, token, events);
        let _ = events.send(Event::Aside(Aside::Carried { site: self.site, waits: self.waits }));
    }

    fn read(&self, remote: &Remote, host: &Host, token: &str, events: &Sender<Event>) {
        // Where nobody takes what it writes, the watch on the host ends it; then its shell has nothing to say either.
        let script = format!("DGL_TOOLS_TOKEN=out-{token} cat </proc/{}/fd/0; [ $? -lt 128 ] || kill -s KILL $$", self.relay);
        // without a connection the relay goes on with it
        let Ok(mut running) = remote.open_in_blocks(host, script.as_bytes()) else { return };
        let (taken, room) = channel();
        (0..IN_FLIGHT).try_for_each(|_| taken.send(())).unwrap_or_default();
        loop {
            for heard in running.step(None, Duration::from_secs(60)) {
                let Heard::Line(text) = heard else { return };
                let _ = room.recv();
                let loud = Aside::Loud { at: self.at, stderr: self.stderr, text, taken: taken.clone() };
                if events.send(Event::Aside(loud)).is_err() {
                    return;
                }
            }
        }
    }
}
