//! Which ranks did not come to an operation of NCCL's, from the dumps that torch's flight recorder
//! has left.

mod describe;
mod dump;
mod pickle;
mod waits;

pub use describe::{add, verdict};

use dump::Dump;
use record::error::{Fault, Report};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use waits::{Dumps, Programs};
use walkdir::WalkDir;

/// Reads all dumps below a folder. What cannot be read is told on stderr and left out: a rank may
/// have been ended while it wrote.
pub fn read(folder: &Path) -> Result<Programs, Report> {
    let mut programs = Programs::new();
    for entry in WalkDir::new(folder).sort_by_file_name() {
        let entry = entry.map_err(|error| {
            Fault::unreachable(folder.display().to_string(), error.to_string())
                .fix("name the folder into which part-pull has fetched the dumps")
        })?;
        let name = entry.file_name().to_string_lossy();
        let Some((prefix, rank)) = rank_of(&name).filter(|_| entry.file_type().is_file()) else {
            continue;
        };
        let file = entry.path().strip_prefix(folder).unwrap_or(entry.path());
        let file = file.display().to_string();
        let dump = match bytes(entry.path()) {
            Ok(None) => continue,
            Ok(Some(bytes)) => Dump::read(file.clone(), &bytes),
            Err(error) => Err(error.to_string()),
        };
        let dumps = programs.entry(prefix.to_owned()).or_default();
        match dump {
            Ok(dump) => keep_newest(dumps, rank, dump),
            Err(problem) => record::tell!("dgl-why: {file}: {problem}; left out"),
        }
    }
    programs.retain(|_, dumps| !dumps.is_empty());
    if programs.is_empty() {
        let problem = "there is no dump of torch's flight recorder below it";
        return Err(Fault::data(folder.display().to_string(), problem)
            .fix("fetch them with part-pull: man dgl-tools-trouble, A job that hangs")
            .report());
    }
    Ok(programs)
}

/// Splits the name of a dump, which ends with the rank: `nccl_trace_rank_3`.
fn rank_of(name: &str) -> Option<(&str, u32)> {
    let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let rank = name[prefix.len()..].parse().ok()?;
    prefix.ends_with('_').then_some((prefix, rank))
}

/// The bytes of a file that begins as every dump does, with a pickle of protocol 2 that is a dict.
fn bytes(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let mut file = File::open(path)?.take(pickle::MAX_BYTES as u64 + 1);
    file.by_ref().take(3).read_to_end(&mut bytes)?;
    if bytes != [0x80, 2, b'}'] {
        return Ok(None);
    }
    file.read_to_end(&mut bytes)?;
    match bytes.len() > pickle::MAX_BYTES {
        true => Err(io::Error::other(format!(
            "it has more than {} bytes",
            pickle::MAX_BYTES
        ))),
        false => Ok(Some(bytes)),
    }
}

/// A rank that was started again on another host has left a file on both.
fn keep_newest(dumps: &mut Dumps, rank: u32, dump: Dump) {
    let newest = |dump: &Dump| dump.operations.last().map(|one| one.created_ns);
    match dumps.get(&rank) {
        Some(other) if newest(other) >= newest(&dump) => {}
        _ => drop(dumps.insert(rank, dump)),
    }
}
