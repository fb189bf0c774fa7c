//! The command line.

use clap::{Parser, ValueEnum};
use cli::{ConnectArgs, size};

/// Logs in once to each host and adds facts to its record: network interface, cores, memory, GPUs,
/// disk, a free port, Python, torch, DGL.
///
/// Reads host records and writes them again with these facts; every other line stays as it is. A
/// host that cannot be used gets "ok":false and makes every later tool of the pipeline fail.
#[derive(Parser)]
#[command(
    version,
    after_long_help = "Examples:
  ipconf-check ip_config.txt | host-probe | dgl-env …
  ipconf-check ip_config.txt | host-probe --conda gnn | dgl-env … -- python3 train.py
  ipconf-check ip_config.txt | host-probe --venv '~/gnn' --format human
  ipconf-check ip_config.txt | host-probe --setup '. /etc/profile; module load dgl'
  ipconf-check all.txt | host-probe --need 4 --min shm=64G --workspace '~/job' | part-map …
  ipconf-check ip_config.txt | host-probe --port auto | part-map …"
)]
pub struct Args {
    /// The directory of the job on every host, to find its free space and file system
    ///
    /// If it does not exist yet, the nearest existing directory above it counts.
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<String>,

    /// Graph servers on each host, whose ports torch must not get
    #[arg(long, default_value_t = 1, value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..))]
    pub num_servers: u16,

    /// The interpreter to examine
    ///
    /// It is a name in the `PATH` of the host or a path. The command of the job must name the same
    /// interpreter.
    #[arg(long, default_value = "python3", value_name = "CMD")]
    pub python: String,

    /// The conda environment of the job, by name or directory; dgl-env starts its Python
    ///
    /// Its directory may differ from host to host. host-probe looks in `CONDA_EXE`, `conda info
    /// --base`, `MAMBA_ROOT_PREFIX`, the directories in the home and in `/opt` that the installers
    /// of conda, mamba and micromamba propose, `envs_dirs` of each condarc, and
    /// `~/.conda/environments.txt`.
    #[arg(long, value_name = "ENV", value_parser = conda, conflicts_with_all = ["python", "venv"])]
    pub conda: Option<String>,

    /// The venv of the job, a directory on every host (an absolute path, or one that begins with
    /// ~/); dgl-env starts its Python
    ///
    /// Quote a path that begins with `~/`, so that your shell does not expand it.
    ///
    /// With `--conda` or `--venv`, dgl-env(1) starts the interpreter of the environment if the
    /// command begins with `python`, `python3` or the like, and sets `PATH`, `VIRTUAL_ENV`,
    /// `CONDA_PREFIX` and `CONDA_DEFAULT_ENV` for every process as an activation would. It runs no
    /// activation script. If the job needs what the scripts in `etc/conda/activate.d` set, use
    /// `--setup` here and in dgl-env(1).
    #[arg(long, value_name = "DIR", value_parser = folder, conflicts_with = "python")]
    pub venv: Option<String>,

    /// Accept hosts whose versions of Python, torch or DGL differ from most hosts
    ///
    /// For instance for a job that does not run Python. Differences then only cause a warning.
    #[arg(long)]
    pub mixed_versions: bool,

    /// Shell text that runs before the interpreter, by the user's $SHELL
    ///
    /// It runs in the home directory, not in the workspace as in dgl-env(1), so name files by their
    /// whole path. Its output is ignored.
    #[arg(long, value_name = "SHELL")]
    pub setup: Option<String>,

    /// Keep the first N usable and free hosts with the same versions, and number them from 0
    ///
    /// Later tools see no other hosts. A suitable host is usable, has the versions of dgl, torch
    /// and Python that most hosts have, runs no job of any user of dgl-tools, and the ports of its
    /// graph servers are free. host-probe reports on stderr why it omitted hosts. If too few are
    /// suitable, it prints nothing on stdout. It must come before part-map(1) in a pipeline.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..),
        conflicts_with_all = ["host", "partial"])]
    pub need: Option<u32>,

    /// With --need: what a host must have at least, as shm=64G,disk=2T: main memory (memory), free
    /// memory of each GPU (gpu), free space in /dev/shm (shm) and in the workspace (disk)
    ///
    /// - `memory`: Main memory, as far as the control group allows its use.
    ///
    /// - `gpu`: Free memory of each GPU, as nvidia-smi reports it; a host without a GPU is not
    ///   suitable.
    ///
    /// - `shm`: Free space in `/dev/shm`.
    ///
    /// - `disk`: Free space in the workspace, which `--workspace` names.
    ///
    /// Sizes are given in powers of 1000, such as `500M`, `64G` or `2T`, or in powers of 1024, such
    /// as `64GiB`.
    #[arg(long, hide_short_help = true, value_delimiter = ',', value_name = "NAME=SIZE[,…]",
        value_parser = named_size(&["memory", "gpu", "shm", "disk"]), requires = "need")]
    pub min: Vec<NamedSize>,

    /// The ports of the graph servers: those of the host records, or the first free on all hosts
    ///
    /// With `auto`, host-probe must come before part-map(1).
    #[arg(long, value_enum, default_value_t = ServerPort::Keep, value_name = "keep|auto",
        hide_possible_values = true, conflicts_with_all = ["host", "partial"])]
    pub port: ServerPort,

    /// How hosts are reached.
    // last: its heading would stand over all that follows
    #[command(flatten)]
    pub connect: ConnectArgs,
}

impl Args {
    /// What a host must have at least of this, if that is given.
    pub fn least(&self, name: &str) -> Option<u64> {
        size_of(&self.min, name)
    }
}

/// Where the ports of the graph servers come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ServerPort {
    /// Those of the host records.
    Keep,
    /// The first ports from 30050 to 32767 that are free on all hosts and that no other job has
    /// claimed, the same ones for all hosts. They are not reserved: dgl-spawn(1) reports if another
    /// job uses them first.
    Auto,
}

fn conda(text: &str) -> Result<String, String> {
    match text {
        "" | "." | ".." => Err("is not a name of an environment".to_owned()),
        path if path.contains('/') || path == "~" => folder(path),
        name if name.contains(|c: char| c.is_control() || c == ':') => Err(NO_SUCH_PATH.to_owned()),
        name => Ok(name.to_owned()),
    }
}

fn folder(text: &str) -> Result<String, String> {
    let path = text.trim_end_matches('/');
    match path {
        "" => Err("is not a directory".to_owned()),
        path if path.contains(|c: char| c.is_control() || c == ':') => Err(NO_SUCH_PATH.to_owned()),
        path if path.starts_with('/') || path == "~" || path.starts_with("~/") => {
            Ok(path.to_owned())
        }
        _ => Err(
            "is the same directory on every host: begin it with / or ~/, the home on each \
             host"
                .to_owned(),
        ),
    }
}

const NO_SUCH_PATH: &str = "PATH cannot have a directory of this name";

/// A number of bytes of something: `shm=64G`.
pub type NamedSize = (&'static str, u64);

/// A parser of [`NamedSize`] for these names.
fn named_size(
    names: &'static [&'static str],
) -> impl Fn(&str) -> Result<NamedSize, String> + Clone + Send + Sync {
    move |text| {
        let (given, bytes) = text.split_once('=').unwrap_or((text, ""));
        match names.iter().find(|name| **name == given) {
            Some(name) => Ok((*name, size(bytes)?)),
            None => Err(format!(
                "write it as NAME=SIZE, NAME being {}",
                names.join(", ")
            )),
        }
    }
}

/// The last size of this name.
fn size_of(given: &[NamedSize], name: &str) -> Option<u64> {
    let mut last = given.iter().rev();
    last.find(|(other, _)| *other == name)
        .map(|(_, bytes)| *bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_size_of_a_name_counts() {
        let parse = named_size(&["disk", "shm"]);
        let given = ["shm=1k", "disk=2k", "shm=3k"].map(|text| parse(text).unwrap());
        assert_eq!(size_of(&given, "shm"), Some(3_000));
        assert_eq!(size_of(&given[..1], "disk"), None);
        for text in ["shm", "shm=", "ram=1G", "=1G", ""] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
