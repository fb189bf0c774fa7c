//! The settings that the user's OpenSSH would use for a host, by `ssh -G`, because libssh2 does not
//! read ssh_config. `ssh -G` evaluates Include and Match, including `Match exec`.
//! dgl-tools-connect(7) has a table of the effect of each setting.

use super::options::{HostKey, RemoteOptions};
use host::command;
use record::Host;
use session::HostFault;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// For `ssh -G` without configuration: it reads no file then.
const OWN_LIMIT: Duration = Duration::from_secs(10);
/// The most that is read of what `ssh` and `ssh-keygen` print; `ssh -G` prints about 4 KiB.
pub const PRINTED_BYTES: usize = 1 << 20;

#[derive(Debug, Default, PartialEq, Eq)]
pub struct SshSettings {
    pub hostname: String,
    pub port: u16,
    pub user: String,
    /// In the order of their use; some may not exist.
    pub identities: Vec<PathBuf>,
    /// Even if an agent holds others.
    pub identities_only: bool,
    /// Asks no agent for keys.
    pub no_agent: bool,
    /// The user's own first.
    pub known_hosts: Vec<PathBuf>,
    pub new_keys: Option<PathBuf>,
    /// The name in known_hosts, if it is not `hostname`.
    pub host_key_alias: Option<String>,
    /// A changed key is never accepted.
    pub accepts_new_keys: bool,
    /// The algorithms that differ from OpenSSH's defaults.
    pub algorithms: Algorithms,
    /// OpenSSH's defaults in their order, if the configuration has no others.
    pub default_ciphers: Vec<String>,
    pub certificates: Vec<PathBuf>,
    pub set_env: Vec<(String, String)>,
    /// The user's settings detect a dead link.
    pub is_kept_alive: bool,
    /// The socket of the user's own master.
    pub control_path: Option<PathBuf>,
    /// ProxyJump or ProxyCommand.
    pub proxy: Option<String>,
    /// Without these options, ssh would not run the given command.
    pub to_run_commands: Vec<&'static str>,
    /// Only OpenSSH itself supports this setting.
    pub beyond_us: Option<String>,
    /// The output of `ssh -G`.
    pub text: String,
}

/// The preferred ones first. An empty list means OpenSSH's default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Algorithms {
    pub ciphers: Vec<String>,
    pub key_exchanges: Vec<String>,
    pub macs: Vec<String>,
    pub host_keys: Vec<String>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct OpenSsh {
    /// Without configuration.
    algorithms: Algorithms,
    /// `StrictHostKeyChecking accept-new`, as versions since 7.6.
    pub knows_accept_new: bool,
}

/// Asks `ssh` once, without configuration; `None` if there is no ssh.
pub fn openssh() -> Option<&'static OpenSsh> {
    static OPENSSH: OnceLock<Option<OpenSsh>> = OnceLock::new();
    let ask = |options: &[&str]| {
        let mut ssh = Command::new("ssh");
        ssh.args(["-G", "-F", "/dev/null"]).args(options);
        ssh.arg("localhost");
        command::ask(ssh, OWN_LIMIT, PRINTED_BYTES, || false).ok()
    };
    let find = || {
        let mut output = ask(&["-o", "StrictHostKeyChecking=accept-new"])?;
        let knows_accept_new = output.status.is_some_and(|status| status.success());
        if !knows_accept_new {
            output = ask(&[])?;
        }
        Some(OpenSsh {
            algorithms: algorithms(&String::from_utf8_lossy(&output.stdout)),
            knows_accept_new,
        })
    };
    OPENSSH.get_or_init(find).as_ref()
}

fn algorithms(text: &str) -> Algorithms {
    let mut algorithms = Algorithms::default();
    for (key, value) in text.lines().filter_map(|line| line.split_once(' ')) {
        let list = match key {
            "ciphers" => &mut algorithms.ciphers,
            "kexalgorithms" => &mut algorithms.key_exchanges,
            "macs" => &mut algorithms.macs,
            "hostkeyalgorithms" => &mut algorithms.host_keys,
            _ => continue,
        };
        *list = value.split(',').map(str::to_owned).collect();
    }
    algorithms
}

impl Algorithms {
    /// Empties lists that equal the defaults.
    fn without(mut self, defaults: &Algorithms) -> Algorithms {
        for (list, default) in [
            (&mut self.ciphers, &defaults.ciphers),
            (&mut self.key_exchanges, &defaults.key_exchanges),
            (&mut self.macs, &defaults.macs),
            (&mut self.host_keys, &defaults.host_keys),
        ] {
            if list == default {
                list.clear();
            }
        }
        self
    }
}

/// The options of `ssh` that correspond to the tool's.
pub fn ssh_options(options: &RemoteOptions) -> Vec<OsString> {
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

/// The output of `ssh -G`; empty without ssh, because then there is no configuration.
pub fn printed_settings(options: &RemoteOptions, target: &str) -> Result<String, HostFault> {
    let mut ssh = Command::new("ssh");
    ssh.arg("-G")
        .args(ssh_options(options))
        .args(["--", target]);
    let wrong = |problem: String| {
        let fault = HostFault::unreachable(format!("ssh -G: {problem}"));
        fault.fix("correct ssh_config, or the file that DGL_TOOLS_SSH_CONFIG names")
    };
    let limit = options.connect_timeout;
    let answer = command::ask(ssh, limit, PRINTED_BYTES, || options.is_stopped());
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        Err(error) => return Err(wrong(error.to_string())),
    };
    match answer.status {
        Some(status) if status.success() => {
            Ok(String::from_utf8_lossy(&answer.stdout).into_owned())
        }
        Some(_) => {
            if let Some(fault) = without_user() {
                return Err(fault);
            }
            // some of its lines end with a carriage return
            let message = String::from_utf8_lossy(&answer.stderr);
            let lines: Vec<&str> = message.lines().map(str::trim).collect();
            Err(wrong(lines.join("; ")))
        }
        None if options.is_stopped() => Err(HostFault::stopped()),
        None => Err(wrong(format!(
            "it did not finish within {} s; perhaps a `Match exec` does not finish",
            limit.as_secs_f32()
        ))),
    }
}

/// The fault of a user without a name, as in a container that runs with any number: no program of
/// OpenSSH works then.
fn without_user() -> Option<HostFault> {
    let user = nix::unistd::getuid();
    if !matches!(nix::unistd::User::from_uid(user), Ok(None)) {
        return None;
    }
    let problem = format!("user {user} has no entry in /etc/passwd, which OpenSSH needs");
    Some(HostFault::for_all(problem).fix(format!(
        "add one, such as `echo \"me:x:{user}:0::$HOME:/bin/sh\" >>/etc/passwd` in the \
         container, or start the container as a user that its image has"
    )))
}

pub fn settings(options: &RemoteOptions, host: &Host) -> Result<SshSettings, HostFault> {
    let home = std::env::var_os("HOME")
        .map(PathBuf::from)
        .unwrap_or_default();
    let Some(openssh) = openssh() else {
        return Ok(without_openssh(options, host, &home));
    };
    let text = printed_settings(options, &host.target())?;
    let mut settings = parse(&text, &home, options.identity.as_deref());
    settings.algorithms = algorithms(&text).without(&openssh.algorithms);
    if settings.algorithms.ciphers.is_empty() {
        settings
            .default_ciphers
            .clone_from(&openssh.algorithms.ciphers);
    }
    for key in &settings.identities {
        let mut file = key.clone().into_os_string();
        file.push("-cert.pub");
        let file = PathBuf::from(file);
        if file.exists() {
            settings.certificates.push(file);
        }
    }
    if let Some(how) = options.host_key {
        settings.accepts_new_keys = how == HostKey::AcceptNew;
    }
    Ok(settings)
}

/// OpenSSH's defaults.
fn without_openssh(options: &RemoteOptions, host: &Host, home: &Path) -> SshSettings {
    let user = options
        .ssh_username
        .clone()
        .or_else(|| std::env::var("USER").ok())
        .unwrap_or_default();
    let ssh = home.join(".ssh");
    let keys = ["id_ed25519", "id_ecdsa", "id_rsa"].map(|name| ssh.join(name));
    SshSettings {
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
        accepts_new_keys: options.host_key == Some(HostKey::AcceptNew),
        ..SshSettings::default()
    }
}

fn is_none(value: &str) -> bool {
    value.eq_ignore_ascii_case("none")
}

/// Versions of ssh print either.
fn is_no(value: &str) -> bool {
    ["no", "false"].contains(&value)
}

fn is_beyond_us(key: &str, value: &str) -> bool {
    match key {
        // a revoked key must not be accepted, and a key that a command or the name server knows
        // needs no question
        "proxyjump" | "proxycommand" | "revokedhostkeys" | "knownhostscommand"
        | "identityagent" | "pkcs11provider" | "bindaddress" | "bindinterface" => !is_none(value),
        "addressfamily" => value != "any",
        "verifyhostkeydns" => !is_no(value),
        "pubkeyauthentication" => is_no(value),
        "preferredauthentications" => !value.split(',').any(|way| way == "publickey"),
        _ => false,
    }
}

/// Replaces a setting with which ssh would not run the given command. Versions that print none of
/// these settings do not support the options either.
fn replaced(key: &str, value: &str) -> Option<&'static str> {
    match key {
        "remotecommand" if !is_none(value) => Some("RemoteCommand=none"),
        "stdinnull" if !is_no(value) => Some("StdinNull=no"),
        "sessiontype" if value != "default" => Some("SessionType=default"),
        _ => None,
    }
}

/// `given` is the key of the command line.
fn parse(text: &str, home: &Path, given: Option<&Path>) -> SshSettings {
    let path = |value: &str| match value.strip_prefix("~/") {
        Some(below) => home.join(below),
        None => PathBuf::from(value),
    };
    let files = |value: &str| -> Vec<PathBuf> {
        let files = value.split(' ').filter(|file| !is_none(file));
        files.map(path).collect()
    };
    let mut settings = SshSettings {
        port: 22,
        text: text.to_owned(),
        ..SshSettings::default()
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
            "stricthostkeychecking" => {
                settings.accepts_new_keys = value == "accept-new" || is_no(value);
            }
            "setenv" => {
                let variable = value.split_once('=');
                let variable = variable.map(|(name, value)| (name.to_owned(), value.to_owned()));
                settings.set_env.extend(variable);
            }
            "serveraliveinterval" => settings.is_kept_alive = value != "0",
            "controlpath" if !is_none(value) => settings.control_path = Some(path(value)),
            "certificatefile" if !is_none(value) => settings.certificates.push(path(value)),
            "identityagent" if is_none(value) => settings.no_agent = true,
            "identityagent" if value == "SSH_AUTH_SOCK" => {}
            _ if is_beyond_us(key, value) => {
                let setting = format!("{key} {value}");
                if ["proxyjump", "proxycommand"].contains(&key) {
                    settings.proxy = Some(setting.clone());
                }
                settings.beyond_us = Some(setting);
            }
            _ => settings.to_run_commands.extend(replaced(key, value)),
        }
    }
    settings.new_keys = settings.known_hosts.first().cloned();
    settings.known_hosts.extend(everybodys);
    for key in keys {
        // the key of the command line is a plain file name, without tokens
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

/// IdentityFile with its tokens and variables replaced, which `ssh -G` does not do (ssh_config(5),
/// TOKENS and ENVIRONMENT VARIABLES); `None` for an unknown one.
fn expanded(value: &str, settings: &SshSettings, home: &Path) -> Option<String> {
    let mut text = String::new();
    let mut rest = value;
    while let Some(position) = rest.find(['%', '$']) {
        text += &rest[..position];
        let behind = &rest[position + 1..];
        if rest[position..].starts_with('%') {
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

fn of_token(token: char, settings: &SshSettings, home: &Path) -> Option<String> {
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
            SshSettings {
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
                text: text.into(),
                ..SshSettings::default()
            }
        );
        for line in [
            "proxyjump bastion",
            "proxycommand nc %h %p",
            "revokedhostkeys /krl",
            "knownhostscommand /bin/k %H",
            "identityagent /run/agent",
            "pkcs11provider /lib/p.so",
            "bindaddress 10.0.0.9",
            "addressfamily inet6",
            "verifyhostkeydns true",
            "pubkeyauthentication false",
            "preferredauthentications gssapi-with-mic,keyboard-interactive",
        ] {
            let settings = parse(&format!("{line}\n"), std::path::Path::new("/"), None);
            assert_eq!(settings.beyond_us.as_deref(), Some(line));
            let proxy = Some(line).filter(|line| line.starts_with("proxy"));
            assert_eq!(settings.proxy.as_deref(), proxy);
        }
        assert_eq!(
            parse(
                "knownhostscommand none\nrevokedhostkeys none\nidentityagent none\n\
                    gssapiauthentication yes\nhostbasedauthentication yes\naddressfamily any\n\
                    preferredauthentications gssapi-with-mic,publickey\n",
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
            SshSettings {
                port: 22,
                known_hosts: vec!["/etc/known".into()],
                text: text.into(),
                ..SshSettings::default()
            }
        );
    }

    #[test]
    fn settings_that_would_keep_ssh_from_running_commands() {
        let table: [(&str, &[&str]); 4] = [
            (
                "remotecommand none\nstdinnull no\nsessiontype default\n",
                &[],
            ),
            ("remotecommand tmux new -A\n", &["RemoteCommand=none"]),
            ("stdinnull yes\n", &["StdinNull=no"]),
            ("sessiontype none\n", &["SessionType=default"]),
        ];
        for (text, options) in table {
            let settings = parse(text, Path::new("/"), None);
            assert_eq!(settings.to_run_commands, options, "{text}");
        }
    }

    #[test]
    fn keys_are_accepted_as_the_user_does() {
        let table = [
            ("ask", false),
            ("true", false),
            ("yes", false),
            ("accept-new", true),
            ("false", true),
            ("no", true),
        ];
        for (value, accepts) in table {
            let settings = parse(
                &format!("stricthostkeychecking {value}\n"),
                Path::new("/"),
                None,
            );
            assert_eq!(settings.accepts_new_keys, accepts, "{value}");
        }
    }

    #[test]
    fn only_algorithms_that_differ_from_the_defaults_count() {
        let defaults = algorithms("ciphers a,b\nmacs m\n");
        let differing = algorithms("ciphers b\nmacs m\n").without(&defaults);
        assert_eq!(differing.ciphers, ["b"]);
        assert!(differing.macs.is_empty());
    }

    #[test]
    fn names_of_keys_have_tokens() {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let user = nix::unistd::User::from_uid(nix::unistd::getuid());
        let user_name = user.unwrap().unwrap().name;
        let path = std::env::var("PATH").unwrap();
        let table = [
            (
                "~/.ssh/%r@%h",
                Some("/home/ann/.ssh/bob@10.0.0.1".to_owned()),
            ),
            ("%d/100%%", Some("/home/ann/100%".to_owned())),
            ("/k/%l-%u", Some(format!("/k/{}-{user_name}", name.trim()))),
            ("/k${PATH}$", Some(format!("/k{path}$"))),
            ("/k/%C", None),
            ("/k/%", None),
            ("/k/${DGL_TOOLS_UNSET_VARIABLE}", None),
            ("/k/${PATH", None),
            ("~carol/key", None),
            ("id_lab", None),
        ];
        for (key, expected) in table {
            // the name of the host may follow the key
            let text = format!("user bob\nidentityfile {key}\nhostname 10.0.0.1\n");
            let settings = parse(&text, Path::new("/home/ann"), None);
            let files: Vec<PathBuf> = expected.iter().map(PathBuf::from).collect();
            assert_eq!(settings.identities, files, "{key}");
            let beyond = expected.is_none().then(|| format!("identityfile {key}"));
            assert_eq!(settings.beyond_us, beyond, "{key}");
        }
        // the given key is a plain file name
        let given = Path::new("keys/50%");
        let settings = parse("identityfile keys/50%\n", Path::new("/"), Some(given));
        assert_eq!(settings.identities, [given]);
        assert_eq!(settings.beyond_us, None);
    }
}
