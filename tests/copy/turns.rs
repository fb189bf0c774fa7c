//! part-push: several pushes to the same workspaces, and what an earlier one left.

use crate::lab::tree;
use crate::local::{begin, begin_with, map, ours, plan, push, pushed, signal, slow_way};
use serde_json::json;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};
use support::{
    command, executable, host_record, make_folder, noise, path, ran, sh, soon, write, write_records,
};

#[test]
fn slow_two_pushes_into_one_workspace_do_not_mix() {
    let first = plan(&[
        ("a", noise(1, 20 << 20)),
        ("b", noise(2, 1000)),
        ("c", noise(3, 20 << 20)),
    ]);
    let second = plan(&[
        ("a", noise(4, 20 << 20)),
        ("b", noise(5, 1000)),
        ("c", noise(6, 20 << 20)),
    ]);
    let ws = first.join("ws");
    sh(
        &second,
        &format!(
            "sed -i 's,{}/ws,{},' plan.jsonl",
            second.display(),
            ws.display()
        ),
    );
    // each begins while the one before it has sent a half
    slow_way(&first, 20_000_000);
    let one = begin(&first, "--connect './way env'");
    soon("the first is at work", || first.join("half").exists());
    let two = begin(&second, "2>two.err");
    soon("the second waits", || {
        fs::read_to_string(second.join("two.err"))
            .is_ok_and(|said| said.contains("another push is at work in "))
    });
    write(&first, "on", "");
    for push in [one, two] {
        ran(push.wait_with_output().unwrap()).ends(0);
    }
    assert!(
        tree(&ws.join("src")) == tree(&second.join("src")),
        "the second waits for the first, and is the last"
    );

    // one that was stopped makes way when its host has missed it for long
    for file in ["way.log", "half", "on"] {
        fs::remove_file(first.join(file)).unwrap();
    }
    let one = begin_with(&first, "DGL_TOOLS_TEST_SILENCE=3", "--connect './way env'");
    soon("the first is at work again", || first.join("half").exists());
    signal(&one, "-STOP");
    let two = push(&second, "");
    signal(&one, "-CONT");
    write(&first, "on", "");
    two.ends(0)
        .err_has("another push is at work in ")
        .err_has("; waiting for its end");
    assert_ne!(ran(one.wait_with_output().unwrap()).status, 0);
    assert!(
        tree(&ws.join("src")) == tree(&second.join("src")),
        "the one that was stopped has changed nothing since"
    );
    // what had arrived, for the next push of that file
    assert_eq!(ours(&ws), [".part-push.kept"]);
}

#[test]
fn a_push_that_replaces_files_below_a_running_job_names_it() {
    let folder = plan(&[("a", noise(1, 1000)), ("b", noise(2, 1000))]);
    push(&folder, "").ends(0);
    let job = format!("runs-{}", std::process::id());
    let start = |role: &str, cwd: &Path| {
        let process = json!({"type": "process", "id": 0, "of": 1, "host": 0, "ip": "127.0.0.1",
            "role": role, "rank": 0, "cwd": cwd, "env": {"DGL_ROLE": role},
            "argv": ["sh", "-c", format!(": >{}/up; sleep 60", folder.display())]});
        let records = [host_record(0, 1, "127.0.0.1"), process];
        write_records(&folder, "job.jsonl", &records);
        let spawn = format!("exec dgl-spawn --connect local --job {job} <job.jsonl >run 2>&1");
        let spawn = command("sh")
            .current_dir(&folder)
            .env("PATH", path())
            .args(["-c", &spawn])
            .spawn()
            .unwrap();
        soon("the job runs", || {
            fs::remove_file(folder.join("up")).is_ok()
        });
        spawn
    };
    let push_again = || {
        map(&folder);
        push(&folder, "")
    };
    let ws = folder.join("ws");
    fs::create_dir_all(ws.join("other/deep")).unwrap();
    // of the replaced file, src/a, only the directories above it and below its own are near
    for (case, (role, cwd, warnings)) in (0..).zip([
        ("worker", &ws.join("src"), 1),
        ("worker", &ws, 1),
        ("worker", &ws.join("src/deep"), 1),
        ("worker", &ws.join("other/deep"), 0),
        ("server", &ws, 0),
        ("worker", &folder, 0),
    ]) {
        fs::create_dir_all(cwd).unwrap();
        let mut spawn = start(role, cwd);
        let warning = format!(
            "job {job} runs in {}, where files are replaced now\n",
            ws.display()
        );
        push_again().ends(0).err_has_times(&warning, 0);
        write(&folder, format!("src/new-{case}"), "new");
        push_again().ends(0).err_has_times(&warning, 0);
        write(&folder, "src/a", format!("{role} {}", cwd.display()));
        push_again().ends(0).err_has_times(&warning, warnings);
        signal(&spawn, "-TERM");
        spawn.wait().unwrap();
    }
}

/// On a host whose file system has no locks, a push is at work all the same, and says so.
#[test]
fn slow_where_there_are_no_locks_a_warning_names_the_cure() {
    let folder = plan(&[("a", noise(1, 1000))]);
    let traced = "strace -f -o /dev/null -e trace=flock -e inject=flock:error=ENOSYS env";
    if sh(&folder, &format!("{traced} true")).status != 0 {
        return support::skipped!("no strace here");
    }
    let ws = folder.join("ws");
    push(&folder, &format!("--connect '{traced}'"))
        .ends(0)
        .err_has(&format!(
            "other hosts do not see a lock on {}",
            ws.display()
        ))
        .err_has("Function not implemented")
        .err_has("  fix: mount that file system with locks (Lustre: -o flock;");
    assert!(tree(&ws.join("src")) == tree(&folder.join("src")) && ours(&ws).is_empty());
}

/// Leads to hosts 10.77.0.1 and so on, which are all this machine, but have workspaces of their
/// own, `ws1` and so on; what the first says goes through a filter. `false` where there is no right
/// to mount.
fn with_own_workspaces(folder: &Path, hosts: u32, filter: &str) -> bool {
    for name in (1..=hosts)
        .map(|host| host.to_string())
        .chain([String::new()])
    {
        make_folder(folder, format!("ws{name}"));
    }
    let mount = "mount --bind \"ws$0\" ws && exec \"$@\"";
    let own = format!(
        "#!/bin/sh\nhost=${{1##*.}}; shift\nin_own() {{ unshare -m sh -c '{mount}' \"$host\" \
         \"$@\"; }}\n[ \"$host\" = 1 ] || in_own \"$@\"\n[ \"$host\" != 1 ] || in_own \"$@\" | \
         {filter}\n"
    );
    executable(folder, "own", &own);
    let lines: String = (1..=hosts)
        .map(|host| format!("10.77.0.{host}\n"))
        .collect();
    write(folder, "ip.txt", lines);
    map(folder);
    sh(folder, "unshare -m mount --bind ws1 ws").status == 0
}

/// Both wait for a third: each could hold some hosts and keep out the other.
#[test]
fn slow_pushes_that_wait_for_the_same_hosts_take_turns() {
    const HOSTS: u32 = 6;
    let folder = plan(&[("a", noise(1, 1 << 20))]);
    if !with_own_workspaces(&folder, HOSTS, "cat") {
        return support::skipped!("no right to mount");
    }
    let pushes = sh(
        &folder,
        "tac ip.txt | ipconf-check - | part-map --workspace \"$PWD/ws\" --extra src >down
         part-push --limit 2MB/s --connect './own {ip} env' <plan.jsonl >third 2>&1 & third=$!
         until [ -e ws6/.part-push.lock ]; do sleep 0.05; done
         part-push --connect './own {ip} env' <plan.jsonl >one 2>&1 & one=$!
         part-push --connect './own {ip} env' <down >two 2>&1 & two=$!
         for push in $third $one $two; do wait $push; echo $?; done; cat third one two >&2",
    );
    assert_eq!(pushes.out, "0\n0\n0\n", "{}", pushes.err);
    for host in 1..=HOSTS {
        let ws = folder.join(format!("ws{host}"));
        assert!(tree(&ws.join("src")) == tree(&folder.join("src")) && ours(&ws).is_empty());
    }
}

/// It would be the one that gets the file for all.
#[test]
fn slow_a_host_that_claims_the_workspaces_of_others_harms_nobody_else() {
    let folder = plan(&[("a", noise(1, 1000))]);
    let forgery = r#"sed -u 's/\("kind":"peers","hosts":\)\[0\]/\1[0,1,2]/'"#;
    if !with_own_workspaces(&folder, 3, forgery) {
        return support::skipped!("no right to mount");
    }
    push(&folder, "--wire ssh --connect './own {ip} env'").ends(0);
    for host in 1..=3 {
        let ws = folder.join(format!("ws{host}"));
        assert!(tree(&ws.join("src")) == tree(&folder.join("src")), "{host}");
    }
}

/// A host or container that was restarted has the same name, and somebody has the pid of the
/// push of old.
#[test]
fn slow_a_dead_push_is_known_whoever_has_its_pid() {
    let folder = plan(&[("large", noise(1, 40 << 20))]);
    slow_way(&folder, 20_000_000);
    let mut one = begin(&folder, "--connect './way env'");
    soon("half of it is there", || folder.join("half").exists());
    let ws = folder.join("ws");
    let stage = || {
        ours(&ws)
            .into_iter()
            .find(|name| name.ends_with(".0"))
            .map(|name| ws.join(name))
    };
    soon("much of it has arrived", || {
        let parts = stage()
            .into_iter()
            .flat_map(|stage| fs::read_dir(stage).into_iter().flatten().flatten());
        parts
            .filter_map(|part| part.metadata().ok())
            .any(|meta| meta.len() > 15 << 20)
    });
    // its power goes: nobody there cleans up, and none sees that another has gone
    let kill = "pids=; for p in /proc/[0-9]*; do case $(readlink $p/cwd) in \"$PWD\") \
        [ ${p#/proc/} = $$ ] || pids=\"$pids ${p#/proc/}\" ;; esac; done
        kill -STOP $pids; kill -KILL $pids";
    sh(&folder, kill);
    one.wait().unwrap();
    let stage = stage().expect("what it left");
    let owner = "echo \"$(cat /proc/sys/kernel/hostname) $(cat \
        /proc/sys/kernel/random/boot_id)$(readlink /proc/self/ns/pid) $PPID\"";
    write(&stage, "owner", sh(&folder, owner).out);
    let begun = Instant::now();
    let again = push(&folder, "");
    assert!(
        again.status == 0 && begun.elapsed() < Duration::from_secs(8),
        "{:?}: {}",
        begun.elapsed(),
        again.err
    );
    let sent: u64 = pushed(&again.out).iter().map(|(_, sent, _)| sent).sum();
    assert!(sent < 30 << 20, "{sent} were sent again");
    assert!(tree(&folder.join("ws/src")) == tree(&folder.join("src")) && ours(&ws).is_empty());
}

/// One that ends before it has asked for what was kept must not remove what it has come back for.
#[test]
fn old_parts_are_removed_by_a_push_that_comes_as_far_as_to_send_files() {
    let folder = plan(&[("one", noise(1, 100))]);
    push(&folder, "").ends(0);
    let old = folder.join("ws/.part-push.kept/0123456789abcdef.0123456789abcdef");
    let kept = old.parent().unwrap();
    fs::create_dir(kept).unwrap();
    fs::write(kept.join(".made-by-part-push"), "").unwrap();
    let time = SystemTime::now() - Duration::from_secs(8 * 24 * 3600);
    let file = fs::File::create(&old).unwrap();
    file.set_modified(time).unwrap();
    push(&folder, "").ends(0);
    assert!(old.exists(), "all was there, and nothing was asked for");
    write(&folder, "src/one", noise(2, 100));
    map(&folder);
    push(&folder, "").ends(0);
    assert!(ours(&folder.join("ws")).is_empty());
}
