//! The script that a host runs first, and the agents to copy there.

#![expect(
    clippy::disallowed_methods,
    reason = "the directory is checked first: only this user can write it and those above"
)]

use super::owner;
use flate2::Compression;
use flate2::write::GzEncoder;
use nix::fcntl::OFlag;
use session::HostFault;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// The only command line that a connector runs on a host. It skips the line [`TAKEOVER`] and runs
/// [`BOOTSTRAP_SH`] from the next line, after its first character. `read` leaves the rest of stdin.
/// It has no quotes, backslashes or newlines that csh or fish would change.
pub const COMMAND: &str = r#"IFS= read -r s; IFS= read -r s; eval "${s#?}""#;

/// The first line on stdin, followed by the token. The shell that runs [`COMMAND`] skips it. If a
/// start-up file has replaced that shell (`exec zsh -l` in ~/.bashrc), the other one never sees the
/// command and reads stdin as its script: this line then starts the required sh and names the other
/// shell. The next line is a comment in any shell. A connector that joins the words `sh -c
/// COMMAND`, as `ssh HOST sh -c COMMAND` does, loses the first `read` and runs this line too.
const TAKEOVER: &str = concat!(
    " /bin/sh -c 'echo; read -r c </proc/$PPID/comm; ",
    r#"echo "$0 instead $c ${SHELL-}"; IFS= read -r s; eval "${s#?}"' "#,
);

const BOOTSTRAP_SH: &str = include_str!("bootstrap.sh");

/// For a login shell of any kind.
pub fn login_command() -> String {
    format!("/bin/sh -c {}", record::quote::shown(COMMAND))
}

/// A directory with agents, searched before those beside the tools.
const AGENTS_VARIABLE: &str = "DGL_TOOLS_AGENTS";

pub struct AgentFile {
    path: PathBuf,
    content: Arc<[u8]>,
    /// BLAKE3, in hexadecimal.
    hash: String,
    gzip: OnceLock<Arc<[u8]>>,
}

impl AgentFile {
    fn read(path: &Path) -> io::Result<AgentFile> {
        let content = std::fs::read(path)?;
        let hash = blake3::hash(&content).to_hex().to_string();
        Ok(AgentFile {
            path: path.to_owned(),
            content: content.into(),
            hash,
            gzip: OnceLock::new(),
        })
    }

    fn path_in(&self, folder: &Path) -> PathBuf {
        folder.join(format!("host-agent-{}", self.hash))
    }

    /// Complete, and protected from other users.
    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let mut file = OpenOptions::new()
            .read(true)
            .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
            .open(path)?;
        let meta = file.metadata()?;
        if !meta.is_file()
            || !owner::is_trusted(path)
            || owner::others_write(&meta)
            || meta.len() != self.content.len() as u64
        {
            return Ok(false);
        }
        let mut content = Vec::with_capacity(self.content.len());
        file.read_to_end(&mut content)?;
        Ok(content == *self.content)
    }

    fn write(&self, folder: &Path, path: &Path) -> io::Result<()> {
        let part = folder.join(format!(".{}", tls::token()?));
        let written = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o700)
            .open(&part)
            .and_then(|mut file| file.write_all(&self.content))
            .and_then(|()| std::fs::rename(&part, path));
        if written.is_err() {
            let _ = std::fs::remove_file(&part);
        }
        written
    }

    fn gzipped(&self) -> io::Result<Arc<[u8]>> {
        if let Some(bytes) = self.gzip.get() {
            return Ok(Arc::clone(bytes));
        }
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&self.content)?;
        let bytes = encoder.finish()?;
        Ok(Arc::clone(self.gzip.get_or_init(|| bytes.into())))
    }
}

/// By machine type, as `uname -m` names it.
pub struct Agents(BTreeMap<String, AgentFile>);

impl Agents {
    /// Searches once.
    pub fn found() -> Result<&'static Agents, HostFault> {
        static AGENTS: OnceLock<Result<Agents, HostFault>> = OnceLock::new();
        AGENTS
            .get_or_init(Agents::find)
            .as_ref()
            .map_err(Clone::clone)
    }

    fn find() -> Result<Agents, HostFault> {
        let mut agents = BTreeMap::new();
        for folder in folders() {
            for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
                let name = entry.file_name();
                let name = name.to_str().unwrap_or_default();
                if let Some(machine) = machine_type(name, std::env::consts::ARCH)
                    && !agents.contains_key(machine)
                {
                    let path = entry.path();
                    let agent = AgentFile::read(&path).map_err(|error| {
                        HostFault::unreachable(format!("{}: {error}", path.display()))
                    })?;
                    agents.insert(machine.to_owned(), agent);
                }
            }
        }
        if agents.is_empty() {
            let fault =
                HostFault::unreachable("no host-agent for the hosts was found on this machine");
            return Err(fault.fix(format!(
                "install dgl-tools again, or name its directory in {AGENTS_VARIABLE}"
            )));
        }
        Ok(Agents(agents))
    }

    pub fn script(&self, token: &str) -> Vec<u8> {
        let words: Vec<String> = self
            .0
            .iter()
            .map(|(machine, agent)| format!("{machine}={}", agent.hash))
            .collect();
        let lines = BOOTSTRAP_SH
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        let text: Vec<&str> = lines.collect();
        format!(
            "{TAKEOVER}{token}\n#token={token}; agents='{}'; {}\n",
            words.join(" "),
            text.join(" ")
        )
        .into_bytes()
    }

    fn get(&self, machine: &str) -> Result<&AgentFile, HostFault> {
        self.0.get(machine).ok_or_else(|| no_agent(machine))
    }

    pub fn for_this_machine(&self) -> Result<&Path, HostFault> {
        Ok(&self.get(std::env::consts::ARCH)?.path)
    }

    /// Names each by its hash, as the script does on a host. Returns machine types and paths.
    pub fn write_into(&self, folder: &Path) -> io::Result<Vec<(String, PathBuf)>> {
        let mut paths = Vec::new();
        for (machine, agent) in &self.0 {
            let path = agent.path_in(folder);
            if !agent.is_at(&path).unwrap_or(false) {
                agent.write(folder, &path)?;
            }
            paths.push((machine.clone(), path));
        }
        Ok(paths)
    }

    /// Has the name of an agent, but belongs to another user.
    pub fn foreign_file(&self, folder: &Path) -> Option<PathBuf> {
        let mut paths = self.0.values().map(|agent| agent.path_in(folder));
        paths.find(|path| path.symlink_metadata().is_ok() && !owner::is_trusted(path))
    }

    pub fn bytes(&self, machine: &str, gzip: bool) -> Result<Arc<[u8]>, HostFault> {
        let agent = self.get(machine)?;
        if !gzip {
            return Ok(Arc::clone(&agent.content));
        }
        agent
            .gzipped()
            .map_err(|error| HostFault::unreachable(format!("host-agent for {machine}: {error}")))
    }
}

pub fn no_agent(machine: &str) -> HostFault {
    // uname -s precedes the machine type outside of Linux
    let machine: String = machine
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || "_-".contains(*c))
        .take(40)
        .collect();
    if let Some((system, _)) = machine.split_once('-') {
        return HostFault::unreachable(format!("the host runs {system}, but jobs need Linux"));
    }
    // Rust's names for those of `uname -m`; packaging/agent.sh has the inverse
    let target = match machine.as_str() {
        "armv7l" => "armv7-unknown-linux-gnueabihf",
        "ppc64le" => "powerpc64le-unknown-linux-gnu",
        "riscv64" => "riscv64gc-unknown-linux-gnu",
        other => &format!("{other}-unknown-linux-gnu"),
    };
    let problem = format!("this machine has no host-agent for its machine type, {machine}");
    HostFault::unreachable(problem).fix(format!(
        "make agent TARGET={target}, then name its directory in {AGENTS_VARIABLE}"
    ))
}

fn folders() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    if let Some(folder) = std::env::var_os(AGENTS_VARIABLE)
        && !folder.is_empty()
    {
        folders.push(PathBuf::from(folder));
    }
    if let Ok(program) = std::env::current_exe()
        && let Some(tools) = program.parent()
    {
        folders.push(tools.to_owned());
        folders.extend(
            tools
                .parent()
                .map(|prefix| prefix.join("libexec/dgl-tools")),
        );
    }
    folders
}

/// From a name such as `host-agent-aarch64`. `host-agent` alone is for this machine.
fn machine_type<'a>(name: &'a str, this_machine: &'a str) -> Option<&'a str> {
    let rest = name.strip_prefix("host-agent")?;
    if rest.is_empty() {
        return Some(this_machine);
    }
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let machine = rest.strip_prefix('-')?;
    machine.chars().all(is_part).then_some(machine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_are_known_by_their_names() {
        let table = [
            ("host-agent", Some("x86_64")),
            ("host-agent-aarch64", Some("aarch64")),
            ("host-agent.d", None),
            ("host-agent-a.old", None),
            ("host-probe", None),
        ];
        for (name, machine) in table {
            assert_eq!(machine_type(name, "x86_64"), machine, "{name}");
        }
    }

    #[test]
    fn the_script_is_one_line_behind_that_for_other_shells() {
        let agent = |hash: &str| AgentFile {
            path: PathBuf::new(),
            content: Arc::default(),
            hash: hash.to_owned(),
            gzip: OnceLock::new(),
        };
        let agents = Agents(BTreeMap::from([
            ("aarch64".to_owned(), agent("a1")),
            ("x86_64".to_owned(), agent("b2")),
        ]));
        let script = String::from_utf8(agents.script("T")).unwrap();
        assert!(
            script.starts_with(TAKEOVER)
                && script.contains(" T\n#token=T; agents='aarch64=a1 x86_64=b2'; trap : PIPE;"),
            "{script}"
        );
        assert_eq!(script.matches('\n').count(), 2);
        // a comment would swallow the rest of the line
        assert!(!script.contains(" # "), "{script}");
    }
}
