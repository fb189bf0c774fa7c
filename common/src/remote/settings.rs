//! What the user's OpenSSH would use for a host, as `ssh -G` tells it: libssh2 reads no ssh_config.

use super::HostFault;
use crate::cli::Connect;
use crate::record::Host;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The settings for one host.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    pub hostname: String,
    pub port: u16,
    pub user: String,
    /// Keys to try, in this order; some may not exist.
    pub identities: Vec<PathBuf>,
    /// Only these, of what an agent holds too.
    pub identities_only: bool,
    /// The user's own first; new keys are written to the first.
    pub known_hosts: Vec<PathBuf>,
    /// The name that known_hosts has it under, where that is not `hostname`.
    pub host_key_alias: Option<String>,
    /// What only OpenSSH itself can do.
    pub beyond_us: Option<String>,
}

/// The options of `ssh` that say what the command line said.
pub fn ssh_options(connect: &Connect) -> Vec<OsString> {
    let mut options: Vec<OsString> = Vec::new();
    let mut add = |name: &str, value: OsString| options.extend([name.into(), value]);
    if let Some(file) = &connect.ssh_config {
        add("-F", file.into());
    }
    if let Some(port) = connect.ssh_port {
        add("-p", port.to_string().into());
    }
    if let Some(user) = &connect.ssh_username {
        add("-l", user.into());
    }
    if let Some(key) = &connect.identity {
        add("-i", key.into());
        add("-o", "IdentitiesOnly=yes".into());
    }
    options
}

/// Asks `ssh -G`; without such a program there is no configuration to hold to, and ssh's defaults are used.
pub(crate) fn settings(connect: &Connect, host: &Host) -> Result<Settings, HostFault> {
    let mut ssh = Command::new("ssh");
    ssh.arg("-G").args(ssh_options(connect)).arg("--").arg(host.target()).stdin(Stdio::null());
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    match ssh.output() {
        Ok(output) if output.status.success() => Ok(parse(&String::from_utf8_lossy(&output.stdout), &home)),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
            Err(HostFault::new(format!("ssh -G: {said}")).fix("correct ssh's configuration, or what --ssh-config names"))
        }
        Err(_) => {
            let user = connect.ssh_username.clone().or_else(|| std::env::var("USER").ok()).unwrap_or_default();
            let ssh = home.join(".ssh");
            let keys = ["id_ed25519", "id_ecdsa", "id_rsa"].map(|name| ssh.join(name));
            Ok(Settings {
                hostname: host.target(),
                port: connect.ssh_port.unwrap_or(22),
                user,
                identities: connect.identity.clone().map_or(keys.to_vec(), |key| vec![key]),
                identities_only: connect.identity.is_some(),
                known_hosts: vec![ssh.join("known_hosts"), "/etc/ssh/ssh_known_hosts".into()],
                ..Settings::default()
            })
        }
    }
}

fn parse(text: &str, home: &std::path::Path) -> Settings {
    let path = |value: &str| match value.strip_prefix("~/") {
        Some(below) => home.join(below),
        None => PathBuf::from(value),
    };
    let mut settings = Settings { port: 22, ..Settings::default() };
    let mut everybodys: Vec<PathBuf> = Vec::new();
    for (key, value) in text.lines().filter_map(|line| line.split_once(' ')) {
        match key {
            "hostname" => settings.hostname = value.to_owned(),
            "port" => settings.port = value.parse().unwrap_or(22),
            "user" => settings.user = value.to_owned(),
            "identityfile" => settings.identities.push(path(value)),
            "identitiesonly" => settings.identities_only = value == "yes",
            "userknownhostsfile" => settings.known_hosts.extend(value.split(' ').map(path)),
            "globalknownhostsfile" => everybodys.extend(value.split(' ').map(path)),
            "hostkeyalias" => settings.host_key_alias = Some(value.to_owned()),
            "proxyjump" | "proxycommand" if value != "none" => settings.beyond_us = Some(format!("{key} {value}")),
            "certificatefile" => settings.beyond_us = Some(format!("{key} {value}")),
            _ => {}
        }
    }
    // the user's own file stays first: it is the one that new keys are written to
    settings.known_hosts.extend(everybodys);
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ssh_prints_is_understood() {
        let text = "host n1\nuser ann\nhostname 10.0.0.1\nport 2222\nidentitiesonly yes\nidentityfile ~/.ssh/a\nidentityfile /k/b\nglobalknownhostsfile /etc/known\n\
                    userknownhostsfile ~/.ssh/known_hosts /k/known\nproxyjump none\nhostkeyalias node\n";
        let settings = parse(text, std::path::Path::new("/home/ann"));
        assert_eq!(
            settings,
            Settings {
                hostname: "10.0.0.1".into(),
                port: 2222,
                user: "ann".into(),
                identities: vec!["/home/ann/.ssh/a".into(), "/k/b".into()],
                identities_only: true,
                known_hosts: vec!["/home/ann/.ssh/known_hosts".into(), "/k/known".into(), "/etc/known".into()],
                host_key_alias: Some("node".into()),
                beyond_us: None,
            }
        );
        assert_eq!(parse("proxyjump bastion\n", std::path::Path::new("/")).beyond_us, Some("proxyjump bastion".into()));
    }
}
