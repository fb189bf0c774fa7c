//! Checks host keys. `ssh-keygen -F` looks them up in known_hosts, because libssh2 does not support
//! hashed wildcards, all forms of `[host]:port` and @revoked.

#![expect(clippy::disallowed_methods, reason = "the user's own file of keys")]

use super::ssh_config::SshSettings;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use nix::fcntl::{Flock, FlockArg};
use session::{HostFault, UnknownKey};
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::process::{Command, Stdio};

/// A line of known_hosts.
#[derive(Debug, PartialEq, Eq)]
pub struct KnownHost {
    is_revoked: bool,
    is_authority: bool,
    pub kind: String,
    key: String,
    place: KnownHostsLine,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownHostsLine {
    pub file: String,
    pub line: String,
}

/// The name of a host in known_hosts. A HostKeyAlias is used unchanged, whatever the port.
pub fn name(settings: &SshSettings) -> String {
    let host = settings.hostname.to_lowercase();
    match (&settings.host_key_alias, settings.port) {
        (Some(alias), _) => alias.to_lowercase(),
        (None, 22) => host,
        (None, port) => format!("[{host}]:{port}"),
    }
}

pub fn known_keys(settings: &SshSettings) -> Result<Vec<KnownHost>, HostFault> {
    let mut known = Vec::new();
    for file in settings.known_hosts.iter().filter(|file| file.exists()) {
        let mut keygen = Command::new("ssh-keygen");
        keygen
            .arg("-F")
            .arg(name(settings))
            .arg("-f")
            .arg(file)
            .stdin(Stdio::null());
        let missing = |error| {
            HostFault::unreachable(format!("ssh-keygen: {error}"))
                .fix("install OpenSSH's client, or choose another connector with --connect")
        };
        let output = keygen.output().map_err(missing)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let mut place = KnownHostsLine {
            file: file.display().to_string(),
            line: String::new(),
        };
        for line in text.lines() {
            match line.rsplit_once(" found: line ") {
                Some((_, number)) if line.starts_with('#') => {
                    place.line = number.split(' ').next().unwrap_or("").to_owned();
                }
                _ => known.extend(parse(line, &place)),
            }
        }
    }
    Ok(known)
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
        place: place.clone(),
    })
}

/// `Ok(false)` means that the key is unknown.
pub fn check(settings: &SshSettings, known: &[KnownHost], blob: &[u8]) -> Result<bool, HostFault> {
    let key = BASE64.encode(blob);
    let mut places: Vec<&KnownHostsLine> = Vec::new();
    let (mut is_known, mut has_authority) = (false, false);
    for line in known {
        if line.is_revoked && line.key == key {
            return Err(HostFault::unreachable("its key is revoked in known_hosts")
                .fix("do not connect; ask the administrator of the host"));
        }
        has_authority |= line.is_authority;
        if !line.is_revoked && !line.is_authority {
            is_known |= line.key == key;
            places.push(&line.place);
        }
    }
    if is_known {
        return Ok(true);
    }
    if places.is_empty() && has_authority {
        let problem =
            "known_hosts trusts it by a certificate authority, which libssh2 cannot check";
        let fault = HostFault {
            ssh_may_do: true,
            ..HostFault::unreachable(problem)
        };
        return Err(fault.fix("use --connect ssh, or --connect auto"));
    }
    if places.is_empty() {
        return Ok(false);
    }
    Err(other_key(&name(settings), &places))
}

/// The host's key differs from that in these lines.
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

/// For known_hosts.
fn line(settings: &SshSettings, blob: &[u8]) -> Option<String> {
    let kind = key_type(blob)?;
    Some(format!("{} {kind} {}", name(settings), BASE64.encode(blob)))
}

/// The type of a key follows its length in the key itself (RFC 4253, 6.6).
fn key_type(blob: &[u8]) -> Option<String> {
    let (length, rest) = blob.split_first_chunk::<4>()?;
    let kind = rest.get(..u32::from_be_bytes(*length) as usize)?;
    let kind = String::from_utf8(kind.to_vec()).ok()?;
    record::quote::may_be_pasted(&kind).then_some(kind)
}

const BY_HAND: &str = "write its key into a known_hosts file by hand";

/// Writes a new host's key into the user's known_hosts, as OpenSSH's accept-new does.
pub fn remember(settings: &SshSettings, blob: &[u8]) -> Result<(), HostFault> {
    let file = settings.new_keys.as_ref().ok_or_else(|| {
        HostFault::unreachable("there is no known_hosts file to write its key to").fix(BY_HAND)
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
    // one write, because ssh appends to the same file without a lock
    append_line(known_hosts, &format!("{line}\n")).map_err(failed)
}

/// Ends the last line of known_hosts before `ssh` writes a key: OpenSSH 9.2 would append it to a
/// last line without a newline.
pub fn end_last_line(settings: &SshSettings) {
    // if the file cannot be written, ssh fails in the same way and reports it
    if let Some(file) = &settings.new_keys
        && let Ok(file) = OpenOptions::new().read(true).append(true).open(file)
    {
        let _ = append_line(file, "");
    }
}

/// Appends a line (or nothing), after a newline if the last line has none; otherwise both keys
/// would be lost. Other logins may do the same at the same moment.
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

    #[test]
    fn keys_are_compared() {
        let settings = SshSettings {
            hostname: "N1".into(),
            port: 2222,
            ..SshSettings::default()
        };
        let line = |marker: &str, key: &[u8]| {
            let line = format!("{marker} n1 ssh-ed25519 {}", BASE64.encode(key));
            parse(&line, &place()).unwrap()
        };
        assert_eq!(name(&settings), "[n1]:2222");
        assert_eq!(
            name(&SshSettings {
                host_key_alias: Some("node".into()),
                ..SshSettings::default()
            }),
            "node"
        );
        assert!(matches!(
            check(&settings, &[line("", b"old"), line("", b"key")], b"key"),
            Ok(true)
        ));
        assert!(matches!(check(&settings, &[], b"key"), Ok(false)));
        let other = check(&settings, &[line("", b"old")], b"key").unwrap_err();
        assert!(other.problem.contains("has for [n1]:2222 (/k:3)"));
        assert!(
            other
                .fix
                .unwrap()
                .ends_with(": ssh-keygen -f /k -R '[n1]:2222'")
        );
        assert!(
            check(
                &settings,
                &[line("@revoked", b"key"), line("", b"key")],
                b"key"
            )
            .unwrap_err()
            .problem
            .contains("revoked")
        );
        assert!(
            check(&settings, &[line("@cert-authority", b"ca")], b"key")
                .unwrap_err()
                .problem
                .contains("authority")
        );
    }
}
