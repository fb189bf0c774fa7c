//! part-push: paths, links, directories and modes, where other users have accounts too.

use crate::lab::tree;
use crate::local::{begin, map, ours, plan, push, slow_way};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use support::{OpenFolder, make_folder, noise, only_root_can, sh, soon, write};

#[test]
fn a_path_cannot_leave_the_workspace() {
    let folder = plan(&[("a", b"new".to_vec()), ("b", b"new".to_vec())]);
    let (ws, outside) = (folder.join("ws"), folder.join("outside"));
    fs::create_dir_all(&ws).unwrap();
    fs::create_dir_all(&outside).unwrap();
    symlink(&outside, ws.join("src")).unwrap();
    push(&folder, "").ends(1).err_has("leads out of");
    assert!(tree(&outside).is_empty());
    assert!(ws.join("ip_config.txt").exists(), "the others arrive");

    // a link that stays inside is followed, one in the place of a file is replaced, a directory in
    // its place stays
    fs::remove_file(ws.join("src")).unwrap();
    make_folder(&ws, "real/b");
    symlink("real", ws.join("src")).unwrap();
    symlink(&outside, ws.join("real/a")).unwrap();
    push(&folder, "").ends(1).err_has("directory");
    assert!(
        fs::read(ws.join("real/a")).unwrap() == b"new"
            && tree(&outside).is_empty()
            && ws.join("real/b").is_dir()
    );

    // where not even root can write
    for dst in ["/proc/x", "ws/../../x", "x"] {
        let bad = sh(
            &folder,
            &format!(
                "jq -c 'if .type == \"file\" then .dst = \"{dst}\" elif .type == \"workspace\" \
                 then empty else . end' plan.jsonl | part-push --connect local"
            ),
        );
        assert_eq!(
            bad.status,
            if dst == "/proc/x" { 1 } else { 65 },
            "{dst}: {}",
            bad.err
        );
        let graph = concat!(
            r#"{"type":"graph","graph_name":"g","num_parts":1,"files":1,"#,
            r#""workspace":"/w","part_config":"g.json","ip_config":"i"}"#
        );
        sh(
            &folder,
            &format!(
                "(echo '{graph}'; jq -c 'if .type == \"file\" then .dst = \"{dst}\" else . end' \
                 plan.jsonl) | part-push --connect local"
            ),
        )
        .ends(65);
    }
}

/// A workspace in which everybody can write, and what another user has put there before a push.
#[test]
fn slow_what_another_user_puts_into_a_workspace_leads_nowhere() {
    if only_root_can("act as another user") {
        return;
    }
    const OF_OTHER: &str = "is reached by a symbolic link that belongs to another user";
    // of a push that is dead, as it seems
    let old = "touch -h -d '2001-01-01' .part-push.evil.1";
    let table = [
        // old files in a directory of the user's are not taken for parts that were kept
        ("ln -s ../home .part-push.kept", 0, ""),
        // nor a directory of the user's itself, or for a stage
        ("mv results .part-push.kept", 0, ""),
        ("mv results .part-push.evil.1", 0, ""),
        // and files there are not moved as parts of a stage
        (&format!("ln -s ../home .part-push.evil.1; {old}"), 0, ""),
        (
            &format!(
                "mkdir .part-push.evil.1; ln -s ../../home/part.1 .part-push.evil.1/owner; {old}"
            ),
            0,
            "",
        ),
        (
            &format!("mkdir .part-push.evil.1; mkfifo .part-push.evil.1/owner; {old}"),
            0,
            "",
        ),
        // what seems to be kept stays the other user's
        (
            "mkdir -m 777 .part-push.kept; cp ../src/large \
             .part-push.kept/0123456789abcdef.0123456789abcdef; touch -d 2001-01-01 \
             .part-push.kept/*",
            0,
            "",
        ),
        // its destination
        ("mkdir -m 777 src; mkfifo -m 666 src/large src/small", 0, ""),
        ("ln -s ../home src", 1, OF_OTHER),
        ("mkdir -m 777 elsewhere; ln -s elsewhere src", 1, OF_OTHER),
        // a file there is not taken for the one that was to come, although it is the same
        ("ln -s ../src src", 1, OF_OTHER),
    ];
    for (lays, status, message) in table {
        let folder = plan(&[("large", noise(1, 3 << 20)), ("small", noise(2, 9))]);
        sh(
            &folder,
            "mkdir -m 777 ws; mkdir -m 700 home ws/results; head -c 2M src/large >home/part.1; \
             for name in part.1 owner model.pt; do echo mine >ws/results/$name; done; \
             touch -d 2001-01-01 home/part.1 home ws/results/* ws/results",
        )
        .ends(0);
        let results = "grep -rslx mine ws | wc -l";
        let home = tree(&folder.join("home"));
        write(&folder, "lays", lays);
        let laid = sh(
            &folder,
            "cd ws && setpriv --reuid 65534 --regid 65534 --clear-groups sh -e ../lays",
        );
        assert_eq!(laid.status, 0, "{lays}: {}", laid.err);
        let theirs = "find ws -user 65534 ! -type p ! -type d | sort";
        let before = sh(&folder, theirs).out;

        let ran = sh(
            &folder,
            "DGL_TOOLS_CONNECT=local timeout 30 part-push <plan.jsonl",
        );
        assert_eq!(ran.status, status, "{lays}: {}", ran.err);
        assert!(ran.err.contains(message), "{lays}: {}", ran.err);
        let warning = format!("other users can write to {}", folder.join("ws").display());
        assert!(ran.err.contains(&warning), "{lays}: {}", ran.err);
        assert_eq!(tree(&folder.join("home")), home, "{lays}");
        assert_eq!(sh(&folder, theirs).out, before, "{lays}");
        assert_eq!(sh(&folder, results).out, "3\n", "{lays}");
        if status == 0 {
            let (ours, there) = (folder.join("src"), folder.join("ws/src"));
            assert_eq!(tree(&ours), tree(&there), "{lays}");
        }
        let left = "cd ws; ls -d elsewhere/* .part-push.lock .part-push.[0-9a-d]* 2>/dev/null";
        assert_eq!(sh(&folder, left).out, "", "{lays}");
    }
}

/// The directories that commands name are reached as everything below them is.
#[test]
fn a_link_of_another_user_is_no_workspace_and_no_place_for_what_is_brought() {
    if only_root_can("act as another user") {
        return;
    }
    let folder = plan(&[("one", noise(1, 9))]);
    push(&folder, "").ends(0);
    let script = "mkdir -m 777 shared; mkdir -m 700 home; cd shared
        setpriv --reuid 65534 --regid 65534 --clear-groups ln -s ../home ws
        setpriv --reuid 65534 --regid 65534 --clear-groups ln -s ../home to; cd ..
        sed 's|/ws|/shared/ws|g' plan.jsonl >led.jsonl; export DGL_TOOLS_CONNECT=local
        part-push <led.jsonl >pushed; echo $?
        part-pull --workspace \"$PWD/shared/ws\" --to . one <plan.jsonl >pulled; echo $?
        part-pull --workspace \"$PWD/ws\" --to shared/to '*' <plan.jsonl >pulled; echo $?
        ls -A home";
    let ran = sh(&folder, script);
    assert_eq!(ran.out, "1\n74\n1\n", "{}", ran.err);
    let refusals = ran
        .err
        .matches("is reached by a symbolic link that belongs to another user");
    assert_eq!(refusals.count(), 3, "{}", ran.err);
}

/// Its owner can replace everything in it, whatever its mode is.
#[test]
fn a_directory_of_another_user_is_named() {
    if only_root_can("act as another user") {
        return;
    }
    const OWNED: &str = "DIR belongs to another user, who can replace what is below it";
    const OPEN: &str = "other users can write to DIR, and so replace what is below it";
    let table = [
        ("install -d -m 1777 -o 65534 ws", "ws", OWNED),
        (
            "install -d -o 65534 theirs; mkdir theirs/ws; ln -s theirs/ws ws",
            "theirs",
            OWNED,
        ),
        ("mkdir ws; install -d -o 65534 ws/src", "ws/src", OWNED),
        ("mkdir ws; mkdir -m 777 ws/src", "ws/src", OPEN),
    ];
    for (lays, name, warning) in table {
        let folder = plan(&[("one", noise(1, 9))]);
        sh(&folder, lays).ends(0);
        let named = warning.replace("DIR", &folder.join(name).display().to_string());
        push(&folder, "").ends(0).err_has(&named);
        assert!(folder.join("ws/src/one").exists());
    }

    let folder = plan(&[("one", noise(1, 9))]);
    push(&folder, "").ends(0).err_lacks("another user");
    let table = [
        ("install -d -o 65534 got", "got", "got", OWNED),
        (
            "mkdir got2; install -d -o 65534 got2/src",
            "got2",
            "got2/src",
            OWNED,
        ),
        // it is not made yet
        ("mkdir -m 777 open", "open/new/got", "open", OPEN),
        ("mkdir -m 1777 sticky", "sticky/new/got", "", ""),
    ];
    for (lays, to, name, warning) in table {
        sh(&folder, lays).ends(0);
        let named = warning.replace("DIR", &folder.join(name).display().to_string());
        let pull = format!("part-pull --connect local --to {to} 'src/*' <plan.jsonl");
        let pulled = sh(&folder, &pull);
        pulled.ends(0);
        if named.is_empty() {
            pulled.err_lacks("what is below it");
        } else {
            pulled.err_has(&named);
        }
    }
}

/// A member of a group links a place of the group to one of its own, as to a scratch file system.
#[test]
fn a_link_of_the_users_own_is_followed_in_a_directory_of_a_colleague() {
    if only_root_can("act as other users") {
        return;
    }
    let OpenFolder(folder) = &OpenFolder::with_tools("colleague");
    let [ann, other] =
        [12345, 12346].map(|uid| format!("setpriv --reuid {uid} --regid 12300 --clear-groups"));
    let script = format!(
        "export PATH=\"$PWD/bin:$PATH\" HOME=\"$PWD/home\" DGL_TOOLS_CONNECT=local
        echo 127.0.0.1 >ip.txt; mkdir src; echo new >src/a
        install -d -o 12345 -g 12300 home scratch/ann
        install -d -o 12347 -g 12300 -m 2775 proj scratch/links; ln -s scratch/links via
        {ann} ln -s ../scratch/ann proj/ann; {ann} ln -s ../ann scratch/links/ann
        {other} ln -s ../scratch/ann proj/other
        for name in proj/ann via/ann proj/other; do
            ipconf-check ip.txt | part-map --workspace \"$PWD/$name/job\" --extra src >plan.jsonl
            {ann} part-push <plan.jsonl >pushed; echo push $?
            {ann} part-pull --workspace \"$PWD/$name\" --to \"$PWD/$name/got\" 'job/src/*' \
                <plan.jsonl >pulled; echo pull $?
            ipconf-check ip.txt | dgl-env --role worker -- true | {ann} dgl-spawn --no-preflight \
                --no-push-check --log-dir \"$PWD/$name/logs\" >run; echo spawn $?
            echo $(ls scratch/ann); rm -rf scratch/ann/*
        done
        chmod 777 proj; {ann} part-pull --workspace \"$PWD\" --to proj/ann 'src/*' \
            <plan.jsonl >pulled; echo $?"
    );
    let ran = sh(folder, &script);
    let followed = "push 0\npull 0\nspawn 0\ngot job logs\n";
    assert_eq!(
        ran.out,
        format!("{followed}{followed}push 1\npull 74\nspawn 74\n\n1\n"),
        "{}",
        ran.err
    );
    for (owned, times) in [("proj", 3), ("scratch/links", 2)] {
        let owned = folder.join(owned);
        let owned = owned.display();
        let warning = format!("{owned} belongs to another user, who can replace what is below it");
        assert_eq!(ran.err.matches(&warning).count(), times, "{}", ran.err);
    }
    ran.err_has("other users can rename it: give its real path, which `realpath` shows");
}

/// Who made it could have put anything into it, or do so later.
#[test]
fn a_file_of_another_user_is_there_only_where_not_everybody_can_write() {
    if only_root_can("act as another user") {
        return;
    }
    let table = [
        // whoever has a place in a directory like /tmp
        ("chmod 1777 ws", "0\n"),
        ("chmod 1777 ws/src", "0\n"),
        ("chmod 1777 ws; chown 65534 ws/src", "0\n"),
        // a colleague, in a workspace that a group shares
        ("chgrp -R 65534 ws; chmod 2775 ws ws/src", "1\n"),
        ("chown -R 65534:65534 ws; chmod 2775 ws ws/src", "1\n"),
        // who keeps data sets for others, in a place like /scratch
        (
            "mkdir -m 1777 open; mv ws/src open/data; chown 65534 open/data; \
             ln -s ../open/data ws/src",
            "1\n",
        ),
    ];
    for (change, theirs) in table {
        for options in ["", "--verify"] {
            let folder = plan(&[("one", noise(1, 3 << 20))]);
            push(&folder, "").ends(0);
            sh(&folder, &format!("chown 65534 ws/src/one; {change}")).ends(0);
            push(&folder, options).ends(0);
            let owned = sh(&folder, "find -L ws/src/one -user 65534 | wc -l");
            assert_eq!(owned.out, theirs, "{change} {options}");
            push(&folder, options).ends(0).err_has("already");
        }
    }

    let folder = plan(&[("one", noise(1, 9))]);
    push(&folder, "").ends(0);
    for (mode, theirs) in [("1777", "0\n"), ("2775", "1\n")] {
        let pull = "part-pull --connect local --to got 'src/*' <plan.jsonl >pulled";
        sh(
            &folder,
            &format!("rm -rf got; {pull}; chown 65534 got/src/one; chmod {mode} got/src; {pull}"),
        )
        .ends(0);
        let owned = sh(&folder, "find got -name one -user 65534 | wc -l");
        assert_eq!(owned.out, theirs, "{mode}");
    }
}

/// Where root is not mapped, root and all other users have one uid, and so does `/`.
#[test]
fn a_link_of_another_user_is_not_roots_in_a_user_namespace() {
    if only_root_can("act as other users") {
        return;
    }
    let OpenFolder(folder) = &OpenFolder::with_tools("namespace");
    let [user, other] =
        [12345, 12346].map(|uid| format!("setpriv --reuid {uid} --regid {uid} --clear-groups"));
    let script = format!(
        "PATH=\"$PWD/bin:$PATH\"
        echo 127.0.0.1 >ip.txt; mkdir src; echo new >src/a; mkdir -m 1777 open
        install -d -o 12345 -g 12345 home data jobs
        {user} ln -s ../data home/users; {user} ln -s ../data open/users
        {other} ln -s ../data open/others
        {other} mkdir -m 755 open/folder; {other} ln -s ../../data open/folder/link
        for name in home/users open/users open/others open/folder/link; do
            ipconf-check ip.txt | part-map --workspace \"$PWD/$name\" --extra src >plan.jsonl
            {user} env HOME=\"$PWD/home\" part-push <plan.jsonl >pushed \
                --connect 'unshare --user --map-current-user'; echo $? $(ls data)
            rm -rf data/*
            ipconf-check ip.txt | part-map --workspace \"$PWD/jobs\" | dgl-env --role worker -- \
                sh -c \"part-push --connect local <$PWD/plan.jsonl\" | {user} env \
                HOME=\"$PWD/home\" dgl-spawn --private-shm --no-preflight --no-push-check >run 2>&1
            echo $(ls data); cat run >&2; rm -rf data/*
        done"
    );
    let ran = sh(folder, &script);
    let users = "0 ip_config.txt src\nip_config.txt src\n";
    assert_eq!(
        ran.out,
        format!("{}{}", users.repeat(2), "1\n\n".repeat(2)),
        "{}",
        ran.err
    );
    ran.err_has("whose owner this user namespace does not show: give its real path");
    // the directories above are root's, as far as anybody knows
    ran.err_lacks("what is below it");
}

/// A directory of another user may be as closed as root's, and both seem to have one owner.
#[test]
fn only_above_the_home_is_a_link_roots_in_a_user_namespace() {
    if only_root_can("act as other users") {
        return;
    }
    let OpenFolder(folder) = &OpenFolder::with_tools("above-home");
    let [user, other] =
        [12345, 12346].map(|uid| format!("setpriv --reuid {uid} --regid {uid} --clear-groups"));
    let script = format!(
        "PATH=\"$PWD/bin:$PATH\"
        echo 127.0.0.1 >ip.txt; mkdir src; echo new >src/a
        mount -t tmpfs -o mode=755 tmpfs /mnt || exit
        install -d -o 12345 -g 12345 /mnt/homes/user /mnt/data
        install -d -o 12346 -g 12346 /mnt/homes/other
        ln -s data /mnt/roots; {other} ln -s /mnt/data /mnt/homes/other/link
        for name in roots homes/other/link; do
            ipconf-check ip.txt | part-map --workspace /mnt/$name --extra src |
                {user} env HOME=/mnt/homes/user part-push >pushed \
                    --connect 'unshare --user --map-current-user'; echo $? $(ls /mnt/data)
            rm -rf /mnt/data/*
        done"
    );
    write(folder, "script", &script);
    let ran = sh(folder, "unshare --mount sh script");
    if ran.err.contains("mount: ") {
        return support::skipped!("no right to mount");
    }
    assert_eq!(ran.out, "0 ip_config.txt src\n1\n", "{}", ran.err);
    ran.err_has("is reached by a symbolic link whose owner this user namespace does not show");
}

/// Links of the user's own lead to the workspace, and from one of its directories to another.
#[test]
fn links_of_the_users_own_are_followed() {
    let folder = plan(&[("a", noise(1, 3 << 20)), ("b", noise(2, 9))]);
    sh(
        &folder,
        "mkdir -p disk/real; ln -s disk ws; ln -s \"$PWD/ws/real\" disk/src",
    )
    .ends(0);
    push(&folder, "").ends(0).err_lacks("other users");
    assert_eq!(tree(&folder.join("src")), tree(&folder.join("disk/real")));
    // what is there already may lie behind a link that leads out of the workspace
    sh(
        &folder,
        "rm disk/src; mv disk/real .; ln -s ../real disk/src",
    )
    .ends(0);
    for options in ["", "--verify"] {
        push(&folder, options)
            .ends(0)
            .err_has("3 files are there already");
    }
}

/// Nobody else may read a file of mode 0600 while it is on its way, nor what is kept of it.
#[test]
fn slow_what_is_secret_is_secret_on_its_way() {
    let folder = plan(&[("secret", noise(1, 20 << 20))]);
    sh(&folder, "chmod 600 src/secret");
    map(&folder);
    slow_way(&folder, 9 << 20);
    let mut one = begin(&folder, "--connect './way env'");
    soon("half of it is there", || folder.join("half").exists());
    let modes = || {
        let found = sh(
            &folder,
            "find ws -mindepth 1 ! -type l ! -name ip_config.txt ! -path \
            ws/src -printf '%m %y %f\\n'",
        )
        .out;
        found.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    soon("a part of it is there", || {
        modes().iter().any(|line| line.contains("part."))
    });
    for line in modes() {
        let open = u32::from_str_radix(line.split(' ').next().unwrap(), 8).unwrap() & 0o077;
        assert_eq!(open, 0, "{line}");
    }
    let stage = ours(&folder.join("ws"))
        .into_iter()
        .find(|name| name.contains(".0"))
        .unwrap();
    assert_eq!(
        fs::metadata(folder.join("ws").join(&stage)).unwrap().mode() & 0o777,
        0o700
    );
    one.kill().unwrap();
    one.wait().unwrap();
    write(&folder, "on", "");
    soon("it has gone", || {
        ours(&folder.join("ws")) == [".part-push.kept"]
    });
    for line in modes() {
        let open = u32::from_str_radix(line.split(' ').next().unwrap(), 8).unwrap() & 0o077;
        assert_eq!(open, 0, "{line}");
    }
    let again = push(&folder, "");
    let there = fs::metadata(folder.join("ws/src/secret")).unwrap();
    again.ends(0);
    assert!(there.mode() & 0o777 == 0o600);
}
