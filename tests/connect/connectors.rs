//! Ways to a host: connectors, what the environment and an ssh_config say of them; and some hosts
//! only: `--host`, `--partial`.

use std::time::{Duration, Instant};
use support::{
    Cluster, PYTHON_WITH_STAND_IN, executable, partition, read, scratch, sh, soon, write,
};

/// The whole path with a template of ours, whose program talks before and after the command.
#[test]
fn a_command_template_carries_the_whole_path() {
    let folder = scratch();
    partition(&folder, 1);
    let hosts = "ip,port,login\n127.0.0.1,31000,ann@pod-0\n";
    write(&folder, "hosts.csv", hosts);
    let route = "#!/bin/sh\necho \"$1 $2 $3 $4 $5 $6 $7\" >>way.log; shift 7\n\
               echo 'Last login: today'; printf 'no newline'; printf noise >&2; \"$@\"; s=$?; \
               printf 'Goodbye\\n0 ends'; exit $s\n";
    executable(&folder, "way", route);
    let script = "export DGL_TOOLS_CONNECT='./way {name} {ip} {login} {id} {user} {port} \
        {dgl_port}' DGL_TOOLS_SSH_USERNAME=ann DGL_TOOLS_SSH_PORT=2022
        ipconf-check hosts.csv | host-probe --workspace \"$PWD\" | part-map \
            --part-config out/g.json --workspace \"$PWD/ws\" | part-push --verify |
        dgl-env --role worker -- sh -c 'tail -n 1 data/part0/graph.dgl; echo; printf \"%s\" \
            \"last words\"' | dgl-spawn --format human &&
        ipconf-check hosts.csv | dgl-reap --list --format human >list.txt";
    let ran = sh(&folder, script);
    ran.ends(0);
    let lines: Vec<_> = ran.out.lines().collect();
    assert_eq!(
        lines,
        [
            "[127.0.0.1 worker 0] graph of part 0",
            "[127.0.0.1 worker 0] last words"
        ],
        "{}",
        ran.err
    );
    let log = read(&folder, "way.log");
    assert!(
        log.lines().count() >= 4
            && log
                .lines()
                .all(|line| line == "127.0.0.1 127.0.0.1 ann@pod-0 0 ann 2022 31000"),
        "{log}"
    );
}

#[test]
fn a_lack_of_descriptors_here_is_not_blamed_on_the_hosts() {
    let folder = scratch();
    let hosts: String = (1..=20).map(|host| format!("10.77.0.{host}\n")).collect();
    write(&folder, "ip.txt", hosts);
    let script = "ipconf-check ip.txt >hosts
        (ulimit -n 12; exec dgl-reap --list --connect local <hosts)";
    sh(&folder, script)
        .ends(74)
        .err_has("Too many open files (os error 24)")
        .err_has_times("  fix: ", 1)
        .err_has("  fix: raise the limit of open files on this machine: ulimit -n\n");
}

/// What a connector warns of again and again says nothing about the host, however much it is.
#[test]
fn slow_what_a_connector_says_is_no_sign_of_life_of_its_host() {
    let folder = scratch();
    write(&folder, "ip.txt", "127.0.0.1\n");
    let forward = "import os, sys, time\n\
        while not os.path.exists('frozen'):\n\
        \x20   sys.stdout.buffer.write(os.read(0, 65536)); sys.stdout.flush()\n\
        until = time.time() + 30\n\
        while time.time() < until:\n\
        \x20   os.write(2, b'warning\\n' * (1 if sys.argv[1] == 'slow' else 8192))\n\
        \x20   if sys.argv[1] == 'slow': time.sleep(1)\n";
    write(&folder, "forward.py", forward);
    let route = "#!/bin/sh\npace=$1; shift 2\n\"$@\" | exec python3 forward.py $pace\n";
    executable(&folder, "way", route);
    for pace in ["slow", "fast"] {
        let ran = sh(
            &folder,
            &format!(
                "rm -f frozen; ipconf-check ip.txt | dgl-env --role worker \
                 --workspace \"$PWD\" -- sh -c 'sleep 1; : >frozen; exec sleep 60' >job.jsonl
                 timeout -s KILL 25 dgl-spawn --no-preflight --host-timeout 5s --grace 1s \
                 --connect './way {pace} {{name}}' <job.jsonl"
            ),
        );
        assert_eq!(ran.status, 74, "{pace}: {}", ran.err);
        assert!(
            ran.err.contains("no message from it for 5 s"),
            "{pace}: {}",
            ran.err
        );
    }
    executable(&folder, "floods", "#!/bin/sh\nexec yes warning >&2\n");
    sh(
        &folder,
        "export DGL_TOOLS_CONNECT_TIMEOUT=1s; ipconf-check ip.txt | timeout -s KILL 20 dgl-reap \
         --list --connect './floods {name}'",
    )
    .ends(74)
    .err_has("no answer within 1 s");
}

/// One that does not end with its stdin, nor when it is told to.
#[test]
fn slow_a_connector_that_stays_is_ended_with_the_tool() {
    let folder = scratch();
    write(&folder, "ip.txt", "10.0.0.1\n10.0.0.2\n10.0.0.3\n");
    let stays = "#!/bin/sh\ntrap \"$1\" TERM; shift 2; echo $$ >>pids; \"$@\"; exec sleep 333\n";
    executable(&folder, "stays", stays);
    for trap in ["-", "\"\""] {
        sh(
            &folder,
            &format!(
                "rm -f pids; ipconf-check ip.txt | timeout -s KILL 40 dgl-reap --list --connect \
                 './stays {trap} {{name}}' >/dev/null || exit
                 for pid in $(cat pids); do [ ! -e /proc/$pid ] || {{ kill -9 $pid; echo $pid; }}; \
                 done"
            ),
        )
        .gives(0, "");
        let pids = read(&folder, "pids");
        assert_eq!(pids.lines().count(), 3);
    }
}

#[test]
fn real_hosts_that_ssh_cannot_reach_are_told_of_in_its_words() {
    let folder = scratch();
    let cluster = Cluster::up(2);
    write(&folder, "ip.txt", "10.77.0.2\n");
    for (host, port, why) in [
        ("10.77.0.2", 22, ""),
        (
            "10.77.0.2",
            23,
            "ssh: connect to host 10.77.0.2 port 23: Connection refused",
        ),
        (
            "10.77.0.77",
            22,
            "ssh: connect to host 10.77.0.77 port 22: ",
        ),
        (
            "no.such.invalid",
            22,
            "ssh: Could not resolve hostname no.such.invalid: ",
        ),
    ] {
        let script = format!(
            "echo x >copied; export RES_OPTIONS='timeout:1 attempts:1' # no name server answers here
            ipconf-check ip.txt | part-map --workspace /srv/ws --extra copied | jq -c \
                'if .type == \"host\" then .login = \"{host}\" else . end' >plan.jsonl
            DGL_TOOLS_SSH_PORT={port} DGL_TOOLS_CONNECT_TIMEOUT=6s part-push --connect ssh \
                <plan.jsonl >pushed.jsonl"
        );
        let ran = cluster.sh(&folder, &script);
        assert_eq!(ran.status == 0, why.is_empty(), "{}", ran.err);
        ran.err_has(why);
    }
}

/// An old busybox; the script goes in byte by byte then.
#[test]
fn a_host_needs_neither_dd_nor_base64() {
    let folder = scratch();
    for name in ["dd", "base64", "tar", "find", "stat"] {
        executable(
            &folder.join("bin"),
            name,
            "#!/bin/sh\necho \"$0\" >>\"$LOG\"\nexit 1\n",
        );
    }
    let script = "echo 127.0.0.1 >ip.txt; export LOG=$PWD/called.log
        ipconf-check ip.txt | dgl-env --role worker -- echo well | dgl-spawn --format human \
            --connect \"env PATH=$PWD/bin:$PATH\"";
    sh(&folder, script).gives(0, "[127.0.0.1 worker 0] well\n");
    assert!(!folder.join("called.log").exists());
}

#[test]
fn local_and_underscores() {
    let folder = scratch();
    write(&folder, "ip.txt", "127.0.0.1\n");
    let script = "ipconf-check --default_port 31000 --num_servers 2 ip.txt | host-probe --connect \
        local --num_servers 2 --mixed_versions |
        dgl-env --role worker --workspace \"$PWD\" --master_port 31100 -- sh -c 'echo \
            $MASTER_PORT' | dgl-spawn --connect local --no_preflight --format human";
    sh(&folder, script).gives(0, "[127.0.0.1 worker 0] 31100\n");
    // the command line beats the environment
    sh(
        &folder,
        "export DGL_TOOLS_CONNECT='false {name}'; ipconf-check ip.txt | host-probe --connect \
         local >/dev/null",
    )
    .ends(0);
    sh(
        &folder,
        "export DGL_TOOLS_CONNECT='false {name}'; ipconf-check ip.txt | host-probe >/dev/null",
    )
    .ends(74);
}

#[test]
fn some_hosts_only_on_real_hosts() {
    let (folder, cluster) = Cluster::listed(3);
    partition(&folder, 3);
    let plan = "ipconf-check ip.txt | part-map --part-config out/g.json --workspace /srv/job \
        --script-folder code >plan.jsonl; part-push <plan.jsonl >pushed.jsonl";
    let pushed = cluster.sh(&folder, plan);
    pushed.ends(0);
    let there =
        |host: u32, file: &str| cluster.lab.join(format!("h{host}/srv/job/{file}")).exists();

    // to one host again
    cluster.sh(
        &folder,
        "for k in 1 2 3; do ssh h$k rm -r /srv/job/code; done",
    );
    let again = cluster.sh(
        &folder,
        "part-push --host 1 <plan.jsonl | jq -c 'select(.type==\"pushed\") | .host' | sort -u",
    );
    assert_eq!(again.out, "1\n", "{}", again.err);
    assert_eq!(
        [1, 2, 3].map(|host| there(host, "code/run it.sh")),
        [false, true, false]
    );
    cluster
        .sh(
            &folder,
            "part-push --host 0,2 --dry-run <plan.jsonl | grep -c 'run it.sh'; part-push --host 0 \
         --host 2 <plan.jsonl >/dev/null",
        )
        .gives(0, "2\n");
    assert_eq!(
        [1, 2, 3].map(|host| there(host, "code/run it.sh")),
        [true, true, true]
    );

    // what went to some hosts only is not a set for those who need all
    cluster
        .sh(
            &folder,
            "part-push --host 1 <pushed.jsonl | dgl-env --role worker -- true",
        )
        .ends(65)
        .err_has("pushed records are missing");
    cluster
        .sh(
            &folder,
            "part-push <pushed.jsonl | dgl-env --role worker -- true >job.jsonl",
        )
        .ends(0);

    // one host probed, the others as they were; no other host is even logged in to
    cluster.call(&["stop", "3"]);
    cluster
        .sh(
            &folder,
            "ipconf-check ip.txt | host-probe --host 1 | jq -c '[.id, has(\"cpus\")]'",
        )
        .gives(0, "[0,false]\n[1,true]\n[2,false]\n");
    cluster.call(&["start", "3"]);
    let one = cluster.sh(
        &folder,
        "dgl-env --role worker -- sh -c 'echo $RANK of $WORLD_SIZE' \
            <pushed.jsonl | dgl-spawn --host 2 --format human",
    );
    one.gives(0, "[10.77.0.3 worker 2] 2 of 3\n");

    // holes: never by chance, and with --partial on purpose, said once
    let tools = [
        ("plan.jsonl", "host-probe"),
        ("plan.jsonl", "part-push"),
        ("job.jsonl", "dgl-spawn"),
        ("plan.jsonl", "dgl-reap --list"),
    ];
    cluster.sh(
        &folder,
        "dgl-env --role worker -- true <pushed.jsonl >job.jsonl",
    );
    for (stream, tool) in tools {
        let holes = format!(
            "jq -c 'select(.type!=\"host\" or .id!=0) | select(.host!=0)' {stream} | {tool}"
        );
        cluster
            .sh(&folder, &holes)
            .gives(65, "")
            .err_has("1 of 3 host records are missing, the first is 0");
        let taken = cluster.sh(&folder, &format!("{holes} --partial"));
        assert_eq!(
            (taken.status, taken.err.matches("--partial:").count()),
            (0, 1),
            "{tool}: {}",
            taken.err
        );
        let name = tool.split(' ').next().unwrap();
        let unknown = cluster.sh(&folder, &format!("{tool} --host 1,7,9 <{stream}"));
        unknown.gives(2, "");
        for id in [7, 9] {
            unknown.err_has(&format!("{name}: --host: the stream has no host {id}"));
        }
    }
    for planner in [
        "part-map --workspace /w --partial",
        "dgl-env --workspace /w --partial --role worker -- true",
    ] {
        cluster
            .sh(&folder, &format!("{planner} <plan.jsonl"))
            .ends(2);
    }

    // all jobs of this user, on one host and then on the others
    let two = "dgl-env --role worker -- sleep 300 <pushed.jsonl >sleep.jsonl
        dgl-spawn --job a <sleep.jsonl >a.jsonl & a=$!; dgl-spawn --job b <sleep.jsonl >b.jsonl & \
            b=$!
        for job in a b; do until [ \"$(grep -cs '\"started\"' $job.jsonl)\" = 3 ]; do sleep 0.05; \
            done; done
        ipconf-check ip.txt | dgl-reap --all --host 1 | jq -r 'select(.type==\"reaped\") | \
            \"\\(.host) \\(.job)\"' | sort
        wait $a; echo $?; wait $b; echo $?";
    cluster
        .sh(&folder, two)
        .out_begins("1 a\n1 b\n")
        .out_lacks("\n0\n");
    cluster.assert_clean();
}

#[test]
fn what_ssh_is_told_on_real_hosts() {
    let (folder, cluster) = Cluster::listed(3);
    let user = sh(&folder, "id -un").out.trim().to_owned();
    let probe = "export DGL_TOOLS_CONNECT_TIMEOUT=5s; ipconf-check ip.txt | host-probe --host 1,2 \
        >/dev/null";

    // the environment, each variable by what a wrong and a right value do
    let wrong_key = "ssh-keygen -q -t ed25519 -N '' -f /tmp/wrong </dev/null";
    cluster.sh(&folder, wrong_key).ends(0);

    // a command that joins its words
    let joins = "ipconf-check ip.txt | dgl-reap --list --connect 'ssh -q {ip}'";
    let problem = "ssh joins the words that follow it into one command line\n";
    let joined = cluster.sh(&folder, joins);
    joined.ends(74).err_has_times(problem, 3);
    joined.err_has_times("  fix: use --connect ssh,", 1);
    let table = [
        ("DGL_TOOLS_SSH_PORT", "1", "10.77.0.2:1", "22"),
        (
            "DGL_TOOLS_SSH_USERNAME",
            "nobody-there",
            "login refused for nobody-there",
            user.as_str(),
        ),
        (
            "DGL_TOOLS_IDENTITY",
            "/tmp/wrong",
            "/tmp/wrong",
            "~/.ssh/id_ed25519",
        ),
    ];
    for (variable, value, message, right) in table {
        let wrong = cluster.sh(&folder, &format!("export {variable}={value}; {probe}"));
        assert_eq!(
            (wrong.status, wrong.err.contains(message)),
            (74, true),
            "{variable}: {}",
            wrong.err
        );
        for connect in ["ssh", "ssh2"] {
            cluster
                .sh(
                    &folder,
                    &format!("export {variable}={right} DGL_TOOLS_CONNECT={connect}; {probe}"),
                )
                .ends(0);
        }
    }

    // a key with a passphrase, which an agent has beside others; what is named comes alone
    let locked = "ssh-keygen -q -t ed25519 -N secret -f /tmp/locked </dev/null && printf \
        '#!/bin/sh\necho secret\n' >/tmp/ask && chmod +x /tmp/ask &&
        for host in h2 h3; do ssh $host 'cat >>~/.ssh/authorized_keys' </tmp/locked.pub || exit; \
            done";
    cluster.sh(&folder, locked).ends(0);
    let agent = "eval \"$(ssh-agent)\" >/dev/null; trap 'ssh-agent -k >/dev/null' EXIT; export \
         SSH_ASKPASS=/tmp/ask SSH_ASKPASS_REQUIRE=force
        ssh-add -q ~/.ssh/id_ed25519 /tmp/locked </dev/null || exit";
    for connect in ["ssh", "ssh2"] {
        for (identity, status) in [
            ("/tmp/locked", 0),
            ("/tmp/locked.pub", 0),
            ("/tmp/wrong", 74),
        ] {
            let probe = probe
                .replace("5s", "60s")
                .replace("--host", &format!("--connect {connect} --host"));
            let identity_set = format!("export DGL_TOOLS_IDENTITY={identity}");
            cluster
                .sh(&folder, &format!("{agent}\n{identity_set}\n{probe}"))
                .ends(status);
        }
    }

    // an ssh_config: another port, another user, the key under another name; a jump host
    let second = "ssh-keygen -q -t rsa -N '' -f /tmp/rsa </dev/null
        ssh h2 'sshd=\"$(command -v sshd || echo /usr/sbin/sshd) -f '$LAB'/h2/sshd_config -o \
        PidFile=none\"; $sshd -p 2222 && $sshd -p 2223 -o HostKey=/tmp/rsa -o \
        HostKeyAlgorithms=ssh-rsa'";
    let started = cluster.sh(
        &folder,
        &format!("LAB='{}'; {second}", cluster.lab.display()),
    );
    started.ends(0);
    soon("sshd listens on port 2222", || {
        cluster
            .sh(&folder, "ssh h2 grep -q :08AE /proc/net/tcp")
            .status
            == 0
    });
    // a host that can show its key only with a signature over SHA-1
    cluster
        .sh(
            &folder,
            "echo 10.77.0.2 | ipconf-check | DGL_TOOLS_HOST_KEY=accept-new \
             DGL_TOOLS_SSH_PORT=2223 host-probe --connect ssh2",
        )
        .ends(74)
        .err_has("no SSH handshake");
    let config = format!(
        "Host 10.77.0.2\n  Port 2222\n  User {user}\n  HostKeyAlias h2\nHost 10.77.0.3\n  \
         ProxyJump 10.77.0.2\n"
    );
    write(&folder, "config", config);
    let report = "ipconf-check ip.txt | dgl-env --role worker --workspace /srv -- sh -c 'echo \
        $SSH_CONNECTION | cut -d\" \" -f1,4' |
                DGL_TOOLS_SSH_CONFIG=config dgl-spawn --format human";
    let ssh = cluster.sh(
        &folder,
        &format!("{report} --host 1,2 --connect ssh | sort"),
    );
    let both = "[10.77.0.2 worker 1] 10.77.0.1 2222\n[10.77.0.3 worker 2] 10.77.0.2 22\n";
    ssh.gives(0, both);
    let ssh2 = cluster.sh(&folder, &format!("{report} --host 1 --connect ssh2"));
    ssh2.gives(0, "[10.77.0.2 worker 1] 10.77.0.1 2222\n");
    cluster
        .sh(&folder, &format!("{report} --host 1,2 --connect ssh2"))
        .gives(74, "")
        .err_has("host 2 (10.77.0.3): ssh_config has proxyjump")
        .err_has("use --connect ssh")
        .err_has("nothing was started");
}

/// What an ssh_config has for a person is not for a tool: nothing is lent to a host, and a second
/// connection is as good as the first.
/// An ip_config with names, as ssh_config of the launching machine has them; and one whose HostName
/// is an address that no interface of the host has first, as behind the gateway of a cloud.
#[test]
fn names_in_ip_config_on_real_hosts() {
    let folder = scratch();
    partition(&folder, 3);
    let cluster = Cluster::up(3);
    let config = "Host gpu0\n  HostName 10.77.0.1\nHost gpu1\n  HostName h2\nHost gpu2\n  \
                  HostName 203.0.113.7\n  HostKeyAlias h3\n";
    write(&cluster.lab.join("h1/ssh"), "config", config);
    let address = "ssh h3 'PATH=$PATH:/usr/sbin:/sbin; ip addr add 203.0.113.7/24 dev eth0'; \
        printf 'gpu0\\n%s@gpu1 30051\\ngpu2\\n' $(id -un) >ip.txt";
    cluster.run(&folder, address);
    cluster.stand_in_for_dgl(3, "2.1.0");
    let probe = format!("host-probe --python {PYTHON_WITH_STAND_IN}");
    cluster
        .sh(&folder, &format!("ipconf-check ip.txt | {probe}"))
        .ends(74)
        .err_has(
            "host 2 (gpu2, 203.0.113.7): 203.0.113.7 is not the first address of an interface \
             of the host (eth0 10.77.0.3); DGL would mistake the host for machine 0\n  fix: list \
             it by the address of its interface, and have ssh log in by the name: a first line \
             ip,login, then 10.77.0.3,gpu2",
        );
    let whole = "printf 'ip,port,login\\ngpu0,,\\n%s@gpu1,30051,\\n10.77.0.3,,gpu2\\n' $(id -un) \
            >hosts.csv
        ipconf-check hosts.csv | host-probe |
          part-map --part-config out/g.json --workspace /srv/job | part-push |
          dgl-env --role worker -- sh -c 'cat ip_config.txt; hostname' | dgl-spawn --format human";
    let ran = cluster.run(&folder, whole);
    let mut lines: Vec<&str> = ran.out.lines().collect();
    lines.sort_unstable();
    let tags = ["[10.77.0.3 worker 2]", "[gpu0 worker 0]", "[gpu1 worker 1]"];
    let printed = |(tag, host): (&str, &str)| {
        let lines = [
            "10.77.0.1 30050",
            "10.77.0.2 30051",
            "10.77.0.3 30050",
            host,
        ];
        lines.map(|line| format!("{tag} {line}"))
    };
    let expected = tags.into_iter().zip(["h3", "h1", "h2"]).flat_map(printed);
    assert_eq!(lines, expected.collect::<Vec<_>>(), "{}", ran.err);
}

#[test]
fn nothing_is_lent_to_real_hosts() {
    let (folder, cluster) = Cluster::listed(2);
    let config = "Host *\n  ForwardAgent yes\n  ForwardX11 yes\n  ForwardX11Trusted yes\n  \
        ExitOnForwardFailure yes\n  LocalForward 3456 127.0.0.1:22\n  \
                  RemoteForward 3457 127.0.0.1:22\n  DynamicForward 3458\n  PermitLocalCommand \
                  yes\n  LocalCommand touch /tmp/local-command\n";
    write(&folder, "config", config);
    let agent =
        "eval \"$(ssh-agent)\" >/dev/null; trap 'ssh-agent -k >/dev/null' EXIT; ssh-add -q \
         ~/.ssh/id_ed25519; rm -f /tmp/local-command;
        export DISPLAY=:9 DGL_TOOLS_CONNECT=ssh";
    let asks = "sh -c 'echo ${SSH_AUTH_SOCK-no agent}, ${DISPLAY-no display}, $(grep -c :0D81 \
        /proc/net/tcp) ports'";
    let job = format!(
        "dgl-env --role worker -- {asks} <hosts 2>/dev/null | \
         DGL_TOOLS_SSH_CONFIG=config dgl-spawn --host 1 --format human"
    );
    // that it would be lent: the user's own session has all of it, and holds the ports
    let script = format!(
        "{agent}; ipconf-check ip.txt >hosts
         ssh -F config h2 'echo ${{SSH_AUTH_SOCK:+agent}}; sleep 30' >own & own=$!
         until grep -qs agent own || ! kill -0 $own; do sleep 0.1; done; rm /tmp/local-command || \
             exit 9
         {job} && DGL_TOOLS_SSH_CONFIG=config host-probe --host 1 <hosts >/dev/null
         s=$?; kill $own; [ ! -e /tmp/local-command ] || exit 8; exit $s"
    );
    cluster
        .sh(&folder, &script)
        .ends(0)
        .out_has("[10.77.0.2 worker 1] no agent, no display, ");
    // alone: no port of ours is forwarded there
    cluster
        .sh(
            &folder,
            &format!("{agent}; {job}; test ! -e /tmp/local-command"),
        )
        .gives(0, "[10.77.0.2 worker 1] no agent, no display, 0 ports\n");
}

#[test]
fn known_hosts_of_real_hosts() {
    let (folder, cluster) = Cluster::listed(3);
    let begin = "ipconf-check ip.txt >hosts; cp ~/.ssh/known_hosts all";
    cluster.sh(&folder, begin).ends(0);

    // a last line without an end stays a line of its own, by either connector
    for connect in ["ssh2", "ssh"] {
        let script = format!(
            "export DGL_TOOLS_CONNECT={connect}; printf %s \"$(grep 10.77.0.2 all)\" \
             >~/.ssh/known_hosts
             DGL_TOOLS_HOST_KEY=accept-new host-probe --host 1,2 <hosts >/dev/null && \
             host-probe --host 1,2 <hosts >/dev/null &&
             wc -l <~/.ssh/known_hosts"
        );
        let got = cluster.sh(&folder, &script);
        assert_eq!(
            (got.status, got.out.trim()),
            (0, "2"),
            "{connect}: {}",
            got.err
        );
    }
    let empty = cluster.sh(
        &folder,
        ": >~/.ssh/known_hosts; DGL_TOOLS_HOST_KEY=accept-new host-probe --host 1 \
            <hosts >/dev/null; cat ~/.ssh/known_hosts",
    );
    empty.out_begins("10.77.0.2 ssh-ed25519 ");
    assert!(empty.out.lines().count() == 1, "{}{}", empty.out, empty.err);

    // keys that ssh_config revokes, or has a command for: ssh knows what to do, libssh2 does not
    let revoked = "cp all ~/.ssh/known_hosts; grep 10.77.0.2 all | cut -d' ' -f2,3 >revoked; echo \
        \"RevokedHostKeys $PWD/revoked\" >config;
        DGL_TOOLS_SSH_CONFIG=config host-probe --host 1,2 <hosts >out";
    let ssh2 = cluster.sh(
        &folder,
        &format!("export DGL_TOOLS_CONNECT=ssh2; {revoked}"),
    );
    ssh2.ends(74);
    for report in [
        "host 1 (10.77.0.2): ssh_config has revokedhostkeys ",
        "host 2 (10.77.0.3): ssh_config has ",
        "fix: use --connect ssh",
    ] {
        ssh2.err_has(report);
    }
    let ssh = cluster.sh(
        &folder,
        &format!(
            "export DGL_TOOLS_CONNECT=ssh; {revoked}; s=$?; jq -r '.ok != false' out; exit $s"
        ),
    );
    ssh.ends(74)
        .err_has("host-probe: host 1 (10.77.0.2): ")
        .err_has("revoked")
        .err_has("fix: do not connect; ask the administrator of the host");
    assert_eq!(ssh.out, "true\nfalse\ntrue\n", "{}", ssh.err);
    let command =
        "grep 10.77.0.2 all >known; : >~/.ssh/known_hosts; printf '#!/bin/sh\\ncat %s/known\\n' \
         \"$PWD\" >/tmp/knows; chmod 755 /tmp/knows;
        echo 'KnownHostsCommand /tmp/knows' >config
        DGL_TOOLS_SSH_CONFIG=config host-probe --host 1 <hosts >out";
    cluster
        .sh(
            &folder,
            &format!("export DGL_TOOLS_CONNECT=ssh2; {command}"),
        )
        .ends(74)
        .err_has("ssh_config has knownhostscommand /tmp/knows");
    cluster
        .sh(
            &folder,
            &format!("export DGL_TOOLS_CONNECT=auto; {command}"),
        )
        .ends(0);
}

/// Values that `ssh -G` prints as they are: `none` is no file, and names of keys have tokens.
#[test]
fn files_that_ssh_config_names_on_real_hosts() {
    let (folder, cluster) = Cluster::listed(2);
    let probe = "DGL_TOOLS_SSH_CONFIG=config host-probe --host 1 <hosts >out";
    let begin = "ipconf-check ip.txt >hosts; cp ~/.ssh/known_hosts none; echo 'UserKnownHostsFile \
        none' >config; export DGL_TOOLS_CONNECT=ssh2";
    let strict = cluster.sh(&folder, &format!("{begin}; : >~/.ssh/known_hosts; {probe}"));
    strict.ends(74);
    assert!(
        strict.err.contains("its key is not in known_hosts")
            || strict.err.contains("these keys are not in known_hosts"),
        "{}",
        strict.err
    );
    let accept = cluster.sh(
        &folder,
        &format!("{begin}; rm none; DGL_TOOLS_HOST_KEY=accept-new {probe}"),
    );
    accept
        .ends(74)
        .err_has("no known_hosts file to write its key to");
    assert!(!folder.join("none").exists());

    let key = "export DGL_TOOLS_CONNECT=ssh2; [ -e key ] || { cp ~/.ssh/id_ed25519 key; mv \
        ~/.ssh/id_ed25519 ~/.ssh/id-$(id -un); }; printf 'IdentitiesOnly yes\\nIdentityFile ";
    let known = "\\n' >config";
    cluster
        .sh(
            &folder,
            &format!("{key}%%d/.ssh/id-%%r{known}; DGL_TOOLS_HOST_KEY=accept-new {probe}"),
        )
        .ends(0);
    for file in ["%%d/.ssh/id-%%C", ".ssh/id-root"] {
        let refused = cluster.sh(&folder, &format!("{key}{file}{known}; {probe}"));
        assert_eq!(refused.status, 74, "{file}: {}", refused.err);
        assert!(
            refused.err.contains("ssh_config has identityfile ")
                && refused.err.contains("fix: use --connect ssh"),
            "{file}: {}",
            refused.err
        );
    }
}

#[test]
fn a_connection_that_breaks_is_told_in_words_on_real_hosts() {
    let (folder, cluster) = Cluster::listed(2);
    // ends the sshd that it runs below
    let kills = "p=$$; until grep -q ^sshd /proc/$p/comm; do read -r _ _ _ p _ </proc/$p/stat; \
        done; kill -9 $p; sleep 60";
    for connect in ["ssh2", "ssh"] {
        let script = format!(
            "ipconf-check ip.txt | dgl-env --role worker -- sh -c '{kills}' 2>/dev/null |
             dgl-spawn --no-preflight --host 1 --format human --connect {connect}"
        );
        let got = cluster.sh(&folder, &script);
        got.ends(74);
        let report = got
            .err
            .lines()
            .find(|line| line.contains("host 1 (10.77.0.2) was lost: "))
            .unwrap_or_default();
        assert!(
            report.to_lowercase().contains("connection") && report.contains("closed"),
            "{connect}: {}",
            got.err
        );
        got.err_lacks("transport read");
        cluster.assert_clean();
    }
}

/// Nothing has been started then, and 40 hosts that do not answer would take minutes.
#[test]
fn slow_ctrl_c_while_hosts_are_connected_to_ends_a_tool() {
    let folder = scratch();
    let hosts: String = (1..=40).map(|host| format!("10.66.0.{host}\n")).collect();
    write(&folder, "ip.txt", hosts);
    write(&folder, "file", "content");
    executable(
        &folder,
        "silent",
        "#!/bin/sh\necho >>tried\nexec sleep 300\n",
    );
    let tools = [
        ("dgl-env --role worker -- true", "dgl-spawn --no-preflight"),
        ("part-map --workspace /w --extra file", "part-push"),
        (
            "part-map --workspace /w --extra file",
            "part-pull --to got model.pt",
        ),
    ];
    for (stage, tool) in tools {
        for connect in ["./silent {ip}", "dial ./silent"] {
            let _ = std::fs::remove_file(folder.join("tried"));
            // a shell lets what it starts behind it ignore SIGINT
            let script = format!(
                "export DGL_TOOLS_DIAL_ADDRESS=127.0.0.1 DGL_TOOLS_CONNECT_TIMEOUT=100s
                 ipconf-check ip.txt | {stage} | env --default-signal=INT {tool} \
                 --connect '{connect}' >out & \
                 until [ -e tried ] || ! kill -0 $!; do sleep 0.1; done; kill -INT $!; wait $!"
            );
            let begun = Instant::now();
            let got = sh(&folder, &script);
            got.ends(130);
            // each of the hosts would be waited for longer
            let limit = Duration::from_secs(100);
            assert!(begun.elapsed() < limit, "{tool} {connect}");
            got.err_lacks("10.66.0.40");
            let tried = read(&folder, "tried");
            assert!(tried.lines().count() <= 16, "{tool} {connect}");
        }
    }
}

#[test]
fn an_empty_variable_counts_as_unset() {
    let folder = scratch();
    write(&folder, "ip.txt", "127.0.0.1\n");
    let variables = [
        "CONNECT",
        "CONNECT_TIMEOUT",
        "SSH_PORT",
        "SSH_USERNAME",
        "IDENTITY",
        "SSH_CONFIG",
        "HOST_KEY",
        "DIAL_ADDRESS",
        "DIAL_PORT",
        "DATA_PORT",
        "AGENTS",
        "AGENT_DIR",
    ];
    let empty = variables.map(|name| format!("DGL_TOOLS_{name}= "));
    let list = format!("ipconf-check ip.txt | {} dgl-reap --list", empty.concat());
    sh(&folder, &list).ends(0);
}
