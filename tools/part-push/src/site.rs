//! One host that receives: what is asked, what it says, and when it is given up.

use crate::plan::{Delivery, Source, is_sure, is_there, key};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use common::cksum;
use common::listing::{SILENCE, There, parse_look, parse_sums, patience};
use common::remote::lanes::BLOCK;
use common::remote::{Heard, Running};
use std::collections::{BTreeMap, VecDeque};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// A host that waits for its turn hears from us so often.
pub const BEAT: Duration = Duration::from_secs(10);
/// So long it may have its hands full meanwhile; that it is lost is told by the connection.
const IDLE: Duration = Duration::from_secs(24 * 3600);

/// A host that receives.
pub struct Site {
    running: Running,
    stop: Arc<AtomicUsize>,
    /// Programs that not every host has.
    tools: Vec<String>,
    free_bytes: Option<u64>,
    /// There was nothing where the files go when the push began.
    empty: bool,
    /// What went wrong there, in the words of its programs.
    pub notes: Vec<String>,
    /// By delivery: why it failed there.
    pub failed: BTreeMap<u32, String>,
    /// By key: checksum and size of what an earlier push has left.
    partials: BTreeMap<String, (u32, u64)>,
    /// By delivery: what was sent of it for other hosts to have too.
    pub relayed: BTreeMap<u32, u64>,
    /// Answers, in the order of the questions.
    pub answers: VecDeque<Answer>,
    moved: (u64, Instant),
}

/// What a host answers to a question.
pub struct Answer {
    pub word: Vec<u8>,
    pub text: Vec<u8>,
    pub heard: Instant,
}

/// A host that cannot go on.
#[derive(Clone, Debug)]
pub struct Broken {
    /// Why.
    pub why: String,
    /// It is not the host that said so: it cannot be reached any more.
    pub lost: bool,
}

impl Broken {
    pub fn said(why: impl Into<String>) -> Broken {
        Broken { why: why.into(), lost: false }
    }

    fn lost(why: impl Into<String>) -> Broken {
        Broken { why: why.into(), lost: true }
    }
}

impl Site {
    /// Waits until the host is ready. `stop` becomes the number of a signal that ends it all.
    pub fn new(running: Running, stop: Arc<AtomicUsize>) -> Result<Site, Broken> {
        let mut site = Site {
            running,
            stop,
            tools: Vec::new(),
            free_bytes: None,
            empty: false,
            notes: Vec::new(),
            failed: BTreeMap::new(),
            partials: BTreeMap::new(),
            relayed: BTreeMap::new(),
            answers: VecDeque::new(),
            moved: (0, Instant::now()),
        };
        site.answer("ready", Duration::ZERO)?;
        Ok(site)
    }

    /// Room on the file system.
    pub fn free_bytes(&self) -> Option<u64> {
        self.free_bytes
    }

    /// Whether there was nothing where the files go when the push began.
    pub fn was_empty(&self) -> bool {
        self.empty
    }

    /// Whether the host has a program.
    pub fn has(&self, tool: &str) -> bool {
        self.tools.iter().any(|has| has == tool)
    }

    /// The hosts of this push whose stage is seen from this one.
    pub fn peers(&mut self) -> Result<Vec<u32>, Broken> {
        self.say("peers");
        let text = self.answer("peers", Duration::ZERO)?;
        Ok(String::from_utf8_lossy(&text).split_whitespace().filter_map(|id| id.parse().ok()).collect())
    }

    /// Which of the deliveries are there already, whole. By checksum: of all, or of those whose size and time are not enough to believe
    /// it; without `verify` of none.
    pub fn look(&mut self, deliveries: &[&Delivery], verify: Option<bool>) -> Result<Vec<bool>, Broken> {
        if verify == Some(true) && !self.has("cksum") {
            return Err(Broken::said("the host has no cksum, so nothing can be verified there"));
        }
        if deliveries.is_empty() {
            return Ok(Vec::new());
        }
        self.ask("look", deliveries);
        let there = self.there(deliveries)?;
        let mut same: Vec<bool> =
            deliveries.iter().zip(&there).map(|(file, there)| there.is_some_and(|there| is_there(file, &there))).collect();
        let unsure = |at: &usize| {
            same[*at]
                && there[*at]
                    .is_some_and(|there| (verify == Some(true) && deliveries[*at].has_bytes()) || !is_sure(deliveries[*at], &there))
        };
        let check: Vec<usize> = (0..deliveries.len()).filter(|at| verify.is_some() && unsure(at)).collect();
        let chosen: Vec<&Delivery> = check.iter().map(|at| deliveries[*at]).collect();
        if !chosen.is_empty() && self.has("cksum") {
            self.ask("sums", &chosen);
            let right = self.right(&chosen)?;
            check.into_iter().zip(right).for_each(|(at, right)| same[at] = right);
        } else {
            // what cannot be shown to be the same is sent
            check.into_iter().for_each(|at| same[at] = false);
        }
        Ok(same)
    }

    /// Takes what an earlier push has left of these on the host.
    pub fn claim(&mut self, deliveries: &[&Delivery]) -> Result<(), Broken> {
        if deliveries.is_empty() || !self.has("cksum") {
            return Ok(());
        }
        let keys: Vec<String> = deliveries.iter().map(|delivery| key(delivery)).collect();
        self.say(&format!("claim {}", keys.join(" ")));
        let bytes = deliveries.iter().map(|delivery| delivery.bytes).sum();
        self.answer("claimed", patience(deliveries.len(), bytes)).map(drop)
    }

    /// Checksum and size of what is there of a file.
    pub fn partial(&self, delivery: &Delivery) -> Option<(u32, u64)> {
        self.partials.get(&key(delivery)).copied().filter(|(_, bytes)| *bytes <= delivery.bytes)
    }

    /// Sends a file that the host keeps and hands on to others, with what they have to know in front of it. Whether it arrived is seen
    /// by [`Site::claim`].
    pub fn hand(&mut self, header: Vec<u8>, source: std::fs::File, delivery: &Delivery) -> Result<(), Broken> {
        let bytes = header.len() as u64 + delivery.bytes;
        self.say(&format!("hand {} {}", bytes / BLOCK, bytes % BLOCK));
        self.running.send(header);
        self.running.send_file(source, 0, delivery.bytes);
        self.begin();
        while self.running.pending() > 0 {
            self.hear(Duration::from_millis(200), Duration::ZERO)?;
        }
        self.relayed.insert(delivery.id, delivery.bytes);
        // a fault of the source shows in the checksum
        self.running.source_fault();
        self.answer("got", patience(1, delivery.bytes)).map(drop)
    }

    /// Asks about files.
    pub fn ask(&mut self, what: &str, deliveries: &[&Delivery]) {
        let mut list = Vec::new();
        for delivery in deliveries {
            list.extend_from_slice(delivery.dst.as_os_str().as_bytes());
            list.push(0);
        }
        self.say(&format!("{what} {}", list.len()));
        self.running.send(list);
    }

    fn there(&mut self, deliveries: &[&Delivery]) -> Result<Vec<Option<There>>, Broken> {
        let answer = self.answer("look", patience(deliveries.len(), 0))?;
        there(&answer, deliveries)
    }

    fn right(&mut self, deliveries: &[&Delivery]) -> Result<Vec<bool>, Broken> {
        let bytes = deliveries.iter().map(|delivery| delivery.bytes).sum();
        let answer = self.answer("sums", patience(deliveries.len(), bytes))?;
        self.beating(|| right(&answer, deliveries))?
    }

    /// A line of plain words. Where the host had nothing to do, its silence begins now.
    pub fn say(&mut self, line: &str) {
        if self.running.pending() == 0 {
            self.begin();
        }
        self.running.send(format!("{line}\n"));
    }

    /// While there is nothing to do: the host is told that we are here.
    pub fn beat(&mut self) -> Result<(), Broken> {
        self.say("");
        self.hear(Duration::ZERO, IDLE)
    }

    /// Does what takes its time here, such as a checksum, while the host hears from us.
    pub fn beating<T: Send>(&mut self, work: impl FnOnce() -> T + Send) -> Result<T, Broken> {
        std::thread::scope(|scope| {
            let (done, result) = sync_channel(1);
            scope.spawn(move || done.send(work()));
            loop {
                match result.recv_timeout(BEAT) {
                    Ok(value) => return Ok(value),
                    Err(RecvTimeoutError::Timeout) => self.beat()?,
                    Err(RecvTimeoutError::Disconnected) => return Err(Broken::said("a thread ended")),
                }
            }
        })
    }

    /// What was wrong with a file that was sent.
    pub fn source_fault(&mut self) -> Option<String> {
        self.running.source_fault().map(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => "it became shorter while it was read".to_owned(),
            _ => error.to_string(),
        })
    }

    /// The streams of the connection.
    pub fn running(&mut self) -> &mut Running {
        &mut self.running
    }

    /// Ends it and waits until the host has cleaned up, but not for long.
    pub fn end(mut self) {
        self.running.close_stdin();
        let until = Instant::now() + Duration::from_secs(5);
        while Instant::now() < until {
            let heard = self.running.step(None, until.saturating_duration_since(Instant::now()));
            if heard.iter().any(|heard| !matches!(heard, Heard::Line(_))) {
                return;
            }
        }
    }

    /// Waits for the answer to what was asked last.
    pub fn answer(&mut self, word: &str, patience: Duration) -> Result<Vec<u8>, Broken> {
        loop {
            if let Some(answer) = self.answers.pop_front() {
                return match answer.word == word.as_bytes() {
                    true => Ok(answer.text),
                    false => Err(Broken::said(format!("it said {} and not {word}", String::from_utf8_lossy(&answer.word)))),
                };
            }
            self.hear(Duration::from_millis(200), patience)?;
        }
    }

    /// Sends and hears for a while. An error when nothing has moved for too long, which is longer by `patience` where the host has much
    /// to do.
    pub fn hear(&mut self, limit: Duration, patience: Duration) -> Result<(), Broken> {
        let heard = self.running.step(None, limit);
        let signal = self.stop.load(Ordering::Relaxed);
        if signal != 0 {
            return Err(Broken::said(format!("interrupted by SIG{}", common::signal::name(i32::try_from(signal).unwrap_or_default()))));
        }
        for heard in heard {
            match heard {
                Heard::Line(line) => self.line(&line),
                Heard::Lost(why) => return Err(Broken::lost(format!("connection lost: {why}"))),
                Heard::Ended(status) => {
                    let why = self.notes.last().cloned().unwrap_or_else(|| self.running.last_words());
                    return Err(Broken::said(if why.is_empty() { format!("its shell ended with status {status}") } else { why }));
                }
            }
        }
        let pending = self.running.pending();
        if pending != self.moved.0 || self.running.last_heard() > self.moved.1 {
            self.moved = (pending, Instant::now());
        } else if self.moved.1.elapsed() > SILENCE + patience {
            return Err(Broken::lost(format!("nothing went to it and nothing came from it for {} s", (SILENCE + patience).as_secs())));
        }
        Ok(())
    }

    /// A question was asked just now, so its silence begins now.
    pub fn begin(&mut self) {
        self.moved.1 = Instant::now();
    }

    fn line(&mut self, line: &[u8]) {
        let at = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
        let (word, rest) = (&line[..at], line.get(at + 1..).unwrap_or_default());
        let text = || String::from_utf8_lossy(rest).into_owned();
        match word {
            b"has" => self.tools.push(text()),
            b"free" => self.free_bytes = text().trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024),
            b"empty" => self.empty = true,
            b"note" => self.notes.push(text()),
            b"failed" => {
                if let Some((id, why)) = text().split_once(' ') {
                    self.failed.entry(id.parse().unwrap_or(u32::MAX)).or_insert_with(|| why.to_owned());
                }
            }
            b"partial" => {
                let text = text();
                let words: Vec<&str> = text.split(' ').collect();
                if let [key, sum, bytes] = words[..]
                    && let (Ok(sum), Ok(bytes)) = (sum.parse(), bytes.parse())
                {
                    self.partials.insert(key.to_owned(), (sum, bytes));
                }
            }
            _ => self.answers.push_back(Answer { word: word.to_vec(), text: rest.to_vec(), heard: Instant::now() }),
        }
    }
}

/// What `look` was answered.
pub fn there(answer: &[u8], deliveries: &[&Delivery]) -> Result<Vec<Option<There>>, Broken> {
    Ok(parse_look(&decode(answer)?, deliveries.iter().map(|delivery| delivery.dst.as_path())))
}

/// Whether the checksums are those of the files here.
pub fn right(answer: &[u8], deliveries: &[&Delivery]) -> Result<Vec<bool>, Broken> {
    let there = parse_sums(&decode(answer)?, deliveries.iter().map(|delivery| delivery.dst.as_path()));
    let same = |(delivery, there): (&&Delivery, Option<u32>)| !delivery.has_bytes() || (there.is_some() && there == sum(&delivery.source));
    Ok(deliveries.iter().zip(there).map(same).collect())
}

fn decode(answer: &[u8]) -> Result<Vec<u8>, Broken> {
    BASE64.decode(answer).map_err(|error| Broken::said(format!("its answer is no base64: {error}")))
}

/// The checksum of a source, if it can be read.
fn sum(source: &Source) -> Option<u32> {
    let summed = match source {
        Source::Content(text) => cksum::of(text.as_bytes()),
        Source::File(path) => cksum::of(std::fs::File::open(path).ok()?),
        Source::Folder | Source::There => return None,
    };
    summed.ok().map(|(sum, _)| sum)
}
