//! Base64 in a field of its own for text that JSON cannot hold: paths, words and values that are
//! not UTF-8.

use crate::error::Fault;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

pub(crate) fn encode(text: &OsStr) -> String {
    BASE64.encode(text.as_bytes())
}

/// The path as text, or in base64 if it is not UTF-8.
pub fn path_fields(path: &Path) -> (Option<String>, Option<String>) {
    match path.to_str() {
        Some(text) => (Some(text.to_owned()), None),
        None => (None, Some(encode(path.as_os_str()))),
    }
}

pub(crate) fn unbase64(record: &str, field: &str, text: &str) -> Result<OsString, Fault> {
    let bytes = BASE64.decode(text).map_err(|error| {
        edited(
            format!("{record}: {field}"),
            format!("is not base64: {error}"),
        )
    })?;
    Ok(OsString::from_vec(bytes))
}

/// Tools do not write such a record, so it was edited.
pub(crate) fn edited(location: impl Into<String>, problem: impl Into<String>) -> Fault {
    Fault::data(location, problem).fix(
        "correct the edited records as dgl-tools-records(5) describes them, or create the \
             stream again",
    )
}
