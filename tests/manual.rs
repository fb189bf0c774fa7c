//! What users read: `--help` and the manual pages.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test that cannot go on fails

use support::{scratch, sh};

#[test]
fn every_flag_is_in_the_help() {
    let folder = scratch("help");
    for tool in ["ipconf-check", "host-probe", "part-map", "part-push", "dgl-env", "dgl-spawn", "dgl-reap"] {
        let help = sh(&folder, &format!("{tool} --help"));
        assert!(help.status == 0 && help.out.contains("Examples:"), "{tool}: {}{}", help.out, help.err);
        assert_eq!(sh(&folder, &format!("{tool} --version")).status, 0);
    }
}
