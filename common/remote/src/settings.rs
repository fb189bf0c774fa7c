//! The settings that the user's OpenSSH would use for a host, as `ssh -G` reports them: libssh2
//! reads no ssh_config.

use super::fault::HostFault;
use super::options::Options;
use record::Host;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The settings for one host.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    pub hostname: String,
    pub port: u16,
    pub user: String,
    /// The keys to try, in this order; some files may not exist.
    pub identities: Vec<PathBuf>,
    /// Whether to try only these keys, even if an agent holds others.
    pub identities_only: bool,
    /// The known_hosts files, the user's own first; new keys are written to the first.
    pub known_hosts: Vec<PathBuf>,
    /// The name of the host in known_hosts, if it is not `hostname`.
    pub host_key_alias: Option<String>,
    /// A setting that only OpenSSH itself can honour.
    pub beyond_us: Option<String>,
}

/// The options of `ssh` that correspond to the command line.
pub fn ssh_options(options: &Options) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    let mut add = |name: &str, value: OsString| words.extend([name.into(), value]);
    if let Some(file) = &options.ssh_config {
        add("-F", file.into());
    }
    if let Some(port) = options.ssh_port {
        add("-p", port.to_string().into());
    }
    if let Some(user) = &options.ssh_username {
        add("-l", user.into());
    }
    if let Some(key) = &options.identity {
        add("-i", key.into());
        add("-o", "IdentitiesOnly=yes".into());
    }
    words
}

/// The command `ssh -G` for one host.
fn asked(options: &Options, host: &Host) -> Command {
    let mut ssh = Command::new("ssh");
    ssh.arg("-G")
        .args(ssh_options(options))
        .arg("--")
        .arg(host.target())
        .stdin(Stdio::null());
    ssh
}

/// Asks `ssh -G`. Without that program there is no configuration to follow, and ssh's defaults are
/// used.
pub(crate) fn settings(options: &Options, host: &Host) -> Result<Settings, HostFault> {
    let mut ssh = asked(options, host);
    let home = std::env::var_os("HOME")
        .map(PathBuf::from)
        .unwrap_or_default();
    match ssh.output() {
        Ok(output) if output.status.success() => {
            Ok(parse(&String::from_utf8_lossy(&output.stdout), &home))
        }
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr)
                .trim()
                .replace('\n', "; ");
            Err(HostFault::new(format!("ssh -G: {said}"))
                .fix("correct ssh's configuration, or what --ssh-config names"))
        }
        Err(_) => {
            let user = options
                .ssh_username
                .clone()
                .or_else(|| std::env::var("USER").ok())
                .unwrap_or_default();
            let ssh = home.join(".ssh");
            let keys = ["id_ed25519", "id_ecdsa", "id_rsa"].map(|name| ssh.join(name));
            Ok(Settings {
                hostname: host.target(),
                port: options.ssh_port.unwrap_or(22),
                user,
                identities: options
                    .identity
                    .clone()
                    .map_or(keys.to_vec(), |key| vec![key]),
                identities_only: options.identity.is_some(),
                known_hosts: vec![ssh.join("known_hosts"), "/etc/ssh/ssh_known_hosts".into()],
                ..Settings::default()
            })
        }
    }
}

/// The key exchange to ask for first, if neither the user nor the administrator has chosen one: ssh
/// would take sntrup761, which costs 90 ms of a processor at both ends.
pub(crate) fn quick_exchange(options: &Options, host: &Host) -> Option<&'static str> {
    static SSHS_OWN: OnceLock<Option<Vec<u8>>> = OnceLock::new();
    let sshs_own = SSHS_OWN.get_or_init(|| {
        let output = Command::new("ssh")
            .args(["-G", "-F", "none", "--", "any"])
            .stdin(Stdio::null())
            .output()
            .ok()?;
        exchanges(&output.stdout).map(<[u8]>::to_vec)
    });
    let sshs_own = sshs_own.as_deref()?;
    let quick = quicker_than(sshs_own)?;
    let output = asked(options, host).output().ok()?;
    (exchanges(&output.stdout) == Some(sshs_own)).then_some(quick)
}

/// The value of KexAlgorithms in the output of `ssh -G`.
fn exchanges(text: &[u8]) -> Option<&[u8]> {
    text.split(|byte| *byte == b'\n')
        .find_map(|line| line.strip_prefix(b"kexalgorithms "))
}

/// A key exchange that is as safe and quicker: mlkem768 if this ssh knows it (9.9 and later),
/// otherwise what ssh took before 9.0 and libssh2 takes.
fn quicker_than(exchanges: &[u8]) -> Option<&'static str> {
    let names: Vec<&[u8]> = exchanges.split(|byte| *byte == b',').collect();
    let quick = ["mlkem768x25519-sha256", "curve25519-sha256"];
    let quick = quick
        .into_iter()
        .find(|name| names.contains(&name.as_bytes()));
    quick.filter(|_| names[0].starts_with(b"sntrup761"))
}

fn parse(text: &str, home: &std::path::Path) -> Settings {
    let path = |value: &str| match value.strip_prefix("~/") {
        Some(below) => home.join(below),
        None => PathBuf::from(value),
    };
    let mut settings = Settings {
        port: 22,
        ..Settings::default()
    };
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
            // a key that these revoke must not be accepted, nor one asked about that a command
            // knows
            "proxyjump" | "proxycommand" | "revokedhostkeys" | "knownhostscommand"
                if value != "none" =>
            {
                settings.beyond_us = Some(format!("{key} {value}"));
            }
            "certificatefile" => settings.beyond_us = Some(format!("{key} {value}")),
            _ => {}
        }
    }
    // the user's own file stays first, because new keys are written to it
    settings.known_hosts.extend(everybodys);
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slow_exchange_of_keys_is_put_behind_a_quick_one() {
        let table: [(&[u8], _); 5] = [
            (b"curve25519-sha256,ecdh-sha2-nistp256", None), // to 8.9
            (
                b"sntrup761x25519-sha512@openssh.com,curve25519-sha256,ecdh-sha2-nistp256",
                Some("curve25519-sha256"),
            ),
            (
                b"sntrup761x25519-sha512,mlkem768x25519-sha256,curve25519-sha256",
                Some("mlkem768x25519-sha256"),
            ), // 9.9
            (
                b"mlkem768x25519-sha256,sntrup761x25519-sha512,curve25519-sha256",
                None,
            ), // 10.0
            (b"sntrup761x25519-sha512,ecdh-sha2-nistp256", None),
        ];
        for (exchanges, expected) in table {
            assert_eq!(
                quicker_than(exchanges),
                expected,
                "{}",
                String::from_utf8_lossy(exchanges)
            );
        }
        assert_eq!(
            exchanges(b"host n1\ngssapikexalgorithms a\nkexalgorithms b,c\n"),
            Some(b"b,c".as_slice())
        );
    }

    #[test]
    fn what_ssh_prints_is_understood() {
        let text = "host n1\nuser ann\nhostname 10.0.0.1\nport 2222\nidentitiesonly \
            yes\nidentityfile ~/.ssh/a\nidentityfile /k/b\nglobalknownhostsfile /etc/known\n\
                    userknownhostsfile ~/.ssh/known_hosts /k/known\nproxyjump none\nhostkeyalias \
                    node\n";
        let settings = parse(text, std::path::Path::new("/home/ann"));
        assert_eq!(
            settings,
            Settings {
                hostname: "10.0.0.1".into(),
                port: 2222,
                user: "ann".into(),
                identities: vec!["/home/ann/.ssh/a".into(), "/k/b".into()],
                identities_only: true,
                known_hosts: vec![
                    "/home/ann/.ssh/known_hosts".into(),
                    "/k/known".into(),
                    "/etc/known".into()
                ],
                host_key_alias: Some("node".into()),
                beyond_us: None,
            }
        );
        for line in [
            "proxyjump bastion",
            "proxycommand nc %h %p",
            "certificatefile /c",
            "revokedhostkeys /krl",
            "knownhostscommand /bin/k %H",
        ] {
            assert_eq!(
                parse(&format!("{line}\n"), std::path::Path::new("/"))
                    .beyond_us
                    .as_deref(),
                Some(line)
            );
        }
        assert_eq!(
            parse(
                "knownhostscommand none\nrevokedhostkeys none\n",
                std::path::Path::new("/")
            )
            .beyond_us,
            None
        );
    }
}
