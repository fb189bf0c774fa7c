//! The score of dgl-why on benchmark/, whose README.md explains it. `make benchmark` prints it.

#![allow(clippy::unwrap_used, clippy::panic)] // a test that cannot go on fails

use support::{advises_these_tools, root, scratch, sh};

#[test]
fn slow_the_benchmark_has_its_score() {
    let folder = scratch();
    if sh(&folder, "python3 --version").status != 0 {
        return support::skipped!("no python3 here");
    }
    // it writes logs beside the cases
    let copy = format!("cp -R '{}' .", root().join("benchmark").display());
    let score = "python3 benchmark/score.py --answers answers";
    let ran = sh(&folder, &format!("{copy} && {score}"));
    assert_eq!(ran.status, 0, "{}", ran.err);
    for answer in std::fs::read_dir(folder.join("answers")).unwrap() {
        let answer = answer.unwrap();
        let said = std::fs::read_to_string(answer.path()).unwrap();
        // not what it says: the case may be sealed
        assert!(!advises_these_tools(&said), "{:?}", answer.file_name());
    }
    println!("{}", ran.out);
    // `all  107 of 117   114 of 117   103 of 115    15 of  15    98 of 117      0       1`
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
        who >= 107 && why >= 114 && fix >= 103 && whole >= 98,
        "{}",
        ran.out
    );
    assert_eq!((healthy, wrong), (all_healthy, 0), "{}", ran.out);
    assert!(beside <= 1, "{}", ran.out);
}
