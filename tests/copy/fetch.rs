//! Files that hosts get by commands of the user's: over HTTP from a server that breaks off, from
//! S3, and what happens when they fail or are interrupted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use support::{
    Cluster, ip_config, made_by, noise, partition, path, ran, root, scratch, sh, soon,
    takes_seconds, with_s3,
};

/// A folder `store` with a part, and a server of its files.
struct Store {
    folder: PathBuf,
    server: Child,
    port: String,
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Store {
    fn new() -> Store {
        let folder = scratch();
        let parts = folder.join("store/part0");
        fs::create_dir_all(&parts).unwrap();
        fs::write(parts.join("large.pt"), noise(3, 1 << 20)).unwrap();
        fs::write(parts.join("one.pt"), "one").unwrap();
        fs::write(folder.join("store/META"), "meta").unwrap();
        fs::write(folder.join("store/empty"), "").unwrap();
        let server = Command::new("python3")
            .arg(root().join("tests/http_server.py"))
            .args(["store", "127.0.0.1", "port"])
            .current_dir(&folder)
            .spawn()
            .unwrap();
        soon("the server", || folder.join("port").exists());
        let port = fs::read_to_string(folder.join("port")).unwrap();
        let list =
            "cd store && find . -type f -printf '%s %P\\n' >../sized && find . -type f >../named";
        sh(&folder, list).ends(0);
        Store {
            folder,
            server,
            port: port.trim().to_owned(),
        }
    }

    /// The server behaves so from the next request on.
    fn is(&self, how: &str, is_so: bool) {
        let file = self.folder.join(how);
        match is_so {
            true => fs::write(file, "s3cret").unwrap(),
            false => fs::remove_file(file).unwrap(),
        }
    }

    fn script(&self, listing: &str, command: &str, flags: &str) -> String {
        format!(
            "echo 127.0.0.1 | ipconf-check | part-map --partitions g --listing {listing} \
             --workspace \"$PWD/ws\" --fetch '{command}' >plan.jsonl && exec part-push \
             --connect local {flags} <plan.jsonl",
        )
    }

    /// curl, which finds a token in its environment and shows it nowhere.
    fn curl(&self) -> String {
        format!(
            "printf \"header = \\\"Authorization: Bearer %s\\\"\" \"$TOKEN\" | \
             curl -sSfK - -o {{dst}} http://127.0.0.1:{}/{{path}}",
            self.port
        )
    }

    fn push(&self, listing: &str, command: &str, flags: &str) -> support::Ran {
        sh(&self.folder, &self.script(listing, command, flags))
    }

    fn count(&self, filter: &str, out: &str) -> usize {
        fs::write(self.folder.join("pushed"), out).unwrap();
        let script = format!("jq -c 'select(.type==\"pushed\" and ({filter}))' pushed | wc -l");
        sh(&self.folder, &script).out.trim().parse().unwrap()
    }

    /// Whatever was fetched is the same, and nothing is beside it.
    fn has_all(&self) {
        sh(&self.folder, "diff -r store ws/g && ls -A ws").gives(0, "g\nip_config.txt\n");
    }

    /// Nothing half is there, and no command runs any longer.
    fn has_nothing_half(&self) {
        let path = format!("127.0.0.1:{}/", self.port);
        soon("the end of all commands", || {
            sh(&self.folder, &format!("pgrep -f '^curl.*{path}'")).status == 1
        });
        soon("the end of the stage", || {
            sh(&self.folder, "ls -A ws | grep part-push").status == 1
        });
        assert!(!self.folder.join("ws/g/part0/large.pt").exists());
    }
}

#[test]
fn a_host_gets_its_files_from_where_they_are() {
    let store = Store::new();
    store.is("token", true);
    // without the token, each file says why
    let refused = store.push("sized", &store.curl(), "--env TOKEN=wrong");
    assert_eq!((refused.status, store.count(".ok", &refused.out)), (1, 2));
    let problem = "its command ended with exit status 22: curl: (22) The requested URL returned \
        error: 403";
    refused.err_has(problem).err_has("host 0 (127.0.0.1)");
    assert_eq!(
        store.count(&format!(".error == \"{problem}\""), &refused.out),
        3
    );
    store.has_nothing_half();
    // a server that breaks off leaves nothing half
    store.is("break", true);
    let broken = store.push("sized", &store.curl(), "--env TOKEN=s3cret");
    assert_eq!(broken.status, 1);
    broken.err_has("curl: (18)");
    store.has_nothing_half();
    store.is("break", false);
    let whole = store.push("sized", &store.curl(), "--env TOKEN=s3cret --fsync");
    assert_eq!(whole.status, 0, "{}", whole.err);
    store.has_all();
    let again = store.push("sized", &store.curl(), "--verify --streams 1");
    assert_eq!(
        store.count(".ok and .skipped", &again.out),
        5,
        "{}",
        again.out
    );
    // the same size by another command is another file
    let other = store.push("sized", "cp ../../../store/{path} {dst}", "");
    assert_eq!(store.count(".ok and .skipped == false", &other.out), 3);
    // sizes that are not known here are those of what came
    let listed = "sed -i '/empty/d' named; rm -r ws store/empty";
    sh(&store.folder, listed).ends(0);
    let unknown = store.push("named", &store.curl(), "--env TOKEN=s3cret");
    assert_eq!(
        store.count(".ok and .bytes == 1048576", &unknown.out),
        1,
        "{}",
        unknown.err
    );
    store.has_all();
    let again = store.push("named", &store.curl(), "");
    assert_eq!(store.count(".ok and .skipped", &again.out), 4);
    store
        .push("named", &store.curl(), "--dry-run")
        .out_has("3 there already");
}

#[test]
fn what_is_not_written_as_it_was_said() {
    let store = Store::new();
    let table = [
        (
            "cp ../../../store/{path} {dst}x",
            "with 0 and did not write {dst}",
        ),
        (
            "cp ../../../store/{path} {dst}; echo >>{dst}",
            "wrote 1048577 bytes, and the file has 1048576",
        ),
        ("mkdir {dst}; : {path}", "it is not a regular file"),
        (
            "ln -s ../../../store/{path} {dst}",
            "it is not a regular file",
        ),
        (
            "kill -9 $$; : {path} {dst}",
            "ended with signal 9 (SIGKILL)",
        ),
        (
            "for i in 1 2 3 4; do echo word $i >&2; done; exit 7; {path} {dst}",
            "status 7: word 2 | word 3 | word 4",
        ),
        (
            "head -c 9000000 /dev/zero | tr \"\\0\" x >&2; exit 7; {path} {dst}",
            "xxx",
        ),
    ];
    for (command, problem) in table {
        let got = store.push("sized", command, "");
        assert_eq!(got.status, 1, "{command}");
        got.err_has(problem);
        assert!(got.err.len() < 20_000, "{command}");
        store.has_nothing_half();
    }
    // names of any kind, and braces in them
    let odd =
        "cd store/part0 && echo a >\"it's {dst}.pt\" && cd .. && find part0 -type f >../named";
    sh(&store.folder, odd).ends(0);
    let copied = store.push("named", "cp ../../../store/{path} {dst}", "");
    assert_eq!(copied.status, 0, "{}", copied.err);
    sh(&store.folder, "diff -r store/part0 ws/g/part0").gives(0, "");
    let empty = store.push("named", ": {path} >{dst}", "");
    empty.err_has("wrote an empty file");
    let missing = store.push("sized", "true {path} {dst}", "--env NOT_SET_AT_ALL");
    missing
        .ends(2)
        .err_has("NOT_SET_AT_ALL: environment variable not found");
}

fn begin(folder: &Path, script: &str) -> Child {
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).current_dir(folder);
    shell.env("PATH", path()).env("TOKEN", "s3cret");
    shell
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn an_interrupted_fetch_leaves_nothing_half_and_shows_no_secret() {
    if takes_seconds() {
        return;
    }
    let store = Store::new();
    store.is("token", true);
    store.is("slow", true);
    let curl = store.curl() + " & wait";
    for signal in ["INT", "KILL", "agent"] {
        let push = begin(&store.folder, &store.script("sized", &curl, "--env TOKEN"));
        soon("a file that grows", || {
            sh(
                &store.folder,
                "find ws/.part-push.* -name large.pt -size +100k",
            )
            .out
            .contains("large")
        });
        let shown = "grep -sa s3[c]ret /proc/[0-9]*/cmdline | tr '\\0' ' '; grep -lsa \
            TOKEN=s3[c]ret /proc/[0-9]*/environ | wc -l";
        let shown = sh(&store.folder, shown);
        assert!(
            !shown.out.contains("cmdline") && shown.out.trim() != "0",
            "{}",
            shown.out
        );
        let kill = match signal {
            "agent" => "grep -lsa PART_PUSH= /proc/[0-9]*/environ | sed 's|/proc/||; s|/.*||' | \
                while read -r pid; do grep -q '^host-agent' /proc/$pid/cmdline && kill -9 $pid; \
                done; true"
                .to_owned(),
            _ => format!("kill -{signal} {}", push.id()),
        };
        sh(&store.folder, &kill).ends(0);
        let ended = ran(push.wait_with_output().unwrap());
        assert_ne!(ended.status, 0, "{signal}");
        store.has_nothing_half();
    }
    store.is("slow", false);
    let whole = store.push("sized", &curl, "--env TOKEN=s3cret");
    assert_eq!(whole.status, 0, "{}", whole.err);
    store.has_all();
}

#[test]
fn what_is_fetched_has_the_sum_of_the_listing() {
    let store = Store::new();
    let summed = "rm store/empty; mv store/part0/one.pt \"store/part0/it's {one}.pt\"; cd store && \
        find . -type f -exec sha256sum {} + >../summed";
    sh(&store.folder, summed).ends(0);
    let copy = "cp ../../../store/{path} {dst}";
    let whole = store.push("summed", copy, "");
    assert_eq!(whole.status, 0, "{}", whole.err);
    store.has_all();
    // as large as before
    sh(&store.folder, "rm -r ws; printf mete >store/META").ends(0);
    let other = store.push("summed", copy, "");
    assert_eq!((other.status, store.count(".ok", &other.out)), (1, 3));
    other.err_has("META: its command ended with exit status 1: its SHA-256 is not ea3bd73e");
    sh(&store.folder, "ls ws/g").gives(0, "part0\n");
    // a command that fails is not asked for its sum
    let failed = store.push("summed", "cd {dst} || exit 7; : {path}", "");
    failed.err_has("status 7: ");
    assert!(!failed.err.contains("SHA-256"));
}

#[test]
fn a_terminal_shows_how_much_hosts_have_fetched() {
    let store = Store::new();
    sh(&store.folder, "sed -i '/empty/d' sized named").ends(0);
    let command = "head -c 600000 ../../../store/{path} >{dst}; until test -e ../../../go; do \
        sleep 0.1; done; tail -c +600001 ../../../store/{path} >>{dst}";
    for (listing, all) in [("sized", "1.00 MiB"), ("named", "585.9")] {
        let script = store.script(listing, command, ">pushed.jsonl");
        fs::write(store.folder.join("push.sh"), script).unwrap();
        let terminal = "rm -rf ws go; TERM=xterm script -qefc 'stty cols 120; . ./push.sh' shown";
        let push = begin(&store.folder, terminal);
        let bar = format!("KiB of {all}");
        let shows = |text: &str| {
            let shown = fs::read(store.folder.join("shown")).unwrap_or_default();
            let shown = String::from_utf8_lossy(&shown);
            shown
                .lines()
                .any(|line| line.contains("585.9") && line.contains(text))
        };
        soon("a bar", || shows(&bar));
        fs::write(store.folder.join("go"), "").unwrap();
        assert_eq!(ran(push.wait_with_output().unwrap()).status, 0);
        let shown = fs::read(store.folder.join("shown")).unwrap();
        assert!(String::from_utf8_lossy(&shown).contains("MB/s, by commands"));
    }
}

#[test]
fn real_hosts_fetch_a_graph_from_s3() {
    let Some(bin) = made_by("tests/s3.sh", "server of S3") else {
        return;
    };
    let folder = scratch();
    partition(&folder, 4);
    ip_config(&folder, 2);
    fs::create_dir(folder.join("ranks")).unwrap();
    for host in 0..2 {
        fs::write(
            folder.join(format!("ranks/rank {host}.pt")),
            noise(host, 3 << 20),
        )
        .unwrap();
    }
    let cluster = Cluster::up(2);
    let script = format!(
        r#"{s3}
        unset AWS_CA_BUNDLE # rclone fails where it is set
        mv out ranks store/ 2>/dev/null || {{ mkdir store; mv out/* ranks store/; }}
        $aws s3 cp --recursive --only-show-errors store s3://bucket/g/
        $aws s3 ls --recursive s3://bucket/g/ >listing
        mkdir here && cp store/g.json here/
        fetch() {{ # COMMAND FLAGS...
          command=$1; shift
          ipconf-check ip.txt | part-map --part-config here/g.json --parts-per-host 2 \
            --per-host 'ranks/rank {{host}}.pt' --workspace $ws --fetch "$command" "$@" | \
            part-push --env AWS_ACCESS_KEY_ID --env AWS_SECRET_ACCESS_KEY \
              --env AWS_DEFAULT_REGION="$AWS_DEFAULT_REGION" >pushed.jsonl
        }}
        ws=/tmp/job; fetch "$aws s3 cp --only-show-errors s3://bucket/g/{{path}} {{dst}}" \
          --listing listing || exit 3
        jq -s '[.[] | select(.type=="pushed" and .ok)] | length, (map(.sent_bytes) | add < 9000)' \
          pushed.jsonl
        command -v rclone >/dev/null || {{ echo no rclone; exit; }}
        export RCLONE_S3_PROVIDER=Other RCLONE_S3_ENDPOINT="$s3" \
          RCLONE_S3_ENV_AUTH=true
        listed() {{ rclone lsf -R --format sp --separator ' ' :s3:bucket/g; }}
        listed >listing; ws=/tmp/again
        fetch "RCLONE_S3_PROVIDER=Other RCLONE_S3_ENDPOINT=$s3 RCLONE_S3_ENV_AUTH=true \
          rclone copyto :s3:bucket/g/{{path}} {{dst}}" --listing listing || exit 3
        jq -s '[.[] | select(.type=="pushed" and .ok)] | length' pushed.jsonl"#,
        s3 = with_s3(&bin),
    );
    let pushed = cluster.run(&folder, &script);
    match pushed.out.as_str() {
        "18\ntrue\nno rclone\n" => println!("skipped: no rclone here"),
        out => assert_eq!(out, "18\ntrue\n18\n", "{}", pushed.err),
    }
    for (host, parts) in [(0, [0, 1]), (1, [2, 3])] {
        let there = format!(
            "cd /tmp/job/data && for k in {} {}; do diff -r {store}/part$k part$k || exit; done; \
             cmp '{store}/ranks/rank {host}.pt' 'ranks/rank {host}.pt' && find . -type f | wc -l",
            parts[0],
            parts[1],
            store = folder.join("store").display()
        );
        let there = cluster.call(&["exec", &(host + 1).to_string(), "sh", "-c", &there]);
        there.gives(0, "8\n");
    }
    cluster.assert_clean();
}
