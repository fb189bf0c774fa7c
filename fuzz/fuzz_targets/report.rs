//! Any bytes as the records of a run: no panic; and what is taken becomes a whole page that loads
//! nothing and runs nothing.
#![no_main]

use dgl_report::page::page;
use dgl_report::plan::{JobHistory, run};
use libfuzzer_sys::fuzz_target;
use record::jsonl::{Head, Stream};
use verdict::Run;

fuzz_target!(|data: &[u8]| {
    for lines in [0, 3] {
        let mut records = Run::new(lines);
        let add = |head: &Head, text: &[u8]| records.record(head, text);
        if Stream::read_lines(data, true, &|_| Ok(()), add).is_err() {
            return;
        }
        let Ok(job) = JobHistory::of(&records) else {
            return;
        };
        let page = page(&run(&job, lines));
        assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>"));
        // in text a quotation mark is written otherwise
        assert!(
            !page.contains("<script") && !page.contains("src=\"") && links_stay_within(&page),
            "{page}"
        );
    }
});

/// Whether every link of the page leads to a place in the page itself.
fn links_stay_within(page: &str) -> bool {
    page.split("href=\"")
        .skip(1)
        .all(|link| link.starts_with('#'))
}
