//! Notices for users about agents that dialed in unexpectedly, each printed once.

use super::lobby::Census;

/// Nobody reads the names of 500 hosts.
const NAMED: usize = 5;

/// What was printed already.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    told: Census,
}

impl Notices {
    /// The lines for what is new.
    pub(crate) fn of(&mut self, census: &Census) -> Vec<String> {
        let mut lines = Vec::new();
        let fresh = |all: &[String], told: &[String]| -> Vec<String> {
            all.iter()
                .filter(|one| !told.contains(one))
                .cloned()
                .collect()
        };
        let unasked = fresh(&census.unasked, &self.told.unasked);
        if !unasked.is_empty() {
            lines.push(format!(
                "dialed in, and nobody asked for it: {}; what waits there ends with this tool",
                names(&unasked)
            ));
        }
        // two agents of one host have the same name
        let twice = &census.twice[self.told.twice.len().min(census.twice.len())..];
        if !twice.is_empty() {
            lines.push(format!(
                "dialed in twice: {}; the first one serves; the command should start one agent \
                 on each host",
                names(twice)
            ));
        }
        let strangers = census.turned_away - self.told.turned_away.min(census.turned_away);
        if let (1.., Some(from)) = (strangers, census.last_from) {
            lines.push(format!(
                "{} without the secret of this run, the last from {from}; nothing was told there",
                record::term::count(strangers, "connection")
            ));
        }
        self.told = census.clone();
        lines
    }
}

fn names(all: &[String]) -> String {
    let shown = all[..all.len().min(NAMED)].join(", ");
    match all.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thing_is_told_once() {
        let mut notices = Notices::default();
        let mut census = Census::default();
        assert!(notices.of(&census).is_empty());
        census.unasked = (1..=7).map(|k| format!("n{k}")).collect();
        census.twice = vec!["n9 (10.0.0.9)".to_owned(), "n9 (10.0.0.9)".to_owned()];
        census.turned_away = 2;
        census.last_from = Some([10, 0, 0, 66].into());
        let lines = notices.of(&census);
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(
            lines[0].contains("n1, n2, n3, n4, n5 and 2 more;"),
            "{lines:?}"
        );
        assert!(
            lines[1].starts_with("dialed in twice: n9 (10.0.0.9), n9"),
            "{lines:?}"
        );
        assert!(
            lines[2].starts_with("2 connections without the secret of this run"),
            "{lines:?}"
        );
        assert!(notices.of(&census).is_empty());
        census.turned_away = 3;
        assert!(notices.of(&census)[0].starts_with("1 connection "));
    }
}
