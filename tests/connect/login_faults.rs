//! Logins that fail or hang in ways that people report, with real sshd: an agent that never
//! answers, forced commands, jump hosts that refuse, keys that use up the tries, and programs of
//! this machine that do not finish.

use crate::logins::{configure, refusals, with_records};
use std::time::{Duration, Instant};
use support::{executable, scratch, sh, write};

/// Answers no request, as a forwarded agent behind a dead connection.
const SILENT_AGENT: &str = "import socket, time
s = socket.socket(socket.AF_UNIX); s.bind('agent.sock'); s.listen(64); time.sleep(100)
";

#[test]
fn real_hosts_are_logged_in_to_by_key_files_though_the_agent_never_answers() {
    let (folder, cluster) = with_records(2);
    write(&folder, "silent.py", SILENT_AGENT);
    let with_agent = |script: &str| {
        let script = format!(
            "python3 silent.py & p=$!; until [ -S agent.sock ]; do sleep 0.05; done
             export SSH_AUTH_SOCK=$PWD/agent.sock; {script}; s=$?; kill $p; rm agent.sock; exit $s"
        );
        cluster.sh(&folder, &script)
    };
    // without another key
    let none = "mv ~/.ssh/id_ed25519 kept; timeout 30 host-probe --host 1 --connect {} <hosts >p; \
        r=$?; mv kept ~/.ssh/id_ed25519; (exit $r)";
    for connect in ["ssh2", "ssh"] {
        with_agent(&none.replace("{}", connect))
            .ends(74)
            .err_has("the ssh-agent at ")
            .err_has("agent.sock (SSH_AUTH_SOCK) does not answer, so its keys were not tried");
    }
    // the socket of an earlier login
    let gone = "export SSH_AUTH_SOCK=$PWD/gone.sock; ";
    let gone = format!("{gone}{}", none.replace("{}", "auto"));
    cluster
        .sh(&folder, &gone)
        .ends(74)
        .err_has("no ssh-agent answers at ")
        .err_has("a session of tmux or screen keeps the value of an earlier login");
    // last, because a connection of ssh stays open
    for connect in ["auto", "ssh2", "ssh"] {
        let probe = format!("timeout 30 host-probe --host 1 --connect {connect} <hosts >probed");
        with_agent(&probe).ends(0);
    }
}

/// As images of clouds have it for root.
#[test]
fn a_forced_command_of_real_hosts_is_quoted() {
    let (folder, cluster) = with_records(2);
    let forced = "cd ~/.ssh && cp authorized_keys kept && sed -i 's/^/no-pty,command=\"echo Please \
        login as the user ubuntu; sleep 10; exit 142\" /' authorized_keys";
    cluster.on(2, forced).ends(0);
    let probe = "DGL_TOOLS_CONNECT_TIMEOUT=4s host-probe --host 1 <hosts >probed";
    cluster
        .sh(&folder, probe)
        .ends(74)
        .err_has("the login runs another program than a shell")
        .err_has("it printed: Please login as the user ubuntu")
        .err_has("in DGL_TOOLS_SSH_USERNAME");
}

#[test]
fn a_jump_host_that_refuses_is_asked_once_for_all_real_hosts_behind_it() {
    let (folder, cluster) = with_records(4);
    write(
        &folder,
        "config",
        "Host 10.77.0.3 10.77.0.4\n ProxyJump 10.77.0.2\n",
    );
    cluster
        .on(2, "mv ~/.ssh/authorized_keys ~/.ssh/away")
        .ends(0);
    let probe = "DGL_TOOLS_SSH_CONFIG=config timeout 60 host-probe --host 2,3 <hosts >probed";
    let began = Instant::now();
    cluster
        .sh(&folder, probe)
        .ends(74)
        .err_has("the ProxyJump or ProxyCommand of ssh_config does not reach it: ")
        .err_has("Permission denied (publickey");
    // As a master, and for a session that shows what the jump host says. The second host waits 2 s
    // for the first one, which is too short on a busy machine.
    let most = if began.elapsed() < Duration::from_secs(4) {
        2
    } else {
        4
    };
    assert!(refusals(&cluster, 2) <= most, "{}", refusals(&cluster, 2));
}

#[test]
fn keys_that_use_up_the_tries_of_real_hosts_are_offered_once_by_each_connector() {
    let (folder, cluster) = with_records(2);
    configure(&cluster, 2, "MaxAuthTries 3");
    let agent = "for i in 1 2 3 4 5; do ssh-keygen -q -t ed25519 -N '' -f k$i; done
        eval $(ssh-agent) >agent && ssh-add -q k1 k2 k3 k4 k5
        host-probe --host 1 <hosts >probed; s=$?; kill $SSH_AGENT_PID; exit $s";
    cluster
        .sh(&folder, agent)
        .ends(74)
        .err_has("the host closed the connection while ")
        .err_has(", after it had refused ")
        .err_has("IdentityFile with `IdentitiesOnly yes` in ssh_config");
    assert!(refusals(&cluster, 2) <= 2, "{}", refusals(&cluster, 2));
}

#[test]
fn a_key_of_another_port_and_a_file_of_keys_that_cannot_be_read_on_real_hosts() {
    let (folder, cluster) = with_records(2);
    configure(&cluster, 2, "Port 22\nPort 2222");
    let probe = |environment: &str, connect: &str| {
        let script =
            format!("{environment} host-probe --host 1 --connect {connect} <hosts >probed");
        cluster.sh(&folder, &script)
    };
    // with another key for that port, the key of port 22 is no key for it
    let other = "ssh-keygen -q -t ed25519 -N '' -f other </dev/null; cp ~/.ssh/known_hosts all; \
        echo \"[10.77.0.2]:2222 $(cut -d' ' -f1,2 other.pub)\" >>~/.ssh/known_hosts";
    cluster.run(&folder, other);
    for connect in ["ssh2", "ssh"] {
        probe("DGL_TOOLS_SSH_PORT=2222", connect)
            .ends(74)
            .err_has("its key is not the one that known_hosts has for [10.77.0.2]:2222 (");
        probe("", connect).ends(0);
    }
    cluster.run(&folder, "mv all ~/.ssh/known_hosts");
    for connect in ["ssh2", "ssh"] {
        probe("DGL_TOOLS_SSH_PORT=2222", connect).ends(0);
    }
    // a loop of links is no file without keys
    let config = format!("UserKnownHostsFile {}/loop\n", folder.display());
    write(&folder, "config", config);
    cluster.run(&folder, "ln -s loop loop");
    probe(
        "DGL_TOOLS_SSH_CONFIG=config DGL_TOOLS_HOST_KEY=accept-new",
        "ssh2",
    )
    .ends(74)
    .err_has("its key cannot be looked up in known_hosts: ")
    .err_has("/loop: Too many levels of symbolic links");
}

/// What `Match exec` leaves keeps the output of `ssh -G` open.
#[test]
fn slow_programs_of_this_machine_are_waited_for_within_the_limit() {
    let folder = scratch();
    write(
        &folder,
        "config",
        "Match exec \"sleep 71 & true\"\n Port 9\nHost *\n User nobody\n",
    );
    write(&folder, "names", "localhost\n");
    let resolved = sh(
        &folder,
        "DGL_TOOLS_SSH_CONFIG=config timeout 20 ipconf-check names >hosts; s=$?; \
         for i in $(seq 50); do pgrep -fx 'sleep 71' >left || break; sleep 0.1; done; exit $s",
    );
    resolved.ends(0);
    assert_eq!(support::read(&folder, "left"), "", "it still runs");
    // many lines, through a pipe that holds a page of them
    executable(
        &folder,
        "ssh",
        "#!/bin/sh\ni=0; while [ $i -lt 20000 ]; do echo setenv A$i=some value; i=$((i+1)); done\n\
         echo hostname 127.0.0.1\n",
    );
    let long = sh(&folder, "PATH=$PWD:$PATH timeout 20 ipconf-check names");
    long.ends(0).out_has("127.0.0.1");
}

#[test]
fn what_a_setup_leaves_in_the_background_is_ended() {
    let folder = scratch();
    write(&folder, "names", "127.0.0.1\n");
    for setup in [
        "sleep 72 & :",
        "setsid sleep 72 & :",
        "(sleep 72 &) >/dev/null 2>&1",
    ] {
        let probe = format!(
            "ipconf-check names | timeout 60 host-probe --connect local --setup '{setup}' >probed; \
             s=$?; for i in $(seq 50); do pgrep -fx 'sleep 72' >left || break; sleep 0.1; done; \
             exit $s"
        );
        sh(&folder, &probe).ends(0);
        assert_eq!(support::read(&folder, "left"), "", "{setup}");
    }
}

/// As below daemons, below `trap '' CHLD` and below Python with SIG_IGN.
#[test]
fn slow_tools_whose_caller_ignores_the_end_of_children_notice_it_nevertheless() {
    let folder = scratch();
    write(&folder, "names", "127.0.0.1\n");
    let job = "trap '' CHLD; ipconf-check names | host-probe --connect local |
        dgl-env --role worker -- sh -c 'exit 3' |
        timeout 30 dgl-spawn --connect local --format human";
    sh(&folder, job).ends(3);
    // signals that the caller has blocked
    let blocked = "import os, signal, subprocess, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT, signal.SIGCHLD])
job = subprocess.Popen(
    'dgl-env --role worker -- sleep 100 <probed | exec dgl-spawn --connect local', shell=True,
    executable='/bin/bash', start_new_session=True, stdout=subprocess.DEVNULL)
import time; time.sleep(2)
os.killpg(job.pid, signal.SIGTERM)
sys.exit(job.wait(30) in (143, -15))
";
    write(&folder, "blocked.py", blocked);
    let ended = sh(
        &folder,
        "ipconf-check names | host-probe --connect local >probed && python3 blocked.py",
    );
    ended.ends(1);
}
