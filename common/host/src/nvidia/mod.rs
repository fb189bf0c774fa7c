//! Finds nvidia-smi, which reports NVIDIA's GPUs, and parses its tables. It takes a tenth of a
//! second, some seconds if the driver is not kept loaded, and for ever if a GPU hangs.

pub mod cards;

use csv::{ReaderBuilder, StringRecord, Trim};
use std::env;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

const PROGRAM: &str = "nvidia-smi";
/// With eight GPUs whose driver is not kept loaded, nvidia-smi needs some seconds; after this time
/// a GPU or driver hangs.
pub const LIMIT: Duration = Duration::from_secs(20);
/// The unit of memory in its tables.
const MIB: u64 = 1 << 20;
/// The most rows that are used: 16 GPUs, each with up to 7 MIG devices.
const MAX_CARDS: usize = 256;
/// The format of its tables.
const FORMAT: &str = "--format=csv,noheader,nounits";

pub fn program() -> Option<PathBuf> {
    find(&env::var_os("PATH")?)
}

fn find(path: &OsStr) -> Option<PathBuf> {
    let is_program = |file: &PathBuf| {
        let meta = std::fs::metadata(file);
        meta.is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    env::split_paths(path)
        .map(|folder| folder.join(PROGRAM))
        .find(is_program)
}

/// Cells are never quoted.
fn rows(text: &str) -> Vec<StringRecord> {
    let reader = ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .quoting(false)
        .trim(Trim::All)
        .from_reader(text.as_bytes());
    reader.into_records().filter_map(Result::ok).collect()
}

/// `None` for values that a GPU does not report, such as `[N/A]`, `[Not Supported]` or
/// `[Insufficient Permissions]`.
fn number<T: FromStr>(cell: Option<&str>) -> Option<T> {
    cell?.parse().ok()
}

/// A number of MiB, in bytes.
fn bytes(cell: Option<&str>) -> Option<u64> {
    number::<u64>(cell)?.checked_mul(MIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_there_is_none_nobody_is_asked() {
        assert_eq!(find(OsStr::new("/proc/self:/nowhere")), None);
    }

    #[test]
    fn cells() {
        let cells = rows("0, GPU-1, 81559\n1,[N/A],\n\nNo \"such\n");
        let expected = [
            vec!["0", "GPU-1", "81559"],
            vec!["1", "[N/A]", ""],
            vec!["No \"such"],
        ];
        assert_eq!(cells, expected.map(StringRecord::from));
        let of = |row: usize| [0, 1, 2].map(|column| number(cells[row].get(column)));
        assert_eq!(of(0), [Some(0), None, Some(81_559u64)]);
        assert_eq!(of(2), [None; 3]);
        assert_eq!(bytes(Some("3")), Some(3 << 20));
        assert_eq!(bytes(Some("18446744073709551615")), None);
    }
}
