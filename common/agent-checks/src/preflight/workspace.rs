//! Checks the directories, configs and scripts of a job's processes.

use super::{files, needs, partition};
use agent::job::HostProcess;
use record::Role;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use wire::job::Job;
use wire::preflight::{Finding, Problem, Subject};

/// Checks each directory, config and script once.
pub fn check(job: &Job, processes: &[HostProcess]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    let folders: BTreeSet<&Path> = processes.iter().map(HostProcess::folder).collect();
    for folder in folders.into_iter().filter(|folder| !folder.is_dir()) {
        let problem = format!("no such directory: {}", folder.display());
        findings.push(Problem::new(Subject::File, problem).into());
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
        findings.extend(files::missing(&folder.join(path)).map(Finding::from));
        findings.extend(partition::check(folder, path, part, job.private_shm));
    }
    for (folder, path) in named("DGL_IP_CONFIG") {
        findings.extend(files::check_ip_config(&folder.join(path)));
    }
    let script = |process: &HostProcess| {
        let file = process.folder().join(needs::script(process)?);
        Some((process.record.role, file))
    };
    let scripts: BTreeSet<(Role, PathBuf)> = present().filter_map(script).collect();
    let checked = scripts
        .iter()
        .map(|(program, file)| files::check_script(*program, file));
    findings.extend(checked.flatten());
    findings
}
