//! Lists the wanted files of a host.

use crate::plan::SelectedFiles;
use remote::HostFault;
use remote::host_link::HostLink;
use std::collections::BTreeSet;
use std::path::PathBuf;
use wire::files::{FileEvent, FileFault, FileRequest, FoundFile, Meta, Unreadable};

/// Files of a host that are listed at most, wanted or not; more are a mistake in the pattern, or of
/// the host.
const MOST_FILES: usize = 2_000_000;
/// The longest path of Linux (PATH_MAX).
const MAX_PATH: usize = 4096;
/// Memory in bytes that the wanted files of a host may take while they are listed: some 300,000
/// files. Two more copies of each path are made later.
const MOST_LISTED: usize = 64 << 20;
/// What a listed file takes beside its path, in bytes.
const BESIDE_PATH: usize = 128;

const HIDDEN: &str = "the existing file cannot be read";
const LEADS_OUT: &str = "this symbolic link leads out of the workspace";

/// With its attributes, or why the host cannot read them.
pub type Listed = (PathBuf, Result<Meta, String>);

#[derive(Default)]
pub struct HostListing {
    /// Wanted files and empty directories, and unreadable paths that may contain some.
    pub chosen: Vec<Listed>,
    /// Patterns that match something, or may match something unreadable.
    pub matched: BTreeSet<usize>,
    /// Special files and broken links that match.
    pub left_out: usize,
    /// The first of them, and what it is.
    pub first_left_out: Option<(PathBuf, FileFault)>,
    /// Memory that `chosen` takes.
    bytes: usize,
}

/// Directories below the roots that have a file with the name `mark` are left out.
pub fn list(
    link: &mut HostLink,
    wanted: &SelectedFiles,
    mark: Option<&str>,
) -> Result<HostListing, HostFault> {
    link.send(FileRequest::Find {
        roots: wanted
            .roots
            .iter()
            .map(|root| root.as_str().into())
            .collect(),
        enter: wanted.enter.clone(),
        mark: mark.map(str::to_owned),
    });
    let (mut listing, mut listed) = (HostListing::default(), 0);
    loop {
        let (entries, unreadable, last) = match link.next_event()?.0 {
            FileEvent::Found {
                entries,
                unreadable,
                last,
            } => (entries, unreadable, last),
            other => return Err(HostFault::unexpected(&other)),
        };
        let count = entries.len() + unreadable.len();
        if count == 0 && !last {
            return Err(HostFault::protocol("a part of a list without files"));
        }
        listed += count;
        for FoundFile { path, meta } in entries {
            if meta.is_file() || meta.is_folder() {
                let path = PathBuf::from(path.0);
                let patterns = wanted.matching(&path);
                listing.add(path, Ok(meta), patterns)?;
            }
        }
        for hidden in unreadable {
            listing.add_unreadable(hidden, wanted)?;
        }
        if listed > MOST_FILES || listing.bytes > MOST_LISTED {
            return Err(HostFault::reported(format!(
                "it tells of more than {MOST_FILES} files, or of wanted ones with {} MB of \
                 names: write a pattern that names fewer folders",
                MOST_LISTED >> 20
            )));
        }
        if last {
            break;
        }
    }
    listing.chosen.sort_by(|(a, _), (b, _)| a.cmp(b));
    listing.chosen.dedup_by(|(a, _), (b, _)| a == b);
    Ok(listing)
}

impl HostListing {
    /// Takes a path if any pattern selects it.
    fn add(
        &mut self,
        path: PathBuf,
        meta: Result<Meta, String>,
        patterns: Vec<usize>,
    ) -> Result<(), HostFault> {
        if patterns.is_empty() {
            return Ok(());
        }
        let length = path.as_os_str().len();
        if length > MAX_PATH {
            return Err(HostFault::reported(format!(
                "it tells of a path of more than {MAX_PATH} bytes"
            )));
        }
        self.bytes += length + meta.as_ref().err().map_or(0, String::len) + BESIDE_PATH;
        self.matched.extend(patterns);
        self.chosen.push((path, meta));
        Ok(())
    }

    fn add_unreadable(
        &mut self,
        hidden: Unreadable,
        wanted: &SelectedFiles,
    ) -> Result<(), HostFault> {
        let path = PathBuf::from(hidden.path.0);
        if hidden.fault.is_of_no_file() {
            self.leave_out(path, hidden.fault, wanted);
            return Ok(());
        }
        let why = match &hidden.fault {
            FileFault::LeadsOut(_) => LEADS_OUT.to_owned(),
            fault => format!("{HIDDEN}: {fault}"),
        };
        let patterns = if hidden.is_file {
            wanted.matching(&path)
        } else {
            wanted.matching_below(&path)
        };
        self.add(path, Err(why), patterns)
    }

    fn leave_out(&mut self, path: PathBuf, fault: FileFault, wanted: &SelectedFiles) {
        if wanted.matching(&path).is_empty() || path.as_os_str().len() > MAX_PATH {
            return;
        }
        self.left_out += 1;
        let is_first = |(first, _): &(PathBuf, FileFault)| path < *first;
        if self.first_left_out.as_ref().is_none_or(is_first) {
            self.first_left_out = Some((path, fault));
        }
    }
}
