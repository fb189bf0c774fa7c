//! Shared memory that jobs leave in /dev/shm. DGL does not always unlink its files at its end, and
//! a killed process never does.
//!
//! A file is only removed if it is directly in /dev/shm, is a regular file of this user, and is the
//! file that was mapped or listed (by device and inode, not by name). And only if /proc shows all
//! processes that could map it: containers may share /dev/shm, but not see each other's processes.

use crate::procfs::{self, Mapping};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use transfer::folder;
use wire::Text;

const FOLDER: &str = "/dev/shm/";

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ShmFile {
    pub name: Text,
    /// A private /dev/shm has files of the same names on another device.
    pub device: (u32, u32),
    pub inode: u64,
}

/// A file of DGL, whoever owns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DglFile {
    pub file: ShmFile,
    pub uid: u32,
    pub bytes: u64,
    /// A visible process that maps it, if there is one.
    pub mapped_by: Option<i32>,
}

pub fn mapped_shm(pids: impl IntoIterator<Item = i32>) -> BTreeSet<ShmFile> {
    pids.into_iter()
        .flat_map(|pid| procfs::mappings(pid, FOLDER))
        .filter_map(shm_file)
        .collect()
}

/// `None` for a file in a directory below /dev/shm, which may be another user's.
fn shm_file(mapped: Mapping) -> Option<ShmFile> {
    let name = mapped.path.strip_prefix(FOLDER).ok()?;
    // `..` has no file name
    let is_direct = name.file_name() == Some(name.as_os_str());
    is_direct.then(|| ShmFile {
        name: name.into(),
        device: mapped.device,
        inode: mapped.inode,
    })
}

/// Removes only files of this user that are no longer mapped; returns how many.
pub fn remove_unmapped(files: &BTreeSet<ShmFile>) -> u32 {
    let Some(folder) = (!files.is_empty()).then(ShmFolder::open).flatten() else {
        return 0;
    };
    let existing: Vec<&ShmFile> = files.iter().filter(|file| folder.holds(file)).collect();
    if existing.is_empty() {
        return 0;
    }
    let mapped = folder.mapped_by_anyone();
    let unused = existing
        .into_iter()
        .filter(|file| !mapped.contains_key(&folder.key(file.device, file.inode)));
    // checked again, because the name may belong to another file by now
    let removed = unused.filter(|file| folder.holds(file) && folder.remove(file));
    u32::try_from(removed.count()).unwrap_or(u32::MAX)
}

pub fn any_exists(files: &BTreeSet<ShmFile>) -> bool {
    let holds = |folder: ShmFolder| files.iter().any(|file| folder.holds(file));
    !files.is_empty() && ShmFolder::open().is_some_and(holds)
}

/// Whether a file that no visible process maps is unused.
pub fn shows_its_users() -> bool {
    ShmFolder::open().is_none_or(|folder| folder.shows_its_users())
}

pub fn dgl_files() -> Vec<DglFile> {
    let Some(folder) = ShmFolder::open() else {
        return Vec::new();
    };
    let names = folder.folder.names().unwrap_or_default();
    let names = names.into_iter().collect();
    let of_dgl = names_of_dgl(&names);
    if of_dgl.is_empty() {
        return Vec::new();
    }
    let mapped = folder.mapped_by_anyone();
    let inspect = |name: OsString| {
        let stat = folder.stat(&name).filter(Metadata::is_file)?;
        let file = ShmFile {
            name: name.into(),
            device: device_of(&stat),
            inode: stat.ino(),
        };
        let mapped_by = mapped.get(&folder.key(file.device, file.inode)).copied();
        Some(DglFile {
            file,
            uid: stat.uid(),
            bytes: stat.len(),
            mapped_by,
        })
    };
    of_dgl.into_iter().filter_map(inspect).collect()
}

pub fn stale_files() -> BTreeSet<ShmFile> {
    let me = nix::unistd::geteuid().as_raw();
    dgl_files()
        .into_iter()
        .filter(|file| file.uid == me && file.mapped_by.is_none())
        .map(|file| file.file)
        .collect()
}

/// Identifies a mapped file: its device and inode.
type MappedFile = (Option<(u32, u32)>, u64);

/// Kept open so that each step uses the same directory.
struct ShmFolder {
    folder: folder::Folder,
    /// Whether it is a mount point, as usual. Otherwise it may be on an overlay, whose files have
    /// different devices in /proc/PID/maps and in stat(2); then only inode and name count.
    is_mount: bool,
}

impl ShmFolder {
    fn open() -> Option<ShmFolder> {
        let folder = folder::Folder::open(Path::new(FOLDER)).ok()?;
        let device = |name: &str| folder.stat(name).map(|stat| stat.dev());
        let is_mount =
            matches!((device("."), device("..")), (Ok(inner), Ok(parent)) if inner != parent);
        Some(ShmFolder { folder, is_mount })
    }

    fn key(&self, device: (u32, u32), inode: u64) -> MappedFile {
        (self.is_mount.then_some(device), inode)
    }

    fn stat(&self, name: &OsStr) -> Option<Metadata> {
        self.folder.stat(name).ok()
    }

    /// Whether the name still refers to that file, a regular one of this user.
    fn holds(&self, file: &ShmFile) -> bool {
        self.stat(&file.name.0).is_some_and(|stat| {
            stat.is_file()
                && stat.uid() == nix::unistd::geteuid().as_raw()
                && stat.ino() == file.inode
                && (!self.is_mount || device_of(&stat) == file.device)
        })
    }

    /// Whether /proc shows all processes that could use it. A container may share the machine's:
    /// then it has no IPC namespace, or no mount, to itself.
    fn shows_its_users(&self) -> bool {
        procfs::shows_all_processes() || self.is_mount && !procfs::shares_ipc_of_machine()
    }

    /// The files that visible processes map, and a process for each.
    fn mapped_by_anyone(&self) -> BTreeMap<MappedFile, i32> {
        let of_process = |pid| {
            let files = procfs::mappings(pid, FOLDER).into_iter();
            files.map(move |file| (self.key(file.device, file.inode), pid))
        };
        procfs::pids().into_iter().flat_map(of_process).collect()
    }

    fn remove(&self, file: &ShmFile) -> bool {
        self.folder.remove(&file.name.0).is_ok()
    }
}

fn device_of(stat: &Metadata) -> (u32, u32) {
    let number = |part: u64| u32::try_from(part).unwrap_or(u32::MAX);
    (
        number(nix::sys::stat::major(stat.dev())),
        number(nix::sys::stat::minor(stat.dev())),
    )
}

/// Suffixes of names that only files of DGL's graphs have.
const GRAPH_FILES: [&str; 8] = [
    "_node_meta",
    "_node_node_map",
    "_edge_edge_map",
    "_node_inner_node",
    "_edge_inner_edge",
    "_node__ID",
    "_edge__ID",
    "_edge__TYPE",
];

/// By the conventions of DGL 0.5 to 2.4. A feature's name ends in `-kvdata-`. A graph G has G
/// itself, GG_0_csc_indptr and the like, G_node_*, G_edge_* and dgl.graphbolt.G_*.lock; G is
/// recognized by a few of these names that no other program uses.
fn names_of_dgl(names: &BTreeSet<OsString>) -> BTreeSet<OsString> {
    let text = |name: &OsString| name.to_string_lossy().into_owned();
    let graphs: BTreeSet<String> = names
        .iter()
        .filter_map(|name| graph_of(&text(name)).map(str::to_owned))
        .collect();
    let is_dgl = |name: &str| {
        let is_lock = name.starts_with("dgl.graphbolt.") && name.ends_with(".lock");
        name.ends_with("-kvdata-") || is_lock || graphs.iter().any(|graph| is_of_graph(name, graph))
    };
    names
        .iter()
        .filter(|name| is_dgl(&text(name)))
        .cloned()
        .collect()
}

fn graph_of(name: &str) -> Option<&str> {
    GRAPH_FILES
        .iter()
        .find_map(|ending| name.strip_suffix(ending))
        .filter(|graph| !graph.is_empty())
}

fn is_of_graph(name: &str, graph: &str) -> bool {
    let Some(rest) = name.strip_prefix(graph) else {
        return false;
    };
    let is_matrix = |rest: &str| {
        let numbered = rest
            .strip_prefix('_')
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        numbered
            && ["_coo_", "_csr_", "_csc_", "_cor_", "_coc_", "_cso_"]
                .iter()
                .any(|kind| rest.contains(kind))
    };
    let doubled = rest.strip_prefix(graph).is_some_and(is_matrix);
    rest.is_empty()
        || rest.starts_with("_node_")
        || rest.starts_with("_edge_")
        || is_matrix(rest)
        || doubled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_dgls() {
        let names = [
            "psm_mine",
            "x_node_count",
            "edge~a:b:c~w-kvdata-",
            "g",
            "g_node_meta",
            "g_edge__ID",
            "g_node_more",
            "gg_0_csc_indptr",
            "g_1_coo_row",
            "gg_x_csc_indptr",
            "ggg_0_csc_indptr",
            "g2",
            "h",
            "hh_0_csc_data",
            "dgl.graphbolt.h_data.lock",
            "dgl.graphbolt.h_data",
            "_node_meta",
        ];
        let names: BTreeSet<OsString> = names.into_iter().map(OsString::from).collect();
        let expected = [
            "dgl.graphbolt.h_data.lock",
            "edge~a:b:c~w-kvdata-",
            "g",
            "g_1_coo_row",
            "g_edge__ID",
            "g_node_meta",
            "g_node_more",
            "gg_0_csc_indptr",
        ];
        assert!(
            names_of_dgl(&names)
                .iter()
                .eq(&expected.map(OsString::from)),
            "{:?}",
            names_of_dgl(&names)
        );
    }

    #[test]
    fn only_what_lies_in_dev_shm_itself() {
        let table = [
            ("/dev/shm/a b", Some("a b")),
            ("/dev/shm/d/a", None),
            ("/dev/shm/", None),
            ("/dev/shm/..", None),
        ];
        for (path, name) in table {
            let file = shm_file(Mapping {
                range: 0..1,
                offset: 0,
                is_code: false,
                device: (0, 1),
                inode: 7,
                path: path.into(),
                is_deleted: false,
            });
            assert_eq!(
                file.map(|file| file.name.0),
                name.map(OsString::from),
                "{path}"
            );
        }
    }
}
