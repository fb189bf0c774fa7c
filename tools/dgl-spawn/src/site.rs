//! The hosts of a job: a thread each that talks to its script, and what comes from all of them as one row of events.

use common::record::Host;
use common::remote::{Heard, Running, Waker};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

/// How often a host hears that the launcher lives; oftener where six words would not fit into --host-timeout.
const HEARTBEAT: Duration = Duration::from_secs(5);

/// What happens.
pub enum Event {
    /// A host said something.
    Host(usize, Heard),
    /// The job is to end.
    Signal(i32),
    /// What does not matter before the start.
    Aside(Aside),
}

/// What does not matter before the start.
pub enum Aside {
    /// How far is it? (SIGUSR1)
    Asked,
    /// Lines of a loud stream; when they have been taken, that is to be told.
    Loud { at: usize, stderr: bool, text: Vec<u8>, taken: Sender<()> },
    /// A loud stream is at its end, or could not be carried: its relay on that host, which waits, goes on.
    Carried { site: usize, waits: u32 },
}

/// A host as the job sees it.
pub struct Site<'a> {
    /// Its record.
    pub host: &'a Host,
    /// Positions of its processes, in the order of the ids that its script uses.
    pub members: Vec<usize>,
    /// Its script has ended, or it is lost.
    pub over: bool,
    /// Loud streams that have a connection of their own.
    pub carried: usize,
    /// Of a detached job: when that was which it tells next, in milliseconds since 1970.
    pub was: Option<u64>,
    orders: Sender<Vec<u8>>,
    waker: Arc<Waker>,
}

impl<'a> Site<'a> {
    /// The one at that position; `patience` is how long it may be silent.
    pub fn new(
        at: usize,
        host: &'a Host,
        members: Vec<usize>,
        running: Running,
        patience: Duration,
        events: Sender<Event>,
    ) -> std::io::Result<Site<'a>> {
        let (orders, receiver) = channel();
        let waker = Arc::new(Waker::new()?);
        let own_waker = Arc::clone(&waker);
        // a thread that mostly waits needs little stack, and there may be thousands
        let thread = std::thread::Builder::new().stack_size(256 << 10);
        thread.spawn(move || talk(at, running, patience, &receiver, &own_waker, &events))?;
        Ok(Site { host, members, over: false, carried: 0, was: None, orders, waker })
    }

    /// Sends its script a line.
    pub fn say(&self, line: &str) {
        // a thread that has ended has told why
        let _ = self.orders.send(format!("{line}\n").into_bytes());
        self.waker.wake();
    }
}

impl Drop for Site<'_> {
    fn drop(&mut self) {
        let _ = self.orders.send(Vec::new());
        self.waker.wake();
    }
}

/// Talks with one host until its script ends or it is lost.
fn talk(at: usize, mut running: Running, patience: Duration, orders: &Receiver<Vec<u8>>, waker: &Waker, events: &Sender<Event>) {
    // from the first order on: before that nothing is there that could be lost
    let mut beats: Option<(Instant, Instant)> = None;
    let heartbeat = HEARTBEAT.min(patience / 6);
    let tell = |heard| events.send(Event::Host(at, heard)).is_ok();
    loop {
        loop {
            match orders.try_recv() {
                // nobody is interested any more: the end of its stdin ends the script
                Ok(order) if order.is_empty() => return,
                Ok(order) => {
                    beats = beats.or_else(|| Some((Instant::now(), Instant::now())));
                    running.send(order);
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return,
            }
        }
        if let Some((first, last)) = &mut beats {
            if last.elapsed() >= heartbeat {
                *last = Instant::now();
                running.send("alive\n");
            }
            if running.last_heard().max(*first).elapsed() >= patience {
                tell(Heard::Lost(format!("nothing was heard of it for {} s", patience.as_secs_f32())));
                return;
            }
        }
        let wait = beats.map_or(Duration::from_secs(60), |(_, last)| heartbeat.saturating_sub(last.elapsed()));
        for heard in running.step(Some(waker), wait) {
            let last = !matches!(heard, Heard::Line(_));
            if !tell(heard) || last {
                return;
            }
        }
    }
}
