//! The files that hosts pass on, shared by all connections of one push in this process: the tool
//! begins a file; the tool or another host sends its content, and a thread hands on what has
//! arrived.
//!
//! Another host is not trusted: it can only append to the one file that it was chosen for, and the
//! tool has the file renamed only if the checksum of everything written is right.

use super::push_folder::PushFolder;
use agent::output::EventOutput;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use tls::{Identity, PublicKey};
use transfer::content::{self, FileSum};
use transfer::partial::Partial;
use wire::files::{Block, FileEvent, FileFault, Open, Sum, Upstream};

/// How often to report how much has arrived.
const REPORT_INTERVAL: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// The tool: by its login, or with its key.
    Tool,
    /// Another host of the push, by its key.
    Host(PublicKey),
}

/// The files that arrive over all connections of this process.
pub struct IncomingFiles {
    /// By it, the tool and other hosts know this host.
    pub identity: Identity,
    /// The login's conversation has opened it and removes it.
    pub push_folder: OnceLock<Weak<PushFolder>>,
    by_partial_key: Mutex<BTreeMap<String, Weak<IncomingFile>>>,
}

impl IncomingFiles {
    pub fn new() -> io::Result<IncomingFiles> {
        Ok(IncomingFiles {
            identity: Identity::new()?,
            push_folder: OnceLock::new(),
            by_partial_key: Mutex::default(),
        })
    }

    pub fn add(&self, file: &Arc<IncomingFile>) {
        let key = file.request.partial_key.clone();
        self.by_partial_key.lock().insert(key, Arc::downgrade(file));
    }

    /// `None` unless this host was chosen to send the file.
    pub fn find(&self, key: &str, host: PublicKey) -> Option<Arc<IncomingFile>> {
        let file = self.by_partial_key.lock().get(key)?.upgrade()?;
        (file.request.chained == Some(Upstream::Host(host))).then_some(file)
    }
}

pub struct IncomingFile {
    pub request: Open,
    pub partial: Arc<Partial>,
    /// The output of the conversation that has begun it.
    pub events: Arc<EventOutput>,
    state: Mutex<State>,
    /// Notified when something has arrived, or nothing more will.
    changed: Condvar,
}

struct State {
    sum: FileSum,
    is_packed: bool,
    is_over: bool,
    /// The file is only handed on if it is wanted.
    is_wanted: bool,
    reported: Instant,
    /// The connection to the host to which the file is handed on.
    forward: Option<TcpStream>,
}

pub enum Available {
    Until {
        /// An offset in the file.
        end: u64,
        /// Whether it is worth compressing.
        packed: bool,
    },
    /// Nothing new for a while.
    Nothing,
    /// Nothing more will arrive, or the file is no longer wanted.
    Over,
}

impl IncomingFile {
    pub fn new(request: Open, partial: Arc<Partial>, events: Arc<EventOutput>) -> IncomingFile {
        IncomingFile {
            request,
            partial,
            events,
            state: Mutex::new(State {
                sum: FileSum::default(),
                is_packed: false,
                is_over: false,
                is_wanted: true,
                reported: Instant::now(),
                forward: None,
            }),
            changed: Condvar::new(),
        }
    }

    /// Blocks must arrive in order.
    pub fn block(&self, block: &Block, body: Vec<u8>) -> Result<(), FileFault> {
        let (offset, length) = (block.offset, u64::from(block.content.length));
        let content = content::unpack(&block.content, body)?;
        // locked, so that nothing else is written between a block and its sum
        let mut state = self.state.lock();
        if state.is_over || length == 0 {
            return Err(FileFault::OutOfOrder);
        }
        self.partial.put(offset, length, content.as_deref())?;
        state.sum.add(length, content.as_deref());
        state.is_packed = block.content.packed;
        let bytes = offset + length;
        let is_due = state.reported.elapsed() >= REPORT_INTERVAL;
        if is_due || bytes == self.request.file.bytes {
            state.reported = Instant::now();
            let id = self.request.file.id;
            self.events.send(FileEvent::Arrived { id, bytes });
        }
        self.changed.notify_all();
        Ok(())
    }

    /// Checks that the bytes that have arrived have this checksum.
    pub fn check(&self, sum: Sum) -> Result<(), FileFault> {
        if self.state.lock().sum.sum() == sum {
            Ok(())
        } else {
            Err(FileFault::OtherSum)
        }
    }

    /// Waits for bytes beyond an offset, to hand them on.
    pub fn wait_beyond(&self, offset: u64, patience: Duration) -> Available {
        let until = Instant::now() + patience;
        let mut state = self.state.lock();
        loop {
            let end = self.partial.parts().first();
            if state.is_wanted && end > offset {
                let packed = state.is_packed;
                return Available::Until { end, packed };
            }
            if state.is_over {
                return Available::Over;
            }
            if self.changed.wait_until(&mut state, until).timed_out() {
                return Available::Nothing;
            }
        }
    }

    /// The connection ends when the file is no longer wanted.
    pub fn connect_forward(&self, stream: TcpStream) {
        let mut state = self.state.lock();
        if state.is_wanted {
            state.forward = Some(stream);
        }
    }

    /// Reports that the next host gets no more of the file, unless the tool has abandoned it.
    pub fn not_handed_on(&self, problem: String) {
        // locked, so that the tool gets no such event once it has abandoned the file
        let state = self.state.lock();
        if state.is_wanted {
            let id = self.request.file.id;
            self.events.send(FileEvent::NotHandedOn { id, problem });
        }
    }

    pub fn is_over(&self) -> bool {
        self.state.lock().is_over
    }

    /// Nothing more will arrive. What has arrived is still handed on if the file is wanted.
    pub fn end(&self, is_wanted: bool) {
        let mut state = self.state.lock();
        (state.is_over, state.is_wanted) = (true, is_wanted);
        let forward = state.forward.take_if(|_| !is_wanted);
        drop(state);
        if let Some(stream) = forward {
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use transfer::GRAIN;
    use transfer::folder::Folder;
    use transfer::partial::PartialNames;
    use transfer::parts::Parts;
    use wire::files::FileAttributes;

    const SIZE: u64 = 4 * GRAIN;

    /// A file of four grains that a host hands on, in a directory of its own.
    fn incoming(name: &str, upstream: Upstream) -> IncomingFile {
        let name = format!("dgl-tools-incoming-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        let names = PartialNames::new(Folder::open(&folder).unwrap(), "part");
        let partial = Partial::begin(names, SIZE, Parts::default(), None, &|_| true).unwrap();
        std::fs::remove_dir_all(folder).unwrap();
        let request = Open {
            file: FileAttributes {
                id: 1,
                dst: "/w/a".into(),
                bytes: SIZE,
                mode: 0o644,
                mtime: None,
            },
            partial_key: "key".to_owned(),
            keep: Vec::new(),
            keep_sum: None,
            chained: Some(upstream),
        };
        let events = Arc::<EventOutput>::default();
        IncomingFile::new(request, Arc::new(partial), events)
    }

    /// Grains of this byte, zeros being announced.
    fn grains(first: u64, count: u64, byte: u8) -> (Block, Vec<u8>) {
        let body = match byte {
            0 => Vec::new(),
            _ => vec![byte; usize::try_from(count * GRAIN).unwrap()],
        };
        let content = match byte {
            0 => content::zeros(count * GRAIN),
            _ => content::plain(&body),
        };
        let offset = first * GRAIN;
        (
            Block {
                id: 1,
                offset,
                content,
            },
            body,
        )
    }

    #[test]
    fn only_what_the_tool_has_read_is_right() {
        // what has come after a grain of sevens, what the tool has read, and whether both are equal
        let table: [(&[(u64, u64, u8)], &[u8], bool); 7] = [
            (&[(1, 1, 8)], &[7, 8], true),
            (&[(1, 1, 9)], &[7, 8], false),
            (&[(1, 1, 8)], &[8, 7], false),
            (&[(1, 1, 8)], &[7], false),
            (&[(1, 1, 0)], &[7, 8], false),
            (&[(1, 3, 0)], &[7, 0, 0, 0], true),
            // in blocks of any size
            (&[(1, 2, 8), (3, 1, 8)], &[7, 8, 8, 8], true),
        ];
        for (blocks, read, is_right) in table {
            let file = incoming("sum", Upstream::Tool);
            for (first, count, byte) in [&[(0, 1, 7)], blocks].concat() {
                let (block, body) = grains(first, count, byte);
                file.block(&block, body).unwrap();
            }
            let content = |byte: &u8| vec![*byte; usize::try_from(GRAIN).unwrap()];
            let read: Vec<u8> = read.iter().flat_map(content).collect();
            let checked = file.check(content::sum(&read));
            assert_eq!(checked.is_ok(), is_right, "{blocks:?}");
        }
    }

    #[test]
    fn another_host_can_only_append_while_the_file_comes() {
        let file = incoming("append", Upstream::Tool);
        let write = |(block, body): (Block, Vec<u8>)| file.block(&block, body);
        let refused = Err(FileFault::OutOfOrder);
        assert_eq!(write(grains(1, 1, 7)), refused, "behind the end");
        assert_eq!(write(grains(0, 2, 7)), Ok(()));
        assert_eq!(write(grains(0, 2, 8)), refused, "over what is there");
        assert_eq!(
            write(grains(2, 0, 0)),
            refused,
            "nothing, any number of times"
        );
        assert_eq!(
            write(grains(2, 3, 8)),
            refused,
            "beyond the size of the file"
        );
        file.end(true);
        assert_eq!(write(grains(2, 1, 8)), refused, "after its end");
    }

    #[test]
    fn a_file_comes_from_the_host_that_the_tool_has_named() {
        let files = IncomingFiles::new().unwrap();
        let [named, other] = [(), ()].map(|()| Identity::new().unwrap().public_key());
        for (upstream, expected) in [
            (Upstream::Host(named), [true, false]),
            (Upstream::Tool, [false, false]),
        ] {
            let file = Arc::new(incoming("named", upstream.clone()));
            files.add(&file);
            let found = [named, other].map(|host| files.find("key", host).is_some());
            assert_eq!(found, expected, "{upstream:?}");
            assert!(files.find("other", named).is_none());
        }
    }

    #[test]
    fn what_has_come_is_handed_on() {
        let file = incoming("available", Upstream::Tool);
        let write = |(block, body): (Block, Vec<u8>)| file.block(&block, body).unwrap();
        let end = |offset| match file.wait_beyond(offset, Duration::ZERO) {
            Available::Until { end, .. } => Some(end),
            Available::Nothing | Available::Over => None,
        };
        write(grains(0, 1, 7));
        assert_eq!(end(0), Some(GRAIN));
        assert_eq!(end(GRAIN), None);
        write(grains(1, 2, 0));
        assert_eq!(end(GRAIN), Some(3 * GRAIN));
        file.end(true);
        assert_eq!(end(GRAIN), Some(3 * GRAIN));
        file.end(false);
        assert_eq!(end(GRAIN), None);
    }
}
