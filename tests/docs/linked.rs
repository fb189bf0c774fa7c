//! What is linked: into the program for hosts, and under which licences. And macros that end a tool
//! whose output nobody reads.

use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use support::{executable, root, scratch, sh};

#[test]
fn what_links_ssh_or_clap_does_not_go_to_hosts() {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "-p", "host-agent"])
        .args(["-e", "normal", "--prefix", "none", "--format", "{p}"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(tree.status.success(), "{tree:?}");
    let tree = String::from_utf8(tree.stdout).unwrap();
    let is_linked = |name: &&str| {
        tree.lines()
            .any(|line| line.split(' ').next() == Some(*name))
    };
    let unwanted = "ssh2 libssh2-sys openssl-sys clap cli remote launcher verdict";
    let linked: Vec<&str> = unwanted.split(' ').filter(is_linked).collect();
    assert!(linked.is_empty(), "host-agent links {linked:?}");
    assert!(is_linked(&"wire"), "{tree}");
}

/// The words of a list in deny.toml.
fn listed_in_deny(name: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("deny.toml")).unwrap();
    let list = text.split_once(&format!("\n{name} = [")).unwrap().1;
    let list = list.split_once(']').unwrap().0;
    let words = list.split('"').skip(1).step_by(2);
    words.map(str::to_owned).collect()
}

/// Whether the licences that are allowed satisfy an SPDX expression. AND binds closer than OR, and
/// old manifests have a slash for OR.
fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let text = expression.replace('/', " OR ");
    let Some((before, rest)) = text.split_once('(') else {
        let of_all = |all: &str| all.split(" AND ").all(|one| allowed.contains(one.trim()));
        return text.split(" OR ").any(of_all);
    };
    let (inner, after) = rest.split_once(')').unwrap();
    let word = if is_allowed(inner, allowed) {
        "MIT"
    } else {
        "none"
    };
    is_allowed(&format!("{before}{word}{after}"), allowed)
}

#[test]
fn dependencies_have_permissive_licences_and_come_from_the_registry() {
    let targets = listed_in_deny("targets");
    let mut command = Command::new(env!("CARGO"));
    // not --offline: crates of the other target may not have been fetched yet
    command.args(["metadata", "--locked", "--format-version", "1"]);
    for target in &targets {
        command.args(["--filter-platform", target]);
    }
    let metadata = command.current_dir(root()).output().unwrap();
    let errors = String::from_utf8_lossy(&metadata.stderr);
    assert!(metadata.status.success(), "{errors}");
    let metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let allowed = listed_in_deny("allow");
    assert!(allowed.contains("MIT"), "{allowed:?}");
    let mut wrong = Vec::new();
    for package in metadata["packages"].as_array().unwrap() {
        let name = &package["name"];
        if package["source"].is_null() {
            let dependencies = package["dependencies"].as_array().unwrap();
            let wild = |one: &&Value| one["req"] == "*" && one["path"].is_null();
            wrong.extend(
                dependencies
                    .iter()
                    .filter(wild)
                    .map(|one| format!("{name} takes any version of {}", one["name"])),
            );
            continue;
        }
        let source = &package["source"];
        if source != "registry+https://github.com/rust-lang/crates.io-index" {
            wrong.push(format!("{name} comes from {source}"));
        }
        let licence = package["license"].as_str().unwrap_or("none");
        if !is_allowed(licence, &allowed) {
            wrong.push(format!("{name} has the licence {licence}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn licences_are_read_as_spdx_has_them() {
    let allowed = BTreeSet::from(["MIT".to_owned(), "Zlib".to_owned()]);
    let table = [
        ("MIT", true),
        ("GPL-3.0", false),
        ("GPL-3.0 OR MIT", true),
        ("GPL-3.0/MIT", true),
        ("MIT AND GPL-3.0", false),
        ("MIT AND GPL-3.0 OR Zlib", true),
        ("(MIT OR GPL-3.0) AND Zlib", true),
        ("(MIT OR Zlib) AND GPL-3.0", false),
        ("Apache-2.0 WITH LLVM-exception OR GPL-3.0", false),
    ];
    for (expression, expected) in table {
        assert_eq!(is_allowed(expression, &allowed), expected, "{expression}");
    }
}

/// A cargo without `deny`, as where cargo-deny is not installed.
#[test]
fn make_deny_fails_where_it_checks_nothing() {
    let folder = scratch();
    executable(&folder, "cargo", "#!/bin/sh\nexit 101\n");
    let make = format!("PATH=$PWD:$PATH exec make -C '{}' deny", root().display());
    sh(&folder, &make)
        .ends(2)
        .err_has("cargo install cargo-deny");
}

/// `eprintln!` panics where nobody reads stderr any longer, which would end a tool and its job;
/// `record::tell!` does not. What host-agent prints goes to whoever has started it for that alone.
#[test]
fn slow_no_tool_ends_because_nobody_reads_what_it_says() {
    let script = r#"for src in common/*/src tools/*/src; do
            macros='\be?print(ln)?!'
            case $src in */host-agent/*) macros='eprint(ln)?!' ;; esac
            for file in $(find $src -name '*.rs'); do
                sed -e '/^#\[cfg(test)\]$/,$d' -e 's,//.*,,' $file | grep -nE "$macros" |
                    sed "s,^,$file:,"
            done
        done"#;
    let found = sh(&root(), script);
    assert_eq!((found.out.as_str(), found.err.as_str()), ("", ""));
}
