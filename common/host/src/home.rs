//! The home of this user.

use std::env;
use std::path::{Path, PathBuf};

/// Replaces a leading `~` by this user's home.
pub fn at_home(path: impl AsRef<Path>) -> PathBuf {
    let path = path.as_ref();
    match (path.strip_prefix("~"), env::var_os("HOME")) {
        (Ok(below), Some(home)) => Path::new(&home).iter().chain(below).collect(),
        _ => path.to_owned(),
    }
}
