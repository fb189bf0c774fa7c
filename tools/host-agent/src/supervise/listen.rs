//! Checks whether a server listens: a socket of the job's own process must, not just any on that
//! port.

use super::members;
use crate::procfs;

/// Whether the process or one of its descendants listens on a port.
pub fn listens(pid: i32, port: u16) -> bool {
    let sockets = procfs::listening_sockets();
    let wanted: Vec<u64> = sockets
        .into_iter()
        .filter(|(_, other)| *other == port)
        .map(|(inode, _)| inode)
        .collect();
    let holds_one = |pid: i32| {
        procfs::socket_inodes(pid)
            .iter()
            .any(|inode| wanted.contains(inode))
    };
    !wanted.is_empty() && members::family(pid).into_iter().any(holds_one)
}
