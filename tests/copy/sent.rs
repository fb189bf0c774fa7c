//! part-push: what goes over the wire: no zeros, and little over a slow link;
//! ../cases/slow_part_push.txt has what differs and what is compressed.

use crate::lab::{Lab, of_size, tree};
use crate::local::{assert_arrived, map, ours, plan, push, pushed};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use support::{noise, read, scratch, sh, write};

/// A record's content may be as large as a record; hosts that share a directory find it there.
#[test]
fn large_content_of_a_record_is_there_for_all_hosts_and_is_not_sent_again() {
    let folder = scratch();
    write(&folder, "ip.txt", "10.77.0.1\n10.77.0.2\n");
    let content = "0123456789abcde\n".repeat(2 << 16);
    let bytes = content.len();
    let ws = folder.join("ws");
    let record = serde_json::json!({
        "type": "file", "id": 0, "of": 1, "kind": "extra", "content": content, "bytes": bytes,
        "dst": ws.join("made"), "mode": 0o644,
    });
    write(&folder, "record", format!("{record}\n"));
    let map = "ipconf-check ip.txt | part-map --workspace \"$PWD/ws\" --extra ip.txt | \
               grep -v '\"type\":\"file\"' >plan.jsonl; cat record >>plan.jsonl";
    sh(&folder, map).ends(0);
    for sends in [true, false] {
        let ran = push(&folder, "--wire ssh");
        ran.ends(0)
            .err_has("host 1 (10.77.0.2): nothing to copy: 1 file is there already");
        let sent: u64 = pushed(&ran.out).iter().map(|(_, sent, _)| sent).sum();
        assert_eq!(sent > 0, sends, "{}", ran.out.len());
        assert_eq!(read(&ws, "made"), content);
    }
}

/// An empty file, which goes alone because of its long name.
#[test]
fn nothing_to_compress() {
    let folder = plan(&[(&"n".repeat(100), Vec::new())]);
    push(&folder, "--compress always").ends(0);
    assert_arrived(&folder);
}

/// Room on the disk that a file takes.
fn room(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

#[test]
fn slow_zeros_are_not_sent_and_holes_stay_holes() {
    // zeros at the beginning, in between and at the end
    let folder = plan(&[("small", noise(2, 5000))]);
    let large = fs::File::create(folder.join("src/large")).unwrap();
    for (at, seed) in [(20 << 20, 3), ((40 << 20) + 777, 4)] {
        std::os::unix::fs::FileExt::write_all_at(&large, &noise(seed, 1 << 20), at).unwrap();
    }
    large.set_len((64 << 20) + 5).unwrap();
    drop(large);
    map(&folder);
    for options in [
        "",
        "--compress always",
        "--compress never --connect 'env A=b'",
    ] {
        let _ = fs::remove_dir_all(folder.join("ws"));
        let ran = push(&folder, options);
        ran.ends(0);
        assert_arrived(&folder);
        let sent: u64 = pushed(&ran.out).iter().map(|(_, sent, _)| sent).sum();
        assert!(sent < 5 << 20, "{options}: {sent}");
        let there = room(&folder.join("ws/src/large"));
        assert!(there < 8 << 20, "{options}: {there}");
    }
    let pull = "ipconf-check ip.txt | DGL_TOOLS_CONNECT=local part-pull --workspace $PWD/ws --to \
                back src";
    sh(&folder, pull).ends(0);
    assert!(tree(&folder.join("back/src")) == tree(&folder.join("src")));
    let here = room(&folder.join("back/src/large"));
    assert!(here < 8 << 20, "{here}");
}

/// No room is taken for what is a hole, and none is asked for.
#[test]
fn slow_a_sparse_file_larger_than_the_room_on_disk_arrives_and_comes_back() {
    let folder = plan(&[("small", noise(2, 5000))]);
    let free = sh(&folder, "echo $(($(stat -f -c '%f * %S' .)))").out;
    let length = free.trim().parse::<u64>().unwrap() + (1 << 30);
    let large = fs::File::create(folder.join("src/large")).unwrap();
    let end = noise(3, 100_000);
    std::os::unix::fs::FileExt::write_all_at(&large, &end, length - 100_000).unwrap();
    drop(large);
    map(&folder);
    push(&folder, "").ends(0);
    let pull = "ipconf-check ip.txt | DGL_TOOLS_CONNECT=local part-pull --workspace $PWD/ws --to \
                back src";
    sh(&folder, pull).ends(0);
    for location in ["ws/src/large", "back/src/large"] {
        let path = folder.join(location);
        assert!(room(&path) < 8 << 20, "{location}: {}", room(&path));
        let arrived = fs::File::open(&path).unwrap();
        assert_eq!(arrived.metadata().unwrap().len(), length, "{location}");
        let mut tail = vec![0; end.len()];
        let at = length - end.len() as u64;
        std::os::unix::fs::FileExt::read_exact_at(&arrived, &mut tail, at).unwrap();
        assert!(tail == end, "{location}: other bytes arrived");
    }
}

/// What is asked of a host stands on lines that can be typed by hand; a file of more than 2^32
/// bytes.
#[test]
fn offsets_beyond_32_bits() {
    let folder = scratch();
    let ws = folder.join("ws").display().to_string();
    let key = "0123456789abcdef.0123456789abcdef";
    let steps = [
        format!(r#"{{"do":"file","step":"receive","base":"{ws}","run":"r","host":0}}"#),
        format!(
            "{{\"do\":\"file\",\"step\":\"open\",\"id\":3,\"dst\":\"{ws}/far\",\
             \"size\":5242880005,\"mode\":420,\"key\":\"{key}\",\"keep\":[[65536,131072]]}}"
        ),
        // the sum of `hello`
        concat!(
            r#"{"do":"file","step":"write","id":3,"offset":5242880000,"length":5,"#,
            r#""sum":"b5e9c1ad071b3e7fc779cfaa5e523818""#,
            r#","bytes":5}"#
        )
        .to_owned(),
        concat!(
            r#"hello{"do":"file","step":"write","id":3,"offset":5242880001,"length":5,"#,
            r#""sum":"b5e9c1ad071b3e7fc779cfaa5e523818""#,
            r#","bytes":5}"#
        )
        .to_owned(),
        r#"hello{"do":"file","step":"sync","number":9}"#.to_owned(),
    ];
    write(&folder, "steps", steps.join("\n") + "\n");
    let ran = sh(
        &folder,
        &format!(
            "mkfifo in; host-agent <in >out & exec 3>in; cat steps >&3
        until grep -q synced out; do sleep 0.1; done
        stat -c %s ws/.part-push.r.0/part.{key}; tail -c 6 ws/.part-push.r.0/part.{key} | od -An \
            -c; exec 3>&-; wait $!; cat out"
        ),
    );
    ran.out_has("5242880005\n  \\0   h   e   l   l   o\n");
    // what lies behind the end of the file is refused, and what came before stays
    ran.out_has(r#""failed":[[3,"out_of_order"]]"#)
        .out_has(r#""kind":"synced","number":9"#);
    assert!(
        ours(&folder.join("ws")).is_empty(),
        "what is not worth keeping goes with the agent"
    );
}

/// A slow disk must not look like a host that is silent; and no more is read than was asked for.
#[test]
fn a_host_that_sums_up_a_large_file_reports_that_it_reads() {
    let folder = scratch();
    let ws = folder.join("ws").display().to_string();
    let bytes = (1_u64 << 30) + 5;
    let inspect = |most: u64| {
        let names = format!("{ws}/large\0");
        let length = names.len();
        format!(r#"{{"do":"file","step":"inspect","sums":{most},"bytes":{length}}}"#)
            + "\n"
            + &names
    };
    let receive =
        format!(r#"{{"do":"file","step":"receive","base":"{ws}","run":"r","host":0,"dry":true}}"#);
    let sync = r#"{"do":"file","step":"sync","number":9}"#;
    let steps = format!(
        "{receive}\n{}{}{sync}\n",
        inspect(bytes - 1),
        inspect(bytes)
    );
    write(&folder, "steps", steps);
    let ran = sh(
        &folder,
        &format!(
            "mkdir ws; truncate -s {bytes} ws/large; mkfifo in; host-agent <in >out & exec 3>in
        cat steps >&3; until grep -q synced out; do sleep 0.1; done; exec 3>&-; wait $!; cat out"
        ),
    );
    let kinds: Vec<&str> = ran
        .out
        .lines()
        .filter_map(|line| line.split(r#""kind":""#).nth(1)?.split('"').next())
        .collect();
    assert_eq!(
        kinds,
        ["ready", "there", "read", "there", "synced"],
        "{}",
        ran.out
    );
    ran.out_has_times(r#""sum":"#, 1);
}

const LARGE: usize = 40 << 20;

/// What left this machine of the large file, for all hosts.
fn large_sent(out: &str) -> u64 {
    of_size(out, LARGE).iter().map(|(.., sent)| sent).sum()
}

#[test]
fn real_hosts_behind_a_slow_link_get_what_shrinks_compressed() {
    let lab = Lab::up(3, "50mbit", &b"0 1 2 3 4 5 6 7\n".repeat(LARGE / 16));
    let ran = lab.push("");
    ran.ends(0);
    let sent = large_sent(&ran.out);
    // the first 4 MiB show how slow it is
    assert!((4 << 20..6 << 20).contains(&sent), "{sent}");
    for host in [2, 3] {
        assert!(lab.has(host), "host {host}");
    }
}
