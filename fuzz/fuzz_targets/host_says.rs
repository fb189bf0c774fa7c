//! Any bytes as what a host says of its files, and as text on its way to a terminal: no panic; what is taken was asked for, and nothing is
//! left that a terminal obeys.
#![no_main]

use common::listing::{parse_look, parse_sums, same_time};
use common::term::{coloured, plain};
use libfuzzer_sys::fuzz_target;
use std::path::Path;

const NAMES: [&str; 3] = ["/w/a", "/w/two\nlines", "/w/z"];

fuzz_target!(|data: &[u8]| {
    let names = || NAMES.map(Path::new).into_iter();
    assert_eq!(parse_sums(data, names()).len(), NAMES.len());
    let there = parse_look(data, names());
    assert_eq!(there.len(), NAMES.len());
    for stat in there.into_iter().flatten().filter_map(|there| there.stat) {
        assert!(stat.mtime.1 < 1_000_000_000);
        let _ = (stat.time(), same_time(stat.mtime, (0, 0)), same_time((0, 0), stat.mtime));
    }

    let text = String::from_utf8_lossy(data);
    let shown = plain(&text);
    assert!(!shown.contains(char::is_control));
    assert_eq!(plain(&shown), shown, "once is enough");

    let line = coloured(data);
    assert_eq!(coloured(&line), line, "once is enough");
    for sequence in line.split(|byte| *byte == 0x1b).skip(1) {
        let end = sequence.iter().position(|byte| !(byte.is_ascii_digit() || b"[;:".contains(byte)));
        assert_eq!(end.map(|end| sequence[end]), Some(b'm'), "a colour");
    }
});
