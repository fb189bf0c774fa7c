//! Text of the operating system, in a form that JSON can hold.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use record::term;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A path, a command's argument or a variable's value: any bytes but NUL. In JSON it is a string,
/// or `{"b64": "…"}` if it is not UTF-8.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Text(pub OsString);

impl Text {
    pub fn path(&self) -> &Path {
        Path::new(&self.0)
    }

    pub fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Text {
        Text(text.into())
    }
}

impl From<PathBuf> for Text {
    fn from(path: PathBuf) -> Text {
        Text(path.into_os_string())
    }
}

impl From<&Path> for Text {
    fn from(path: &Path) -> Text {
        Text(path.into())
    }
}

impl From<OsString> for Text {
    fn from(text: OsString) -> Text {
        Text(text)
    }
}

impl From<Vec<u8>> for Text {
    fn from(bytes: Vec<u8>) -> Text {
        Text(OsString::from_vec(bytes))
    }
}

impl AsRef<OsStr> for Text {
    fn as_ref(&self) -> &OsStr {
        &self.0
    }
}

/// The most characters of a line that a host words for users.
const LINE: usize = 300;
/// The most characters of a host's reason for a failure, which may name paths.
const MESSAGE: usize = 2000;
/// The most characters of a job's name, which a process could make as long as an environment.
pub(crate) const NAME: usize = 255;
/// The most characters of a command.
pub(crate) const COMMAND: usize = 200;

/// A host's text as a line for users: cut, and without control characters.
pub fn shown(text: &str) -> String {
    term::plain(&term::cut(text.trim_end(), LINE)).into_owned()
}

/// The beginning of a reason for which a host cannot be used.
pub fn cut_message(text: &str) -> String {
    term::cut(text, MESSAGE)
}

/// Reads a host's reason for a failure.
pub fn message<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    String::deserialize(deserializer).map(|text| cut_message(&text))
}

/// As [`message`] does.
pub fn optional_message<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    Option::<String>::deserialize(deserializer).map(|text| text.map(|text| cut_message(&text)))
}

/// Reads a host's line for users.
pub fn line<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    String::deserialize(deserializer).map(|text| shown(&text))
}

/// The most names that a message lists.
const NAMES: usize = 10;

/// Reads names that a host lists for users.
pub fn names<'de, D: Deserializer<'de>, C: FromIterator<String>>(
    deserializer: D,
) -> Result<C, D::Error> {
    let names = Vec::<String>::deserialize(deserializer)?;
    Ok(names.iter().take(NAMES).map(|name| shown(name)).collect())
}

/// The most items of a list of a host's facts. Hosts have a hundred of the most frequent, network
/// interfaces of containers.
pub(crate) const ITEMS: usize = 1000;

/// The first items of a list, in no more memory than they need.
pub(crate) fn first<T>(mut items: Vec<T>, most: usize) -> Vec<T> {
    items.truncate(most);
    items.shrink_to_fit();
    items
}

/// Reads a list of a host's facts.
pub fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    Vec::deserialize(deserializer).map(|items| first(items, ITEMS))
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Json {
    Utf8(String),
    Bytes { b64: String },
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.to_str() {
            Some(text) => serializer.serialize_str(text),
            None => Json::Bytes {
                b64: BASE64.encode(self.bytes()),
            }
            .serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Text, D::Error> {
        use serde::de::Error as _;
        let bytes = match Json::deserialize(deserializer)? {
            Json::Utf8(text) => text.into_bytes(),
            Json::Bytes { b64 } => BASE64.decode(b64).map_err(D::Error::custom)?,
        };
        // a system call would stop at a NUL byte, and so use another file or command
        if bytes.contains(&0) {
            return Err(D::Error::custom("a text with a NUL byte"));
        }
        Ok(Text(OsString::from_vec(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_but_nul_travel() {
        for bytes in [&b""[..], b"a b", "ä".as_bytes(), b"\xff\xfe", b"a\nb\"\\"] {
            let text = Text::from(bytes.to_vec());
            let json = serde_json::to_string(&text).unwrap();
            assert_eq!(serde_json::from_str::<Text>(&json).unwrap(), text, "{json}");
        }
        for json in ["\"a\\u0000b\"", r#"{"b64":"AAA="}"#, r#"{"b64":"?"}"#, "3"] {
            assert!(serde_json::from_str::<Text>(json).is_err(), "{json}");
        }
    }
}
