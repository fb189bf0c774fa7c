//! How versions of Python and its packages are written.

/// Major, minor, patch.
pub type Version = (u32, u32, u32);

/// `3.11` of `3.11.2`: what is pickled or compiled for one patch release fits all.
pub fn minor(version: &str) -> &str {
    let mut dots = version.match_indices('.').map(|(at, _)| at);
    dots.nth(1).map_or(version, |second| &version[..second])
}

/// Parses a version of Python or of a package: `1.0.4`, `0.6.0post1`, `1.13.0+cu117`; `None` for
/// `unknown`.
pub fn version(text: &str) -> Option<Version> {
    let mut numbers = text.split('.').map(|part| {
        let digits = part
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(part.len());
        part[..digits].parse().ok()
    });
    Some((
        numbers.next()??,
        numbers.next()??,
        numbers.next().flatten().unwrap_or(0),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        let table = [
            ("1.0.4", Some((1, 0, 4))),
            ("0.6.0post1", Some((0, 6, 0))),
            ("1.13.0+cu117", Some((1, 13, 0))),
            ("2.4", Some((2, 4, 0))),
            ("2.4.dev3", Some((2, 4, 0))),
            ("unknown", None),
            ("", None),
            ("99999999999.1", None),
        ];
        for (text, parsed) in table {
            assert_eq!(version(text), parsed, "{text}");
        }
    }
}
