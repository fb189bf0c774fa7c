//! The settings that the user's OpenSSH would use for a host, as `ssh -G` reports them: libssh2
//! reads no ssh_config.

use super::fault::HostFault;
use super::options::Options;
use record::Host;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
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

/// The command `ssh -G` for one host, with more options of ssh.
fn asked(more: &[&str], options: &Options, host: &Host) -> Command {
    let mut ssh = Command::new("ssh");
    ssh.arg("-G")
        .args(more)
        .args(ssh_options(options))
        .arg("--")
        .arg(host.target())
        .stdin(Stdio::null());
    ssh
}

/// Asks `ssh -G`. Without that program there is no configuration to follow, and ssh's defaults are
/// used.
pub(crate) fn settings(options: &Options, host: &Host) -> Result<Settings, HostFault> {
    let mut ssh = asked(&[], options, host);
    let home = std::env::var_os("HOME")
        .map(PathBuf::from)
        .unwrap_or_default();
    match ssh.output() {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8_lossy(&output.stdout);
            Ok(parse(&text, &home, options.identity.as_deref()))
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
                new_keys: Some(ssh.join("known_hosts")),
                ..Settings::default()
            })
        }
    }
}

/// The key exchange to ask for first, if neither the user nor the administrator has chosen one: ssh
/// would take sntrup761, which costs 90 ms of a processor at both ends.
pub(crate) fn quick_exchange(options: &Options, host: &Host) -> Option<&'static str> {
    type Exchanges = Vec<u8>;
    static UNCHOSEN: OnceLock<(Vec<OsString>, Option<Exchanges>)> = OnceLock::new();
    static SSHS_OWN: OnceLock<Option<Exchanges>> = OnceLock::new();
    // where no file names any, the answer for one host holds for all
    let (asked_with, unchosen) =
        UNCHOSEN.get_or_init(|| (ssh_options(options), unchosen_exchanges(options, host)));
    if let Some(unchosen) = unchosen
        && *asked_with == ssh_options(options)
    {
        return quicker_than(unchosen);
    }
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
    let output = asked(&[], options, host).output().ok()?;
    (exchanges(&output.stdout) == Some(sshs_own)).then_some(quick)
}

/// The key exchanges of this ssh, if no file of its configuration names any for any host.
fn unchosen_exchanges(options: &Options, host: &Host) -> Option<Vec<u8>> {
    let output = asked(&["-v"], options, host).output().ok()?;
    let files = files_read(&String::from_utf8_lossy(&output.stderr))?;
    for file in files {
        if may_choose_exchanges(&std::fs::read(file).ok()?) {
            return None;
        }
    }
    exchanges(&output.stdout).map(<[u8]>::to_vec)
}

/// The files that `ssh -v` says it reads, those included for other hosts too; `None` if it says
/// nothing that is known. A path of more than 200 bytes is cut (readconf.c of OpenSSH), so that no
/// file is found there.
fn files_read(said: &str) -> Option<Vec<PathBuf>> {
    said.lines().find(|line| line.starts_with("OpenSSH_"))?;
    let files = said
        .lines()
        .filter_map(|line| line.strip_prefix("debug1: Reading configuration data "));
    Some(files.map(PathBuf::from).collect())
}

/// Whether a file of ssh's configuration names key exchanges, or includes files whose names depend
/// on the host.
fn may_choose_exchanges(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text).to_lowercase();
    let by_host = |line: &str| line.contains("include") && line.contains('%');
    text.contains("kexalgorithms") || text.lines().any(by_host)
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
    fn files_that_may_choose_exchanges_are_known() {
        let said = "OpenSSH_9.2p1 Debian, OpenSSL 3.0.19\r
debug1: Reading configuration data /home/ann/.ssh/config\r
debug1: /home/ann/.ssh/config line 1: Applying options for *\r
debug1: Reading configuration data /etc/ssh/ssh_config\r
";
        let files = ["/home/ann/.ssh/config", "/etc/ssh/ssh_config"].map(PathBuf::from);
        assert_eq!(files_read(said), Some(files.to_vec()));
        assert_eq!(files_read("OpenSSH_9.2p1 Debian\n"), Some(Vec::new()));
        assert_eq!(files_read("debug1: Reading configuration data /a\n"), None);
        for (text, expected) in [
            ("Host *\n  HashKnownHosts yes\nInclude conf.d/*\n", false),
            ("Host n1\n  kexAlgorithms=curve25519-sha256\n", true),
            ("include conf.d/%h\n", true),
            ("", false),
        ] {
            assert_eq!(may_choose_exchanges(text.as_bytes()), expected, "{text}");
        }
    }

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
        // --identity names a file as it is
        let given = Path::new("keys/50%");
        let settings = parse("identityfile keys/50%\n", Path::new("/"), Some(given));
        assert_eq!(settings.identities, [given]);
        assert_eq!(settings.beyond_us, None);
    }
}
