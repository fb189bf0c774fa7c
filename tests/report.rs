//! dgl-report: the records of real runs as a page, looked at by a real browser.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test that cannot go on fails

use std::path::Path;
use std::process::Command;
use support::{partition, scratch, sh};

/// A job of two trainers on this machine, of which the second fails with some words; its records in job.jsonl. Two jobs of one name do not
/// run at the same time.
fn failed_job(folder: &Path, job: &str) {
    partition(folder, 1);
    std::fs::write(folder.join("ip.txt"), "127.0.0.1\n").unwrap();
    let script = format!(
        "ipconf-check ip.txt | part-map --part-config out/g.json --workspace '{}' | part-push --connect local 2>/dev/null |
         dgl-env --num-trainers 2 -- sh -c 'echo \"<b>loss\" 1; sleep 0.5; [ \"$RANK\" != 1 ] || exit 7; sleep 60' | dgl-spawn --connect local --job {job} >job.jsonl",
        folder.join("ws").display()
    );
    assert_eq!(sh(folder, &script).status, 7);
}

#[test]
fn a_page_that_needs_nothing_beside_it() {
    let folder = scratch("report");
    failed_job(&folder, "try");
    let page = sh(&folder, "dgl-report job.jsonl");
    assert_eq!(page.status, 0, "{}", page.err);
    for part in ["try: failed", "exit status 7", "trainer 1: exited with status 7", "&lt;b&gt;loss 1", "there already"] {
        assert!(page.out.contains(part), "{part}: {}", page.out);
    }
    for outside in ["http", "src=", "href=", "url(", "@import"] {
        assert!(!page.out.contains(outside), "{outside}");
    }
    assert_eq!(sh(&folder, "head -n 7 job.jsonl | dgl-report | grep -c 'the records break off'").status, 0);
    assert!(!sh(&folder, "dgl-report --lines 0 job.jsonl").out.contains("its last lines"));
    assert_eq!(sh(&folder, "dgl-report </dev/null").status, 65);
    assert_eq!(sh(&folder, "dgl-report none.jsonl").status, 74);
}

#[test]
fn a_browser_draws_every_process() {
    let folder = scratch("report-browser");
    if Command::new("chromium").arg("--version").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "no chromium");
        println!("skipped: no chromium here");
        return;
    }
    failed_job(&folder, "drawn");
    // what the browser made of the page: the width of each bar, and where the first failure stands
    let script = r"<script>document.title = [...document.querySelectorAll('.row .bar')].map(bar => bar.className + ' ' +
        Math.round(bar.getBoundingClientRect().width)).join(';') + '|' + document.documentElement.scrollWidth</script>";
    let page = sh(&folder, "dgl-report job.jsonl").out + script;
    std::fs::write(folder.join("page.html"), page).unwrap();
    let browser = "chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking \
                   --disable-component-update --disable-sync --user-data-dir=browser --window-size=1200,900";
    let drawn = sh(&folder, &format!("{browser} --dump-dom \"file://$PWD/page.html\" 2>/dev/null | grep -o '<title>[^<]*'"));
    let (bars, page_width) = drawn.out.trim().trim_start_matches("<title>").split_once('|').expect(&drawn.out);
    let bars: Vec<(&str, u32)> =
        bars.split(';').filter_map(|bar| bar.rsplit_once(' ')).map(|(class, width)| (class, width.parse().unwrap())).collect();
    assert_eq!(bars.len(), 3, "a server and two trainers: {bars:?}");
    assert!(bars.iter().all(|(_, width)| *width > 100), "{bars:?}");
    assert_eq!(bars.iter().filter(|(class, _)| class.contains("culprit")).count(), 1, "{bars:?}");
    assert!(page_width.parse::<u32>().unwrap() <= 1200, "nothing sticks out: {page_width}");
}

/// Records are edited, cut, joined, or come from a host whose clock is anywhere: there is a page all the same.
#[test]
fn any_record_gets_a_page() {
    let folder = scratch("report-any");
    failed_job(&folder, "any");
    let largest = u64::MAX;
    let edits = [
        "if .time_ms then .time_ms = 9007199254740992 else . end".to_owned(),
        "if .time_ms then .time_ms = 253402300800000 else . end".to_owned(),
        "if .type == \"started\" then .time_ms = 0 else . end".to_owned(),
        "if .type == \"exited\" then .time_ms = 0 | .elapsed_ms = 9007199254740992 else . end".to_owned(),
        "if .type == \"pushed\" then .sent_bytes = 9007199254740992 | .elapsed_ms = 0 else . end".to_owned(),
        "if .type == \"summary\" then .elapsed_ms = 9007199254740992 | .first_failure = {host: 99, id: 99} else . end".to_owned(),
        "if .type == \"process\" then .host = 99 else . end".to_owned(),
        "select(.type != \"host\")".to_owned(),
        "select(.type != \"started\")".to_owned(),
        "., if .type == \"started\" or .type == \"exited\" or .type == \"summary\" then . else empty end".to_owned(),
    ];
    for edit in edits {
        std::fs::write(folder.join("edit.jq"), &edit).unwrap();
        let page = sh(&folder, "jq -c -f edit.jq job.jsonl | dgl-report");
        assert!(page.status == 0 && page.out.ends_with("</html>"), "{edit}: {} {}", page.status, page.err);
    }
    // jq would change it
    let page = sh(&folder, &format!("sed -E 's/(_ms|_bytes)\":[0-9]+/\\1\":{largest}/' job.jsonl | dgl-report"));
    assert!(page.status == 0 && page.out.ends_with("</html>"), "{} {}", page.status, page.err);
}
