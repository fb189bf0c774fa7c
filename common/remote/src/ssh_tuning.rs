//! What a tool that copies chooses for ssh in place of ssh's defaults, where neither the user nor
//! the administrator has configured anything: a quicker key exchange, and a socket of its own.

use super::options::Options;
use super::ssh_config::{asked, ssh_options};
use record::Host;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The settings on which it depends how ssh connects, and what they must be for a socket of ours to
/// do the same; `None` if they must not be there. An ssh that does not know one does not print it.
const OF_CONNECTING: [(&str, Option<&str>); 12] = [
    ("proxycommand", None),
    ("proxyjump", None),
    ("bindaddress", None),
    ("bindinterface", None),
    ("addressfamily", Some("any")),
    ("canonicalizehostname", Some("false")),
    ("checkhostip", Some("no")),
    ("connectionattempts", Some("1")),
    ("gssapitrustdns", Some("no")),
    ("nohostauthenticationforlocalhost", Some("no")),
    ("tcpkeepalive", Some("yes")),
    ("verifyhostkeydns", Some("false")),
];

/// With more hosts than this for each processor, logins wait for processors and not for the
/// network: the program that connects costs 4 ms of a processor, and what it saves is a wait.
const CONNECTED_TO_PER_PROCESSOR: usize = 4;

/// What ssh answers for one host, and the files from which it has that answer.
struct Configuration {
    asked_with: Vec<OsString>,
    /// The output of `ssh -G`.
    settings: Vec<u8>,
    /// The files without comments, in lower case; `None` if ssh does not tell which it reads.
    files: Option<Vec<String>>,
}

impl Configuration {
    /// The configuration, as far as it is the same for all hosts; ssh is asked once.
    fn of_all(options: &Options, host: &Host) -> Option<&'static Configuration> {
        static ASKED: OnceLock<Option<Configuration>> = OnceLock::new();
        let asked = ASKED.get_or_init(|| Configuration::ask(options, host));
        asked
            .as_ref()
            .filter(|asked| asked.asked_with == ssh_options(options))
    }

    fn ask(options: &Options, host: &Host) -> Option<Configuration> {
        let output = asked(&["-v"], options, host).output().ok()?;
        let read = |file: PathBuf| Some(without_comments(&std::fs::read(file).ok()?));
        let files = files_read(&String::from_utf8_lossy(&output.stderr));
        Some(Configuration {
            asked_with: ssh_options(options),
            settings: output.stdout,
            files: files.and_then(|files| files.into_iter().map(read).collect()),
        })
    }

    /// Whether no file sets any of these for any host, so that the answer holds for all.
    fn says_nothing_of<'a>(&self, mut settings: impl Iterator<Item = &'a str>) -> bool {
        let files = self.files.as_ref();
        files.is_some_and(|files| settings.all(|name| !files.iter().any(|text| sets(text, name))))
    }
}

/// Whether a socket of ours is worth it, and ssh connects to every host as it would: by its name
/// and port, on any of its addresses, from any of ours.
pub(crate) fn may_connect(options: &Options, host: &Host) -> bool {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    if host.of as usize > CONNECTED_TO_PER_PROCESSOR * processors {
        return false;
    }
    let Some(configuration) = Configuration::of_all(options, host) else {
        return false;
    };
    let names = OF_CONNECTING.iter().map(|(name, _)| *name);
    configuration.says_nothing_of(names) && is_plain(&configuration.settings)
}

/// Whether these settings have nothing of their own about connecting.
fn is_plain(settings: &[u8]) -> bool {
    let text = String::from_utf8_lossy(settings);
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    let is_usual = |(name, value): (&str, &str)| {
        let known = OF_CONNECTING.iter().find(|(known, _)| *known == name);
        known.is_none_or(|(_, usual)| *usual == Some(value))
    };
    !text.is_empty() && lines.all(is_usual)
}

/// The key exchange to ask for first, if neither the user nor the administrator has chosen one: ssh
/// would take sntrup761, which costs 90 ms of a processor at both ends.
pub(crate) fn quick_exchange(options: &Options, host: &Host) -> Option<&'static str> {
    static SSHS_OWN: OnceLock<Option<Vec<u8>>> = OnceLock::new();
    if let Some(configuration) = Configuration::of_all(options, host)
        && configuration.says_nothing_of(["kexalgorithms"].into_iter())
    {
        return quicker_than(exchanges(&configuration.settings)?);
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

/// The files that `ssh -v` says it reads, those included for other hosts too; `None` if it says
/// nothing that is known. A path of more than 200 bytes is cut (readconf.c of OpenSSH), so that no
/// file is found there.
fn files_read(message: &str) -> Option<Vec<PathBuf>> {
    message.lines().find(|line| line.starts_with("OpenSSH_"))?;
    let files = message
        .lines()
        .filter_map(|line| line.strip_prefix("debug1: Reading configuration data "));
    Some(files.map(PathBuf::from).collect())
}

/// A file of ssh's configuration without its comments, in lower case.
fn without_comments(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text).to_lowercase();
    let lines = text.lines().map(str::trim_start);
    let meant: Vec<&str> = lines.filter(|line| !line.starts_with('#')).collect();
    meant.join("\n")
}

/// Whether such a file sets what has this name, or includes files whose names depend on the host.
fn sets(text: &str, name: &str) -> bool {
    let by_host = |line: &str| line.contains("include") && line.contains('%');
    text.contains(name) || text.lines().any(by_host)
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
    fn files_that_set_something_are_known() {
        let message = "OpenSSH_9.2p1 Debian, OpenSSL 3.0.19\r
debug1: Reading configuration data /home/ann/.ssh/config\r
debug1: /home/ann/.ssh/config line 1: Applying options for *\r
debug1: Reading configuration data /etc/ssh/ssh_config\r
";
        let files = ["/home/ann/.ssh/config", "/etc/ssh/ssh_config"].map(PathBuf::from);
        assert_eq!(files_read(message), Some(files.to_vec()));
        assert_eq!(files_read("OpenSSH_9.2p1 Debian\n"), Some(Vec::new()));
        assert_eq!(files_read("debug1: Reading configuration data /a\n"), None);
        for (text, expected) in [
            ("Host *\n  HashKnownHosts yes\nInclude conf.d/*\n", false),
            ("Host n1\n  kexAlgorithms=curve25519-sha256\n", true),
            ("include conf.d/%h\n", true),
            ("Host *\n  # KexAlgorithms a\n", false),
            ("", false),
        ] {
            let text = without_comments(text.as_bytes());
            assert_eq!(sets(&text, "kexalgorithms"), expected, "{text}");
        }
    }

    #[test]
    fn a_socket_of_ours_takes_the_place_of_a_usual_one_only() {
        let usual = "hostname 10.0.0.1\naddressfamily any\ncheckhostip no\ntcpkeepalive yes\n";
        assert!(is_plain(usual.as_bytes()));
        assert!(!is_plain(b""));
        for unusual in [
            "proxyjump bastion",
            "proxycommand none",
            "bindaddress 10.0.0.9",
            "addressfamily inet6",
            "checkhostip yes",
            "canonicalizehostname true",
        ] {
            assert!(
                !is_plain(format!("{usual}{unusual}\n").as_bytes()),
                "{unusual}"
            );
        }
    }
}
