//! The score of dgl-why on benchmark/, whose README.md explains it. `make benchmark` prints it.

#![allow(clippy::unwrap_used, clippy::panic)] // a test that cannot go on fails

use support::{root, scratch, sh};

#[test]
fn slow_the_benchmark_has_its_score() {
    let folder = scratch();
    if sh(&folder, "python3 --version").status != 0 {
        println!("skipped: no python3 here");
        return;
    }
    // it writes logs beside the cases
    let copy = format!("cp -R '{}' .", root().join("benchmark").display());
    let ran = sh(&folder, &format!("{copy} && python3 benchmark/score.py"));
    assert_eq!(ran.status, 0, "{}", ran.err);
    println!("{}", ran.out);
    // `all   94 of 107   104 of 107    94 of 106    15 of  15    86 of 107      0       1`
    let figures = |group: &str| -> Vec<u32> {
        let line = ran.out.lines().find_map(|line| line.strip_prefix(group));
        let words = line.unwrap().split_whitespace();
        words.filter_map(|word| word.parse().ok()).collect()
    };
    let [
        who,
        _,
        why,
        _,
        fix,
        _,
        healthy,
        all_healthy,
        whole,
        _,
        wrong,
        beside,
    ] = figures("all  ")[..]
    else {
        panic!("{}", ran.out);
    };
    assert!(
        who >= 94 && why >= 104 && fix >= 94 && whole >= 86,
        "{}",
        ran.out
    );
    assert_eq!((healthy, wrong), (all_healthy, 0), "{}", ran.out);
    assert!(beside <= 1, "{}", ran.out);
}
