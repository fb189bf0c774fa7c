//! Checks the directories, configs and scripts of a job's processes.

use super::{files, needs, partition};
use crate::job::HostProcess;
use std::collections::BTreeSet;
use std::path::Path;
use wire::Text;
use wire::job::Job;
use wire::preflight::{Finding, Script, Subject};

/// Checks the directories, configs and scripts of all processes, each once.
pub fn check(job: &Job, processes: &[HostProcess], tell: &mut dyn FnMut(Finding, &[u8])) {
    let folders: BTreeSet<&Path> = processes.iter().map(HostProcess::folder).collect();
    for folder in folders.into_iter().filter(|folder| !folder.is_dir()) {
        let problem = format!("no such directory: {}", folder.display());
        tell(Finding::problem(Subject::File, problem), &[]);
    }
    // files in a missing directory have no findings
    let present = || processes.iter().filter(|process| process.folder().is_dir());
    let named = |variable: &str| -> BTreeSet<(&Path, &Path)> {
        let named = present().filter_map(|process| {
            let path = process.variable(variable)?;
            Some((process.folder(), Path::new(path)))
        });
        named.collect()
    };
    for (folder, path) in named("DGL_CONF_PATH") {
        let has_servers = processes.iter().any(needs::is_server);
        let part = has_servers.then_some(job.host);
        let findings = partition::check(folder, path, part, job.private_shm);
        let missing = files::missing(&folder.join(path));
        for finding in missing.into_iter().chain(findings) {
            tell(finding, &[]);
        }
    }
    for (folder, path) in named("DGL_IP_CONFIG") {
        let file = folder.join(path);
        if let Some(finding) = files::missing(&file) {
            tell(finding, &[]);
        }
        if let Some(text) = files::read_ip_config(&file) {
            tell(Finding::IpConfig, &text);
        }
    }
    let script = |process: &HostProcess| {
        Some(Script {
            program: process.record.role,
            folder: Text::from(process.folder()),
            path: Text::from(needs::script(process)?),
        })
    };
    let scripts: BTreeSet<Script> = present().filter_map(script).collect();
    for finding in scripts.into_iter().filter_map(files::check_script) {
        tell(finding, &[]);
    }
}
