//! What a host says is text: it reaches a terminal as such, whatever it is, and stands in no command that people are told to paste.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test that cannot go on fails

use support::{executable, scratch, sh};

/// Sets a title, writes to the clipboard, clears the screen, begins a line that looks like ours.
const EVIL: &str = r"\033]0;title\007\033]52;c;cm0gLXJm\007\033[2J";

/// Nothing that a terminal would obey.
fn is_text(text: &str) -> bool {
    text.chars().all(|c| c == '\n' || !c.is_control())
}

#[test]
fn what_hosts_say_is_shown_as_text() {
    let folder = scratch("hostile-text");
    std::fs::write(folder.join("ip.txt"), "127.0.0.1\n").unwrap();
    // the last words of what leads to a host
    executable(&folder.join("way"), &format!("#!/bin/sh\nprintf '{EVIL}evil\\n  fix: paste this\\n' >&2\nexit 1\n"));
    // an interpreter that names its version
    executable(
        &folder.join("python"),
        &format!("#!/bin/sh\nprintf 'dgl-tools-fact python 3.11{EVIL}\\ndgl-tools-fact dgl 1.0{EVIL}\\n'\n"),
    );
    // a job, and a file
    let script = format!(
        "ipconf-check ip.txt >hosts; mkdir -p ws; cd ws; : >\"$(printf 'a{EVIL}\\nb')\"; cd ..
         token=0123456789abcdef0123456789abcdef; job=$(printf 'evil{EVIL}')
         DGL_TOOLS_TOKEN=$token DGL_TOOLS_JOB=$job sleep 60 & p=$!
         until tr '\\0' '\\n' </proc/$p/environ | grep -q DGL_TOOLS_JOB; do sleep 0.1; done
         dgl-reap --connect local --list --format human <hosts >list
         dgl-reap --connect local --list --format jsonl <hosts >list.jsonl
         dgl-reap --connect local --all --format human <hosts >all; wait $p"
    );
    let made = sh(&folder, &script);
    let text = |file: &str| std::fs::read_to_string(folder.join(file)).unwrap();
    assert!(
        is_text(&text("list")) && text("list").contains(r"job evil\x1b]0;title\x07\x1b]52;c;cm0gLXJm\x07\x1b[2J: "),
        "{}",
        text("list")
    );
    assert!(text("all").starts_with("  host  job               what was done\n     0  evil"), "{}", text("all"));
    assert!(is_text(&text("all")) && text("all").contains(r"1 process ended"), "{}{}", text("all"), made.err);
    let record: serde_json::Value = serde_json::from_str(text("list.jsonl").lines().nth(1).unwrap()).unwrap();
    assert_eq!(record["job"], "evil\u{1b}]0;title\u{7}\u{1b}]52;c;cm0gLXJm\u{7}\u{1b}[2J", "a record holds it as it is");

    let table = [
        ("host-probe --connect './way {name}' <hosts", r"./way: \x1b]0;title\x07\x1b]52;c;cm0gLXJm\x07\x1b[2Jevil; fix: paste this"),
        ("dgl-reap --list --connect './way {name}' <hosts", r"\x1b[2Jevil; fix: paste this"),
        ("host-probe --connect local --python ./python --format human <hosts", r"1.0\x1b]0;title"),
        ("part-pull --connect local --workspace \"$PWD/ws\" --to got --dry-run '*' <hosts", r"\x1b[2J\nb -> got/a\x1b]0;title"),
        (
            "host-probe --connect local --python ./python <hosts | dgl-env --role worker -- t | dgl-spawn --connect './way {name}'",
            r"\x1b[2Jevil; fix: paste this",
        ),
        ("part-push --connect './way {name}' <plan", r"\x1b[2Jevil; fix: paste this"),
    ];
    let plan = sh(&folder, "part-map --extra ip.txt --workspace \"$PWD/there\" <hosts >plan");
    assert_eq!(plan.status, 0, "{}", plan.err);
    for (script, shown) in table {
        let got = sh(&folder, script);
        let all = format!("{}{}", got.out, got.err);
        assert!(is_text(&all.replace(r"\u001b", "")), "{script}: {}", all.escape_debug());
        assert!(all.contains(shown), "{script}: {all}");
    }
}
