//! Where a simulator steps in: before the system calls that read or change files and directories.
//! It decides there which process runs next, and whether the call fails. Programs are built without
//! the feature `simulated`, and call nothing.

use nix::unistd::close;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Read,
    /// Needs room: a new name, a new directory, or content.
    Write,
    /// Also of an open file: its mode, its time, its length.
    Change,
    Lock,
    /// Reports what could not be stored.
    Close,
    /// Flushes the file or directory with this inode to the disk.
    Sync(u64),
}

/// Has a network file system write back the content and report errors, such as a full quota, which
/// it may do only when a descriptor is closed (close(2), "Dealing with error returns"; nfs(5),
/// "Close-to-open cache consistency"). Local file systems do nothing. A client of NFS 4 with a
/// write delegation may report such errors only to fsync.
pub(crate) fn flush(file: &File) -> io::Result<()> {
    before(Call::Close)?;
    Ok(close(file.try_clone()?)?)
}

/// Calls fsync(2).
pub(crate) fn sync(file: &File) -> io::Result<()> {
    before(Call::Sync(file.metadata()?.ino()))?;
    file.sync_all()
}

#[cfg(not(feature = "simulated"))]
#[expect(clippy::unnecessary_wraps, reason = "with the feature, it fails")]
#[expect(clippy::inline_always, reason = "it is nothing")]
#[inline(always)]
pub(crate) fn before(_: Call) -> io::Result<()> {
    Ok(())
}

#[cfg(feature = "simulated")]
pub(crate) use hook::before;

#[cfg(feature = "simulated")]
pub use hook::{Simulator, install};

#[cfg(feature = "simulated")]
mod hook {
    use super::{Call, io};
    use std::cell::RefCell;
    use std::rc::Rc;

    pub type Simulator = Rc<dyn Fn(Call) -> io::Result<()>>;

    thread_local! {
        static SIMULATOR: RefCell<Option<Simulator>> = const { RefCell::new(None) };
    }

    /// For this thread; returns the one before it.
    pub fn install(simulator: Option<Simulator>) -> Option<Simulator> {
        SIMULATOR.replace(simulator)
    }

    pub(crate) fn before(call: Call) -> io::Result<()> {
        let simulator = SIMULATOR.with_borrow(Clone::clone);
        simulator.map_or(Ok(()), |simulator| simulator(call))
    }
}
