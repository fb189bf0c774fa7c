//! Formats a verdict for people.

use crate::findings::{Conclusion, JobFinding, RunOutcome};
use record::term;
use std::time::Duration;

/// The verdict, the records that show it if `has_records`, and other unusual facts.
pub fn text(verdict: &Conclusion, has_records: bool) -> String {
    let mut text = format!("The job {}: ", verdict.outcome.words());
    show(&mut text, &verdict.cause, verdict.began_ms, has_records);
    for other in &verdict.others {
        text += "Also: ";
        show(&mut text, other, verdict.began_ms, has_records);
    }
    if verdict.outcome == RunOutcome::Finished && verdict.others.is_empty() {
        text += "Nothing unusual.\n";
    }
    text
}

fn show(text: &mut String, finding: &JobFinding, began_ms: Option<u64>, has_records: bool) {
    let stop = if finding.text.ends_with(['.', '?', '!', '…']) {
        ""
    } else {
        "."
    };
    *text += &format!("{}{stop}\n", term::plain(&finding.text));
    if let Some(since) = since(finding, began_ms) {
        *text += &format!("  since: {since}\n");
    }
    for (index, record) in finding.evidence.iter().filter(|_| has_records).enumerate() {
        let label = if index == 0 {
            "shown by: "
        } else {
            "          "
        };
        *text += &format!("  {label}{}\n", term::plain(record));
    }
    if let Some(fix) = &finding.fix {
        *text += &format!("  fix: {}\n", term::plain(fix));
    }
}

/// The beginning of a finding in words: `12.3 s after the start`.
pub fn since(finding: &JobFinding, began_ms: Option<u64>) -> Option<String> {
    let after = finding.since_ms?.checked_sub(began_ms?)?;
    let after = term::seconds(Duration::from_millis(after));
    Some(format!("{after} after the start"))
}
