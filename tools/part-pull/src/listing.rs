//! Lists the wanted files of a host.

use crate::plan::SelectedFiles;
use remote::HostFault;
use remote::host_link::HostLink;
use std::path::PathBuf;
use wire::files::{FileEvent, FileRequest, Meta};

/// The most files of a host that are listed, wanted or not; more are a mistake in the pattern, or
/// of the host.
const MOST_FILES: usize = 2_000_000;
/// The longest path that Linux knows (PATH_MAX).
const MAX_PATH: usize = 4096;
/// What the wanted files of a host may take of this machine's memory while they are listed, in
/// bytes: some 300,000 files. Two more copies of each path are made later.
const MOST_LISTED: usize = 64 << 20;
/// What a listed file takes beside its path, in bytes.
const BESIDE_PATH: usize = 128;

const HIDDEN: &str = "what is there cannot be read";

/// A path on the host, with its attributes, or why the host cannot read them.
pub type Listed = (PathBuf, Result<Meta, String>);

/// The wanted files and empty directories, and unreadable paths that may contain some.
pub fn list(link: &mut HostLink, wanted: &SelectedFiles) -> Result<Vec<Listed>, HostFault> {
    link.send(FileRequest::Find {
        roots: wanted
            .roots
            .iter()
            .map(|root| root.as_str().into())
            .collect(),
    });
    let (mut chosen, mut listed, mut bytes) = (Vec::new(), 0, 0);
    loop {
        let FileEvent::Found {
            entries,
            unreadable,
            last,
        } = link.next_event()?.0
        else {
            return Err(HostFault::reported("it listed no files"));
        };
        listed += (entries.len() + unreadable.len()).max(1);
        let found = entries
            .into_iter()
            .filter(|found| found.meta.is_file() || found.meta.is_folder())
            .map(|found| (PathBuf::from(found.path.0), Ok(found.meta)))
            .filter(|(path, _)| wanted.takes(path));
        let hidden = unreadable.into_iter().map(|hidden| {
            let why = format!("{HIDDEN}: {}", hidden.fault);
            (PathBuf::from(hidden.path.0), Err(why))
        });
        let hidden = hidden.filter(|(path, _)| wanted.may_be_at(path));
        for (path, meta) in found.chain(hidden) {
            let length = path.as_os_str().len();
            if length > MAX_PATH {
                return Err(HostFault::reported(format!(
                    "it tells of a path of more than {MAX_PATH} bytes"
                )));
            }
            bytes += length + meta.as_ref().err().map_or(0, String::len) + BESIDE_PATH;
            chosen.push((path, meta));
        }
        if listed > MOST_FILES || bytes > MOST_LISTED {
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
    chosen.sort_by(|(a, _), (b, _)| a.cmp(b));
    chosen.dedup_by(|(a, _), (b, _)| a == b);
    Ok(chosen)
}
