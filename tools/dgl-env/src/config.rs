//! The partition config on this machine, if it is here too, as it must be for launch.py.

use crate::check;
use record::error::{Fault, Report};
use serde::Deserialize;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// A partition takes some 600 bytes of a config, so this is one of 100,000 partitions.
const MAX_BYTES: u64 = 64 << 20;

const NAME_IT: &str =
    "--part-config names the JSON file that partition_graph wrote, as it lies in the workspace";

/// The parts of a config that tell whether it belongs to the job.
#[derive(Deserialize)]
pub struct Config {
    /// The name by which the script must load the graph.
    pub graph_name: Option<String>,
    #[serde(default)]
    num_parts: u64,
}

/// Reads the config, if it exists, and compares its number of partitions with that of the hosts.
pub fn here(path: Option<&Path>, num_hosts: usize) -> Result<Option<Config>, Report> {
    let Some(path) = path.filter(|path| path.is_file()) else {
        return Ok(None);
    };
    let Ok(file) = File::open(path) else {
        return Ok(None);
    };
    let place = path.display().to_string();
    let mut text = Vec::new();
    file.take(MAX_BYTES + 1)
        .read_to_end(&mut text)
        .map_err(|error| Fault::unreachable(&place, error.to_string()).fix(NAME_IT))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(Fault::data(
            place,
            format!("more than {MAX_BYTES} bytes: not a partition config"),
        )
        .fix(NAME_IT)
        .report());
    }
    let not_one =
        |error| Fault::data(&place, format!("not a partition config: {error}")).fix(NAME_IT);
    let config: Config = serde_json::from_slice(&text).map_err(not_one)?;
    match check::parts(config.num_parts, num_hosts, place) {
        Some(fault) => Err(fault.report()),
        None => Ok(Some(config)),
    }
}
