//! Quoting of words for a POSIX shell.

/// One shell word of any bytes, in single quotes if one of them has a meaning to the shell.
pub fn sh(word: impl AsRef<[u8]>) -> Vec<u8> {
    let word = word.as_ref();
    if means_itself(word) {
        return word.to_vec();
    }
    quoted(word)
}

/// One shell word of any bytes, in single quotes: even a plain word may be an alias of zsh.
pub fn quoted(word: impl AsRef<[u8]>) -> Vec<u8> {
    let mut quoted = vec![b'\''];
    for &byte in word.as_ref() {
        match byte {
            b'\'' => quoted.extend_from_slice(b"'\\''"),
            other => quoted.push(other),
        }
    }
    quoted.push(b'\'');
    quoted
}

fn means_itself(word: &[u8]) -> bool {
    !word.is_empty()
        && word
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || b"_-./:,+@%=".contains(b))
        && word[0] != b'='
}

/// Whether users may be advised to paste a word from a host: the shell takes it literally, and it
/// is not an option.
pub fn may_be_pasted(word: &str) -> bool {
    means_itself(word.as_bytes()) && !word.starts_with('-')
}

pub fn sh_words<W: AsRef<[u8]>>(words: impl IntoIterator<Item = W>) -> Vec<u8> {
    let mut line = Vec::new();
    for word in words {
        if !line.is_empty() {
            line.push(b' ');
        }
        line.extend(sh(word));
    }
    line
}

/// Like [`sh`], for messages and plans; bytes that are not UTF-8 are replaced.
pub fn shown(word: impl AsRef<[u8]>) -> String {
    String::from_utf8_lossy(&sh(word)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_arrive_as_they_are() {
        let words: [&[u8]; 8] = [
            b"plain",
            b"",
            b"two words",
            b"it's",
            b"$(reboot)",
            b"-rf",
            b"new\nline",
            b"\xff\xfe",
        ];
        let mut script = b"printf '%s\\0' ".to_vec();
        script.extend(sh_words(words));
        let out = std::process::Command::new("sh")
            .arg("-c")
            .arg(std::ffi::OsStr::from_bytes(&script))
            .output()
            .unwrap();
        assert_eq!(
            out.stdout,
            words
                .iter()
                .flat_map(|w| [*w, &b"\0"[..]].concat())
                .collect::<Vec<u8>>()
        );
    }

    #[test]
    fn what_a_host_says_is_pasted_only_as_a_word() {
        for word in [
            "try7",
            "/home/u/v",
            "~",
            "a b",
            "",
            "-rf",
            "$(id)",
            "a;b",
            "a\u{1b}",
            "a\nb",
            "=a",
            "é",
        ] {
            assert_eq!(
                may_be_pasted(word),
                ["try7", "/home/u/v"].contains(&word),
                "{word:?}"
            );
        }
    }

    use std::os::unix::ffi::OsStrExt;
}
