//! The settings that the user's OpenSSH would use for a host, as `ssh -G` reports them: libssh2
//! reads no ssh_config.

use super::fault::HostFault;
use super::options::Options;
use record::Host;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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
    /// The known_hosts files, the user's own first.
    pub known_hosts: Vec<PathBuf>,
    /// The one to which new keys are written: the user's first, if there is one.
    pub new_keys: Option<PathBuf>,
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

/// Asks `ssh -G`. Without that program there is no configuration to follow, and ssh's defaults are
/// used.
pub(crate) fn settings(options: &Options, host: &Host) -> Result<Settings, HostFault> {
    let mut ssh = Command::new("ssh");
    ssh.arg("-G")
        .args(ssh_options(options))
        .arg("--")
        .arg(host.target())
        .stdin(Stdio::null());
    let home = std::env::var_os("HOME")
        .map(PathBuf::from)
        .unwrap_or_default();
    match ssh.output() {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8_lossy(&output.stdout);
            Ok(parse(&text, &home, options.identity.as_deref()))
        }
        Ok(output) => {
            let message = String::from_utf8_lossy(&output.stderr)
                .trim()
                .replace('\n', "; ");
            Err(HostFault::unreachable(format!("ssh -G: {message}"))
                .fix("correct ssh's configuration, or what DGL_TOOLS_SSH_CONFIG names"))
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
                new_keys: Some(ssh.join("known_hosts")),
                ..Settings::default()
            })
        }
    }
}

/// Reads what `ssh -G` printed; `given` is the key of the command line.
fn parse(text: &str, home: &Path, given: Option<&Path>) -> Settings {
    let path = |value: &str| match value.strip_prefix("~/") {
        Some(below) => home.join(below),
        None => PathBuf::from(value),
    };
    let is_none = |value: &str| value.eq_ignore_ascii_case("none");
    let files = |value: &str| -> Vec<PathBuf> {
        let files = value.split(' ').filter(|file| !is_none(file));
        files.map(path).collect()
    };
    let mut settings = Settings {
        port: 22,
        ..Settings::default()
    };
    let (mut everybodys, mut keys): (Vec<PathBuf>, Vec<&str>) = Default::default();
    for (key, value) in text.lines().filter_map(|line| line.split_once(' ')) {
        match key {
            "hostname" => settings.hostname = value.to_owned(),
            "port" => settings.port = value.parse().unwrap_or(22),
            "user" => settings.user = value.to_owned(),
            "identityfile" if !is_none(value) => keys.push(value),
            "identitiesonly" => settings.identities_only = value == "yes",
            "userknownhostsfile" => settings.known_hosts.extend(files(value)),
            "globalknownhostsfile" => everybodys.extend(files(value)),
            "hostkeyalias" => settings.host_key_alias = Some(value.to_owned()),
            // a key that these revoke must not be accepted, nor one asked about that a command
            // knows
            "proxyjump" | "proxycommand" | "revokedhostkeys" | "knownhostscommand"
            | "certificatefile"
                if !is_none(value) =>
            {
                settings.beyond_us = Some(format!("{key} {value}"));
            }
            _ => {}
        }
    }
    settings.new_keys = settings.known_hosts.first().cloned();
    settings.known_hosts.extend(everybodys);
    for key in keys {
        // that of the command line is the name of a file as it is
        let file = match given.filter(|given| given.as_os_str() == key) {
            Some(given) => Some(given.to_owned()),
            None => expanded(key, &settings, home).map(|key| path(&key)),
        };
        match file.filter(|file| file.is_absolute() || given == Some(file)) {
            Some(file) => settings.identities.push(file),
            None => settings.beyond_us = Some(format!("identityfile {key}")),
        }
    }
    settings
}

/// The value of IdentityFile with its tokens and variables, which `ssh -G` leaves as they are
/// (ssh_config(5), TOKENS and ENVIRONMENT VARIABLES); `None` if one of them is not known here.
fn expanded(value: &str, settings: &Settings, home: &Path) -> Option<String> {
    let mut text = String::new();
    let mut rest = value;
    while let Some(at) = rest.find(['%', '$']) {
        text += &rest[..at];
        let behind = &rest[at + 1..];
        if rest[at..].starts_with('%') {
            let token = behind.chars().next()?;
            text += &of_token(token, settings, home)?;
            rest = &behind[token.len_utf8()..];
        } else if let Some(variable) = behind.strip_prefix('{') {
            let (name, after) = variable.split_once('}')?;
            text += &std::env::var(name).ok()?;
            rest = after;
        } else {
            text.push('$');
            rest = behind;
        }
    }
    Some(text + rest)
}

fn of_token(token: char, settings: &Settings, home: &Path) -> Option<String> {
    match token {
        '%' => Some("%".to_owned()),
        'd' => home.to_str().map(str::to_owned),
        'h' => Some(settings.hostname.clone()),
        'l' => {
            let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
            Some(name.trim_end().to_owned())
        }
        'r' => Some(settings.user.clone()),
        'u' => {
            let user = nix::unistd::User::from_uid(nix::unistd::getuid());
            Some(user.ok()??.name)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ssh_prints_is_understood() {
        let text = "host n1\nuser ann\nhostname 10.0.0.1\nport 2222\nidentitiesonly \
            yes\nidentityfile ~/.ssh/a\nidentityfile /k/b\nglobalknownhostsfile /etc/known\n\
                    userknownhostsfile ~/.ssh/known_hosts /k/known\nproxyjump none\nhostkeyalias \
                    node\n";
        let settings = parse(text, std::path::Path::new("/home/ann"), None);
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
                new_keys: Some("/home/ann/.ssh/known_hosts".into()),
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
                parse(&format!("{line}\n"), std::path::Path::new("/"), None)
                    .beyond_us
                    .as_deref(),
                Some(line)
            );
        }
        assert_eq!(
            parse(
                "knownhostscommand none\nrevokedhostkeys none\n",
                std::path::Path::new("/"),
                None
            )
            .beyond_us,
            None
        );
    }

    #[test]
    fn none_is_no_file() {
        let text = "identityfile none\nuserknownhostsfile none\nglobalknownhostsfile /etc/known \
            None\ncertificatefile none\n";
        let settings = parse(text, Path::new("/home/ann"), None);
        assert_eq!(
            settings,
            Settings {
                port: 22,
                known_hosts: vec!["/etc/known".into()],
                ..Settings::default()
            }
        );
    }

    #[test]
    fn names_of_keys_have_tokens() {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let user = nix::unistd::User::from_uid(nix::unistd::getuid());
        let own = user.unwrap().unwrap().name;
        let path = std::env::var("PATH").unwrap();
        let table = [
            (
                "~/.ssh/%r@%h",
                Some("/home/ann/.ssh/bob@10.0.0.1".to_owned()),
            ),
            ("%d/100%%", Some("/home/ann/100%".to_owned())),
            ("/k/%l-%u", Some(format!("/k/{}-{own}", name.trim()))),
            ("/k${PATH}$", Some(format!("/k{path}$"))),
            ("/k/%C", None),
            ("/k/%", None),
            ("/k/${DGL_TOOLS_UNSET_VARIABLE}", None),
            ("/k/${PATH", None),
            ("~carol/key", None),
            ("id_lab", None),
        ];
        for (key, expected) in table {
            // the name of the host may stand behind the key
            let text = format!("user bob\nidentityfile {key}\nhostname 10.0.0.1\n");
            let settings = parse(&text, Path::new("/home/ann"), None);
            let files: Vec<PathBuf> = expected.iter().map(PathBuf::from).collect();
            assert_eq!(settings.identities, files, "{key}");
            let beyond = expected.is_none().then(|| format!("identityfile {key}"));
            assert_eq!(settings.beyond_us, beyond, "{key}");
        }
        // the given key names a file as it is
        let given = Path::new("keys/50%");
        let settings = parse("identityfile keys/50%\n", Path::new("/"), Some(given));
        assert_eq!(settings.identities, [given]);
        assert_eq!(settings.beyond_us, None);
    }
}
