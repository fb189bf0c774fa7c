//! The program and the ticket that agents need on their hosts. Both are in a directory of the
//! user's that the hosts share; the program may also be in one of root's. Only the user can read
//! the ticket.
//!
//! The secret is in a file, because every user of a host sees command lines, and engines pass the
//! environment to every process, store it with a job and send it unencrypted.

#![expect(
    clippy::disallowed_methods,
    reason = "the directory is checked first: only this user can write it and those above"
)]

use crate::HostFault;
use crate::bootstrap::Agents;
use crate::owner::{self, Exposure};
use record::quote;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use transfer::run_folder;
use wire::dial::Ticket;

/// After this time, directories of tools that did not end normally are removed.
const UNUSED: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Removed on drop.
#[derive(Debug)]
pub struct TicketFolder {
    path: PathBuf,
    agent_folder: PathBuf,
}

struct AgentFolder {
    path: PathBuf,
    programs: Vec<(String, PathBuf)>,
}

impl TicketFolder {
    /// Puts the agents, a ticket and a script that starts an agent into shared directories. The
    /// agents may be in one that only root can write to, if they are there already; the ticket is
    /// then in the next one.
    pub fn make(agents: &Agents, ticket: &Ticket) -> Result<TicketFolder, HostFault> {
        let mut tried = Vec::new();
        let mut installed: Option<AgentFolder> = None;
        for folder in candidates() {
            let folder: PathBuf = folder.components().collect();
            let created = DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&folder)
                .and_then(|()| std::path::absolute(&folder));
            if let Some(fault) = endangered(created.as_ref().unwrap_or(&folder), agents) {
                // hosts search only one directory
                return Err(fault);
            }
            let made = created.and_then(|folder| {
                let with_agents = match installed.take() {
                    Some(installed) => installed,
                    None => AgentFolder {
                        path: folder.clone(),
                        programs: agents.write_into(&folder)?,
                    },
                };
                let with_agents = installed.insert(with_agents);
                TicketFolder::make_in(&folder, with_agents, ticket)
            });
            match made {
                Ok(made) => return Ok(made),
                Err(error) => tried.push(format!("{} ({error})", folder.display())),
            }
        }
        let fault = HostFault::for_all(format!(
            "no directory of this machine can hold the agents and the ticket for the hosts; \
             tried: {}",
            tried.join(", ")
        ));
        Err(fault.fix(
            "set DGL_TOOLS_AGENT_DIR to a directory that the hosts share and that you may write to",
        ))
    }

    fn make_in(folder: &Path, agents: &AgentFolder, ticket: &Ticket) -> io::Result<TicketFolder> {
        tidy(folder);
        let path = run_folder::path(folder, &tls::token()?);
        DirBuilder::new().mode(0o700).create(&path)?;
        let made = TicketFolder {
            path,
            agent_folder: agents.path.clone(),
        };
        let mut line = serde_json::to_vec(ticket)?;
        line.push(b'\n');
        write(&made.ticket(), &line, 0o600)?;
        write(
            &made.agent(),
            &script(&agents.programs, &made.ticket()),
            0o700,
        )?;
        Ok(made)
    }

    #[cfg(test)]
    pub fn existing(path: &Path) -> TicketFolder {
        TicketFolder {
            path: path.to_owned(),
            agent_folder: PathBuf::new(),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn agent(&self) -> PathBuf {
        self.path.join(run_folder::AGENT)
    }

    pub fn ticket(&self) -> PathBuf {
        self.path.join(run_folder::TICKET)
    }

    pub fn agent_folder(&self) -> &Path {
        &self.agent_folder
    }
}

impl Drop for TicketFolder {
    fn drop(&mut self) {
        run_folder::remove(&self.path);
    }
}

/// Directories that hosts may share; the first suitable one is used.
fn candidates() -> impl Iterator<Item = PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value: &OsString| !value.is_empty());
    let cache = variable("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(variable("HOME")?).join(".cache")));
    let named = variable("DGL_TOOLS_AGENT_DIR").map(PathBuf::from);
    named
        .into_iter()
        .chain(cache.map(|cache| cache.join("dgl-tools")))
}

/// The fault of a directory from which hosts must not run programs, because other users could
/// replace them.
fn endangered(folder: &Path, agents: &Agents) -> Option<HostFault> {
    let mut fix =
        "set DGL_TOOLS_AGENT_DIR to a directory of your own that the hosts share".to_owned();
    let (path, why) = match owner::exposed(folder) {
        Some((path, Exposure::Owned)) => (
            path,
            " belongs to another user, and hosts would run its programs",
        ),
        Some((path, Exposure::Writable)) => {
            let shown = quote::shown(path.as_os_str().as_encoded_bytes());
            fix = format!("chmod go-w {shown}, or {fix}");
            (
                path,
                ", where hosts find host-agent, can be changed by others",
            )
        }
        None => (agents.foreign_file(folder)?, " belongs to another user"),
    };
    Some(HostFault::for_all(format!("{}{why}", path.display())).fix(fix))
}

fn write(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)?;
    file.write_all(content)
}

/// A small script that runs the agent for the machine type of its host.
fn script(agents: &[(String, PathBuf)], ticket: &Path) -> Vec<u8> {
    let word = |path: &Path| quote::sh(path.as_os_str().as_encoded_bytes());
    let mut text = b"#!/bin/sh\n# Starts host-agent, which dials in to the tool that has written \
        this.\ncase $(uname -m) in\n"
        .to_vec();
    for (machine, path) in agents {
        text.extend([machine.as_bytes(), b") exec "].concat());
        text.extend([&word(path)[..], b" dial ", &word(ticket), b" ;;\n"].concat());
    }
    text.extend(
        b"esac\necho \"host-agent: there is none for this machine type, $(uname -m)\" >&2\n\
          exit 69\n",
    );
    text
}

fn tidy(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let age = entry.metadata().and_then(|meta| meta.modified());
        let is_old = age.is_ok_and(|age| age.elapsed().is_ok_and(|age| age > UNUSED));
        if is_old {
            run_folder::remove(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_runs_the_agent_of_its_own_machine_type() {
        let folder = std::env::temp_dir().join(format!("dgl-tools-ticket-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let agent = folder.join("an agent");
        write(&agent, b"#!/bin/sh\necho \"$1\" \"$2\"\n", 0o700).unwrap();
        let ran = |machine: &str| {
            let text = script(
                &[(machine.to_owned(), agent.clone())],
                Path::new("/a ticket"),
            );
            let ran = std::process::Command::new("sh")
                .arg("-c")
                .arg(String::from_utf8(text).unwrap())
                .output()
                .unwrap();
            (
                ran.status.code(),
                String::from_utf8_lossy(&ran.stdout).into_owned(),
            )
        };
        assert_eq!(
            ran(std::env::consts::ARCH),
            (Some(0), "dial /a ticket\n".to_owned())
        );
        assert_eq!(ran("vax"), (Some(69), String::new()));
        fs::remove_dir_all(&folder).unwrap();
    }
}
