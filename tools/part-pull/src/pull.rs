//! Fetches the files of a host: its agent sends, this machine receives. Each file is renamed as
//! soon as it is complete, so that finished files stay when the host is lost.

use crate::act::PullReporter;
use crate::local::{Expected, Local, PullDestination};
use crate::plan::PulledFile;
use remote::Body;
use remote::HostFault;
use remote::host_link::HostLink;
use std::collections::VecDeque;
use transfer::receiver::Receiver;
use transfer::{LARGE, SMALL, sums};
use wire::files::{
    FILES_AT_ONCE, FileEvent, FileFault, FileRequest, FileStep, FileToSend, FilesToSend,
};

/// Files to ask for before the first one has arrived, so that the link need not wait. Small files
/// count together.
const AHEAD: usize = 8;

const UNREADABLE: &str = "the host could not read all of it";

/// The bytes received, or why it failed.
pub type Received = Result<u64, PullFault>;

#[derive(Clone)]
pub enum PullFault {
    /// Of this machine.
    Here(String),
    /// Of the host, or of the connection to it.
    There(String),
}

impl PullFault {
    pub fn why(&self) -> &str {
        match self {
            PullFault::Here(why) | PullFault::There(why) => why,
        }
    }
}

/// The fault of a file that this machine writes.
fn here(fault: &FileFault) -> PullFault {
    match fault {
        FileFault::System(_)
        | FileFault::LeadsOut(_)
        | FileFault::LinkOfOther(_)
        | FileFault::UnknownLink(_)
        | FileFault::RenamedLink(_) => PullFault::Here(fault.here()),
        // what arrived is wrong, or another attempt is right
        _ => PullFault::There(fault.here()),
    }
}

/// Reports the result of each file.
pub fn pull(
    link: &mut HostLink,
    local: &Local,
    files: &[&PulledFile],
    results: &PullReporter<'_>,
) -> Result<(), HostFault> {
    let mut tree = match local.make() {
        Ok(tree) => tree,
        Err(fault) => {
            for file in files {
                results.done(file, Err(here(&fault)));
            }
            return Ok(());
        }
    };
    let (folders, files): (Vec<&PulledFile>, Vec<&PulledFile>) =
        files.iter().partition(|file| file.there.is_folder());
    for folder in folders {
        let made = tree.make(&folder.dst).map(|_| 0);
        results.done(folder, made.map_err(|fault| here(&fault)));
        tree.forget();
    }
    let mut pull = Pull {
        link,
        receiver: Receiver::new(tree, PullDestination::default()),
        results,
        grown: Vec::new(),
    };
    let (small, large): (Vec<&PulledFile>, Vec<&PulledFile>) = files
        .into_iter()
        .partition(|file| file.there.bytes <= SMALL);
    let small = small.chunks(FILES_AT_ONCE).map(<[_]>::to_vec);
    let mut waiting: VecDeque<_> = small.chain(large.iter().map(|file| vec![*file])).collect();
    loop {
        while waiting.front().is_some_and(|files| pull.has_room(files))
            && let Some(files) = waiting.pop_front()
        {
            pull.request(&files, local)?;
        }
        if pull.expected() == 0 {
            results.grown(&pull.grown);
            return Ok(());
        }
        match pull.link.next_event()? {
            (FileEvent::Step(step), body) => pull.step(step, body)?,
            (other, _) => return Err(HostFault::unexpected(&other)),
        }
    }
}

struct Pull<'p, 'a> {
    link: &'p mut HostLink,
    receiver: Receiver<PullDestination<'a>>,
    results: &'p PullReporter<'p>,
    /// Files that grew while they were copied.
    grown: Vec<&'a PulledFile>,
}

impl<'a> Pull<'_, 'a> {
    /// Requested files that have not ended.
    fn expected(&self) -> usize {
        self.receiver.destination.expected.len()
    }

    /// Whether the host may be asked for these files now.
    fn has_room(&self, files: &[&PulledFile]) -> bool {
        let expected = self.expected();
        match files[0].there.bytes {
            0..=SMALL => expected < AHEAD * FILES_AT_ONCE,
            // nothing else may arrive while its parts are summed up
            LARGE.. => expected == 0,
            _ => expected < AHEAD,
        }
    }

    /// Asks for small files together, or for what is missing of a larger one.
    fn request(&mut self, files: &[&'a PulledFile], local: &Local) -> Result<(), HostFault> {
        let wanted = files.iter().map(|file| FileToSend {
            id: file.id,
            path: file.src.as_path().into(),
            meta: file.there,
        });
        let mut wanted = FilesToSend {
            files: wanted.collect(),
            kept: Vec::new(),
        };
        let mut body = Vec::new();
        let mut kept = match files[0].there.bytes {
            LARGE.. => local.kept(files[0]),
            _ => None,
        };
        if let Some(known) = &kept {
            let bytes = files[0].there.bytes;
            let sum = |stop: &_| sums::of(&sums::until(stop), &known.file, &known.parts, bytes);
            match self.link.keep_alive_during(sum)? {
                Ok(sums) => {
                    wanted.kept = known.parts.list().to_vec();
                    body = sums.iter().flat_map(|sum| sum.0).collect();
                }
                Err(_) => kept = None,
            }
        }
        for file in files {
            let expected = Expected::new(file, kept.take());
            self.receiver.destination.expected.insert(file.id, expected);
        }
        let request = FileRequest::Send(wanted);
        self.link.send_with(request, Body::Bytes(body));
        Ok(())
    }

    fn step(&mut self, step: FileStep, body: Vec<u8>) -> Result<(), HostFault> {
        let (ids, ends) = match &step {
            FileStep::Batch(batch) => (batch.files.iter().map(|file| file.id).collect(), true),
            FileStep::Open(open) => (vec![open.file.id], false),
            FileStep::Write(block) => (vec![block.id], false),
            FileStep::Commit { id, .. } | FileStep::Abandon { id, .. } => (vec![*id], true),
        };
        let expected = &self.receiver.destination.expected;
        if !ids.iter().all(|id| expected.contains_key(id)) {
            return Err(HostFault::protocol("a file that was not requested"));
        }
        if let FileStep::Write(block) = &step {
            self.results.moved(block.content.length.into());
        }
        let has_more = match &step {
            FileStep::Write(block) if block.content.sum.is_some() => {
                self.has_more_content(block.id, block.content.length.into())
            }
            _ => false,
        };
        let opens = matches!(step, FileStep::Open(_));
        let has_grown = matches!(step, FileStep::Commit { sum: Some(_), .. });
        let is_theirs = matches!(step, FileStep::Abandon { .. });
        let results = if has_more {
            self.receiver.close(ids[0], false);
            vec![(ids[0], Err(FileFault::Changed))]
        } else if has_grown {
            // the receiver reads the whole file
            let receiver = &mut self.receiver;
            self.link.keep_alive_during(|_| receiver.step(step, body))?
        } else {
            self.receiver.step(step, body)
        };
        for (id, result) in results {
            let expected = self.receiver.destination.expected.get(&id);
            let grown = expected.filter(|_| has_grown && result.is_ok());
            self.grown.extend(grown.map(|expected| expected.file));
            self.done(id, result, is_theirs);
            if !ends {
                // it need not send the rest
                let (keep, fault) = (false, None);
                let abandon = FileStep::Abandon { id, keep, fault };
                self.link.send(FileRequest::Step(abandon));
            }
        }
        if opens {
            let kept = self.receiver.destination.expected.get(&ids[0]);
            self.results
                .moved(kept.map_or(0, |expected| expected.kept_bytes));
        }
        if ends {
            for id in ids {
                self.done(id, Err(FileFault::NotWhole), is_theirs);
                self.receiver.destination.expected.remove(&id);
            }
        }
        Ok(())
    }

    /// Counts content that has arrived; returns whether the room for it was not counted before.
    fn has_more_content(&mut self, id: u32, bytes: u64) -> bool {
        let Some(expected) = self.receiver.destination.expected.get_mut(&id) else {
            return false;
        };
        let left = expected.content_left.checked_sub(bytes);
        expected.content_left = left.unwrap_or_default();
        left.is_none()
    }

    /// Reports the result of a file, unless it has one.
    fn done(&mut self, id: u32, result: Result<(), FileFault>, is_theirs: bool) {
        let Some(expected) = self.receiver.destination.expected.get_mut(&id) else {
            return;
        };
        if std::mem::replace(&mut expected.has_result, true) {
            return;
        }
        let (file, bytes) = (expected.file, expected.file.there.bytes);
        if bytes <= SMALL {
            self.results.moved(bytes);
        }
        let received = bytes - expected.kept_bytes;
        let result = result.map(|()| received).map_err(|fault| match fault {
            FileFault::Changed => PullFault::There(fault.to_string()),
            fault if is_theirs => PullFault::There(format!("{UNREADABLE}: {fault}")),
            fault => here(&fault),
        });
        self.results.done(file, result);
    }
}
