//! The expiry of OpenSSH's certificates (PROTOCOL.certkeys of OpenSSH).

use base64::Engine as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The first expired certificate, and when it expired.
pub fn expired(files: &[PathBuf]) -> Option<(&Path, String)> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    files.iter().find_map(|file| {
        let text = std::fs::read_to_string(file).ok()?;
        let blob = text.split_whitespace().nth(1)?;
        let blob = base64::engine::general_purpose::STANDARD
            .decode(blob)
            .ok()?;
        let until = Duration::from_secs(valid_before(&blob)?);
        let day = || humantime::format_rfc3339_seconds(UNIX_EPOCH + until).to_string();
        (until <= now).then(|| (file.as_path(), day()))
    })
}

/// The end of a certificate's validity, in seconds since 1970.
fn valid_before(blob: &[u8]) -> Option<u64> {
    let mut rest = blob;
    let kind = string(&mut rest)?;
    let kind = std::str::from_utf8(kind).ok()?;
    // the parts of the public key, between the nonce and the serial number
    let parts = match kind {
        kind if kind.starts_with("ssh-ed25519-cert") => 1,
        kind if kind.starts_with("ssh-rsa-cert") || kind.starts_with("ecdsa-") => 2,
        kind if kind.starts_with("sk-ssh-ed25519-cert") => 2,
        kind if kind.starts_with("sk-ecdsa-") => 3,
        kind if kind.starts_with("ssh-dss-cert") => 4,
        _ => return None,
    };
    let nonce_and_key = 1 + parts;
    for _ in 0..nonce_and_key {
        string(&mut rest)?;
    }
    const SERIAL_AND_TYPE: usize = 8 + 4;
    rest = rest.get(SERIAL_AND_TYPE..)?;
    let (_key_id, _principals) = (string(&mut rest)?, string(&mut rest)?);
    const VALID_AFTER: usize = 8;
    let (before, _) = rest.get(VALID_AFTER..)?.split_first_chunk::<8>()?;
    Some(u64::from_be_bytes(*before))
}

/// A string of the SSH protocol follows its length.
fn string<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, behind) = rest.split_first_chunk::<4>()?;
    let length = u32::from_be_bytes(*length) as usize;
    let bytes = behind.get(..length)?;
    *rest = &behind[length..];
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_certificate_is_found_behind_any_kind_of_key() {
        let text = |bytes: &[u8]| [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat();
        let certificate = |kind: &str, parts: usize| {
            let mut blob = text(kind.as_bytes());
            (0..=parts).for_each(|part| blob.extend(text(&vec![7; part + 3])));
            blob.extend([0; 12]);
            blob.extend(text(b"ann"));
            blob.extend(text(b""));
            blob.extend(1u64.to_be_bytes());
            blob.extend(1_700_000_000u64.to_be_bytes());
            blob
        };
        let table = [
            ("ssh-ed25519-cert-v01@openssh.com", 1),
            ("ssh-rsa-cert-v01@openssh.com", 2),
            ("ecdsa-sha2-nistp256-cert-v01@openssh.com", 2),
            ("sk-ssh-ed25519-cert-v01@openssh.com", 2),
            ("sk-ecdsa-sha2-nistp256-cert-v01@openssh.com", 3),
        ];
        for (kind, parts) in table {
            let blob = certificate(kind, parts);
            assert_eq!(valid_before(&blob), Some(1_700_000_000), "{kind}");
            assert_eq!(valid_before(&blob[..blob.len() - 1]), None, "{kind}");
        }
        assert_eq!(valid_before(&text(b"ssh-ed25519")), None);
    }
}
