//! Checks host keys. `ssh-keygen -F` looks them up, because libssh2 does not support hashed
//! wildcards, all forms of `[host]:port` and @revoked.

#![expect(clippy::disallowed_methods, reason = "the user's own file of keys")]

use super::options::RemoteOptions;
use super::ssh_config::{PRINTED_BYTES, SshSettings};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use host::command;
use nix::fcntl::{Flock, FlockArg};
use session::{HostFault, UnknownKey};
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;

const DEFAULT_PORT: u16 = 22;
/// If the file has no key for a host; other statuses mean that it could not be read.
const KEYGEN_FOUND_NONE: i32 = 1;

#[derive(Debug, PartialEq, Eq)]
pub struct KnownHost {
    is_revoked: bool,
    is_authority: bool,
    pub kind: String,
    key: String,
    /// It is for the host's port 22, not for the port that is used.
    is_without_port: bool,
    place: KnownHostsLine,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownHostsLine {
    pub file: String,
    pub line: String,
}

/// In known_hosts. A HostKeyAlias is used unchanged, whatever the port.
pub fn name(settings: &SshSettings) -> String {
    let host = settings.hostname.to_lowercase();
    match (&settings.host_key_alias, settings.port) {
        (Some(alias), _) => alias.to_lowercase(),
        (None, DEFAULT_PORT) => host,
        (None, port) => format!("[{host}]:{port}"),
    }
}

#[derive(Debug, Default)]
pub struct KnownKeys {
    pub keys: Vec<KnownHost>,
    /// A file that could not be read, and why. It may have a key that `keys` lacks.
    unreadable: Option<String>,
}

pub fn known_keys(options: &RemoteOptions, settings: &SshSettings) -> Result<KnownKeys, HostFault> {
    let mut names = vec![(name(settings), false)];
    // OpenSSH may accept the key of port 22, too
    if settings.host_key_alias.is_none() && settings.port != DEFAULT_PORT {
        names.push((settings.hostname.to_lowercase(), true));
    }
    let mut known = KnownKeys::default();
    for file in &settings.known_hosts {
        match fs::File::open(file) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => {
                known.unreadable = Some(format!("{}: {error}", file.display()));
                continue;
            }
        }
        for (name, is_without_port) in &names {
            let mut keygen = Command::new("ssh-keygen");
            keygen.arg("-F").arg(name).arg("-f").arg(file);
            let limit = options.connect_timeout;
            let answer = command::ask(keygen, limit, PRINTED_BYTES, || options.is_stopped());
            let answer = answer.map_err(|error| {
                HostFault::unreachable(format!("ssh-keygen: {error}"))
                    .fix("install OpenSSH's client, or choose another connector with --connect")
            })?;
            match answer.status.map(|status| status.code()) {
                Some(Some(0)) => {
                    let text = String::from_utf8_lossy(&answer.stdout);
                    known.keys.extend(found_keys(&text, file, *is_without_port));
                }
                Some(Some(KEYGEN_FOUND_NONE)) => {}
                None if options.is_stopped() => return Err(HostFault::stopped()),
                None => {
                    let seconds = limit.as_secs_f32();
                    let problem = format!("ssh-keygen did not read it within {seconds} s");
                    known.unreadable = Some(format!("{}: {problem}", file.display()));
                }
                Some(_) => {
                    let words = String::from_utf8_lossy(&answer.stderr);
                    let words: Vec<&str> = words.lines().map(str::trim).collect();
                    known.unreadable = Some(format!("{}: {}", file.display(), words.join("; ")));
                }
            }
        }
    }
    known.keys = that_count(known.keys);
    Ok(known)
}

/// As in OpenSSH, lines for port 22 count only if the port that is used has no key. A key that one
/// of them revokes stays revoked.
fn that_count(mut keys: Vec<KnownHost>) -> Vec<KnownHost> {
    let is_key = |line: &KnownHost| !line.is_revoked && !line.is_authority;
    if keys
        .iter()
        .any(|line| is_key(line) && !line.is_without_port)
    {
        keys.retain(|line| line.is_revoked || !line.is_without_port);
    }
    keys
}

fn found_keys(text: &str, file: &Path, is_without_port: bool) -> Vec<KnownHost> {
    let mut found = Vec::new();
    let mut place = KnownHostsLine {
        file: file.display().to_string(),
        line: String::new(),
    };
    for line in text.lines() {
        match line.rsplit_once(" found: line ") {
            Some((_, number)) if line.starts_with('#') => {
                place.line = number.split(' ').next().unwrap_or("").to_owned();
            }
            _ => found.extend(parse(line, &place).map(|known| KnownHost {
                is_without_port,
                ..known
            })),
        }
    }
    found
}

fn parse(line: &str, place: &KnownHostsLine) -> Option<KnownHost> {
    let mut words = line.split_whitespace().peekable();
    let marker = words.next_if(|word| word.starts_with('@'));
    let _names = words.next().filter(|names| !names.starts_with('#'))?;
    let (kind, key) = (words.next()?.to_owned(), words.next()?.to_owned());
    Some(KnownHost {
        is_revoked: marker == Some("@revoked"),
        is_authority: marker == Some("@cert-authority"),
        kind,
        key,
        is_without_port: false,
        place: place.clone(),
    })
}

/// `Ok(false)` means that the key is unknown.
pub fn check(settings: &SshSettings, known: &KnownKeys, blob: &[u8]) -> Result<bool, HostFault> {
    let key = BASE64.encode(blob);
    let mut places: Vec<&KnownHostsLine> = Vec::new();
    let (mut is_known, mut has_authority) = (false, false);
    for line in &known.keys {
        if line.is_revoked && line.key == key {
            return Err(HostFault::unreachable("its key is revoked in known_hosts")
                .fix("do not connect; ask the administrator of the host"));
        }
        has_authority |= line.is_authority;
        if !line.is_revoked && !line.is_authority {
            is_known |= line.key == key;
            // another key at another port proves nothing
            places.extend((!line.is_without_port).then_some(&line.place));
        }
    }
    if is_known {
        return Ok(true);
    }
    // also beside an old key: OpenSSH then accepts a certificate of the authority
    if has_authority {
        let problem =
            "known_hosts trusts it by a certificate authority, which libssh2 cannot check";
        let fault = HostFault {
            ssh_may_do: true,
            ..HostFault::unreachable(problem)
        };
        return Err(fault.fix("use --connect ssh, or --connect auto"));
    }
    if !places.is_empty() {
        return Err(other_key(&name(settings), &places));
    }
    match &known.unreadable {
        Some(problem) => Err(HostFault::unreachable(format!(
            "its key cannot be looked up in known_hosts: {problem}"
        ))
        .fix("correct that file, or its permissions")),
        None => Ok(false),
    }
}

pub fn fault_of_other_key(options: &RemoteOptions, settings: &SshSettings) -> Option<HostFault> {
    let known = known_keys(options, settings).ok()?;
    let own = known.keys.iter().filter(|line| !line.is_without_port);
    let places: Vec<&KnownHostsLine> = own.map(|line| &line.place).collect();
    (!places.is_empty()).then(|| other_key(&name(settings), &places))
}

pub fn other_key(name: &str, places: &[&KnownHostsLine]) -> HostFault {
    let mut lines: Vec<String> = Vec::new();
    let mut commands = BTreeSet::new();
    let quoted_name = record::quote::shown(name);
    for KnownHostsLine { file, line } in places {
        lines.push(format!("{file}:{line}"));
        let file = record::quote::shown(file);
        commands.insert(format!("ssh-keygen -f {file} -R {quoted_name}"));
    }
    let lines = lines.join(", ");
    let fault = HostFault::unreachable(format!(
        "its key is not the one that known_hosts has for {name} ({lines}): another host answers, \
         or it was reinstalled"
    ));
    let commands = Vec::from_iter(commands).join(" && ");
    fault.fix(format!("if you know why, forget the old key: {commands}"))
}

pub fn unknown_key(settings: &SshSettings, blob: &[u8], fingerprint: String) -> UnknownKey {
    UnknownKey {
        name: name(settings),
        kind: key_type(blob).unwrap_or_else(|| "?".to_owned()),
        fingerprint,
        entry: settings.new_keys.clone().zip(line(settings, blob)),
    }
}

fn line(settings: &SshSettings, blob: &[u8]) -> Option<String> {
    let kind = key_type(blob)?;
    Some(format!("{} {kind} {}", name(settings), BASE64.encode(blob)))
}

/// The type follows its length in the key itself (RFC 4253, 6.6).
fn key_type(blob: &[u8]) -> Option<String> {
    let (length, rest) = blob.split_first_chunk::<4>()?;
    let kind = rest.get(..u32::from_be_bytes(*length) as usize)?;
    let kind = String::from_utf8(kind.to_vec()).ok()?;
    record::quote::may_be_pasted(&kind).then_some(kind)
}

const BY_HAND: &str = "write its key into a known_hosts file by hand";

/// Writes a new host's key, as OpenSSH's accept-new does.
pub fn remember(settings: &SshSettings, blob: &[u8]) -> Result<(), HostFault> {
    let file = settings.new_keys.as_ref().ok_or_else(|| {
        HostFault::unreachable("no known_hosts file to write its key to").fix(BY_HAND)
    })?;
    let failed =
        |error| HostFault::unreachable(format!("{}: {error}", file.display())).fix(BY_HAND);
    if let Some(folder) = file.parent() {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(failed)?;
    }
    let line = line(settings, blob)
        .ok_or_else(|| HostFault::unreachable("its key has an unknown format"))?;
    let known_hosts = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .open(file)
        .map_err(failed)?;
    // one write, because ssh appends without a lock
    append_line(known_hosts, &format!("{line}\n")).map_err(failed)
}

/// OpenSSH 9.2 would append a key to a last line without a newline.
pub fn end_last_line(settings: &SshSettings) {
    // if the file cannot be written, ssh reports it
    if let Some(file) = &settings.new_keys
        && let Ok(file) = OpenOptions::new().read(true).append(true).open(file)
    {
        let _ = append_line(file, "");
    }
}

/// Appends a line after a newline if the last line has none; otherwise both keys would be lost.
/// Other logins may do the same at the same moment.
fn append_line(file: fs::File, line: &str) -> std::io::Result<()> {
    match Flock::lock(file, FlockArg::LockExclusive) {
        Ok(mut locked) => append_to_last_line(&mut locked, line),
        // the file system has no locks
        Err((mut file, _)) => append_to_last_line(&mut file, line),
    }
}

fn append_to_last_line(file: &mut fs::File, line: &str) -> std::io::Result<()> {
    let length = file.seek(SeekFrom::End(0))?;
    let mut last = [b'\n'];
    if length > 0 {
        file.read_exact_at(&mut last, length - 1)?;
    }
    if last != [b'\n'] {
        return file.write_all(format!("\n{line}").as_bytes());
    }
    file.write_all(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> KnownHostsLine {
        KnownHostsLine {
            file: "/k".to_owned(),
            line: "3".to_owned(),
        }
    }

    #[test]
    fn lines_of_known_hosts() {
        let known = |is_revoked, is_authority, kind: &str, key: &str| {
            Some(KnownHost {
                is_revoked,
                is_authority,
                kind: kind.into(),
                key: key.into(),
                is_without_port: false,
                place: place(),
            })
        };
        let parse = |line| super::parse(line, &place());
        assert_eq!(parse("# Host 10.0.0.1 found: line 1"), None);
        assert_eq!(
            parse("10.0.0.1,n1 ssh-ed25519 AAAA comment"),
            known(false, false, "ssh-ed25519", "AAAA")
        );
        assert_eq!(
            parse("@revoked |1|x|y ssh-rsa BBBB"),
            known(true, false, "ssh-rsa", "BBBB")
        );
        assert_eq!(
            parse("@cert-authority *.lab ssh-rsa CCCC"),
            known(false, true, "ssh-rsa", "CCCC")
        );
    }

    fn host_n1() -> SshSettings {
        SshSettings {
            hostname: "N1".into(),
            port: 2222,
            ..SshSettings::default()
        }
    }

    fn line(marker: &str, key: &[u8]) -> KnownHost {
        let line = format!("{marker} n1 ssh-ed25519 {}", BASE64.encode(key));
        parse(&line, &place()).unwrap()
    }

    fn without_port(marker: &str, key: &[u8]) -> KnownHost {
        KnownHost {
            is_without_port: true,
            ..line(marker, key)
        }
    }

    /// Checks `key`. A refusal has its problem, its fix, and whether ssh may log in nevertheless.
    fn check(
        keys: Vec<KnownHost>,
        unreadable: Option<&str>,
    ) -> Result<bool, (String, String, bool)> {
        let (keys, unreadable) = (that_count(keys), unreadable.map(str::to_owned));
        let checked = super::check(&host_n1(), &KnownKeys { keys, unreadable }, b"key");
        checked.map_err(|fault| {
            let fix = fault.fix.unwrap_or_default();
            (fault.problem, fix, fault.ssh_may_do)
        })
    }

    #[test]
    fn known_hosts_has_names_with_ports() {
        let settings = host_n1();
        assert_eq!(name(&settings), "[n1]:2222");
        assert_eq!(
            name(&SshSettings {
                host_key_alias: Some("node".into()),
                ..SshSettings::default()
            }),
            "node"
        );
    }

    #[test]
    fn keys_are_compared() {
        let known = [
            check(vec![line("", b"old"), line("", b"key")], None),
            check(vec![line("", b"key")], Some("/k: denied")),
            // as OpenSSH does for another port
            check(vec![without_port("", b"key")], None),
            check(
                vec![line("@revoked", b"old"), without_port("", b"key")],
                None,
            ),
        ];
        assert!(known.iter().all(|known| *known == Ok(true)), "{known:?}");
        let unknown = [
            check(vec![], None),
            check(vec![without_port("", b"old")], None),
        ];
        assert!(
            unknown.iter().all(|known| *known == Ok(false)),
            "{unknown:?}"
        );
    }

    #[test]
    fn keys_are_refused() {
        let refused = [
            (vec![line("", b"old")], None, "has for [n1]:2222 (/k:3)"),
            // the key of port 22 counts only if this port has none
            (
                vec![line("", b"old"), without_port("", b"key")],
                None,
                "has for [n1]:2222 (/k:3)",
            ),
            (
                vec![without_port("", b"key"), line("", b"old")],
                None,
                "has for [n1]:2222 (/k:3)",
            ),
            (
                vec![line("@revoked", b"key"), line("", b"key")],
                None,
                "revoked",
            ),
            (vec![without_port("@revoked", b"key")], None, "revoked"),
            (
                vec![without_port("@revoked", b"key"), line("", b"old")],
                None,
                "revoked",
            ),
            (
                vec![],
                Some("/k: denied"),
                "cannot be looked up in known_hosts: /k: denied",
            ),
        ];
        for (keys, unreadable, problem) in refused {
            let (found, fix, ssh_may_do) = check(keys, unreadable).unwrap_err();
            assert!(found.contains(problem) && !ssh_may_do, "{found}");
            let forgets = fix.ends_with(": ssh-keygen -f /k -R '[n1]:2222'");
            assert_eq!(forgets, problem.contains("has for"), "{fix}");
        }
        // an old key beside an authority, too
        for keys in [vec![], vec![line("", b"old")]] {
            let authority = [line("@cert-authority", b"ca")].into_iter();
            let (found, _, ssh_may_do) = check(authority.chain(keys).collect(), None).unwrap_err();
            assert!(found.contains("authority") && ssh_may_do, "{found}");
        }
    }
}
