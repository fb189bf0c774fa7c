//! Logins by ssh: which connector logs in, what ssh_config asks for, and what is told of a host
//! that refuses. Each with real sshd.

use std::path::{Path, PathBuf};
use support::{Cluster, Ran, partition, soon, write};

/// Hosts and a directory with `hosts`, the records of all of them.
pub fn with_records(count: u32) -> (PathBuf, Cluster) {
    let (folder, cluster) = Cluster::listed(count);
    cluster.run(&folder, "ipconf-check ip.txt >hosts");
    (folder, cluster)
}

/// Gives a host's sshd these lines in front of its configuration.
pub fn configure(cluster: &Cluster, host: u32, lines: &str) {
    let folder = cluster.lab.join(format!("h{host}"));
    let (file, first) = (folder.join("sshd_config"), folder.join("sshd_config.first"));
    if !first.exists() {
        std::fs::copy(&file, &first).unwrap();
    }
    let text = std::fs::read_to_string(first).unwrap();
    std::fs::write(&file, format!("{lines}\n{text}")).unwrap();
    let pid = folder.join("sshd.pid");
    let again = format!(
        "pid=$(cat {pid}) && rm {pid} && kill -HUP $pid && until [ -s {pid} ]; do sleep 0.05; done",
        pid = pid.display()
    );
    cluster.on(host, &again).ends(0);
}

/// How often a host's sshd ended a login that it had not let in.
pub fn refusals(cluster: &Cluster, host: u32) -> usize {
    let log = std::fs::read_to_string(cluster.lab.join(format!("h{host}/sshd.log"))).unwrap();
    log.matches("by authenticating user").count()
}

/// The connectors that host-probe has written into the records.
fn connectors(cluster: &Cluster, folder: &Path, probe: &str) -> Ran {
    let script = format!("{probe} <hosts | jq -r '.connect // \"-\"'");
    cluster.sh(folder, &script)
}

#[test]
fn each_of_real_hosts_is_logged_in_to_by_what_can_and_the_pipeline_remembers() {
    let (folder, cluster) = with_records(3);
    partition(&folder, 3);
    let config = "Host 10.77.0.3\n ProxyJump 10.77.0.2\nHost *\n GSSAPIAuthentication yes\n";
    write(&folder, "config", config);
    let probe = "DGL_TOOLS_SSH_CONFIG=config host-probe";
    // host 0 is this machine
    connectors(&cluster, &folder, probe).gives(0, "-\nssh2\nssh\n");
    let pipeline = format!(
        "export DGL_TOOLS_SSH_CONFIG=config
         part-map --part-config out/g.json --workspace /srv/job <hosts | part-push >pushed.jsonl &&
         jq -r 'select(.type == \"host\") | .connect // \"-\"' pushed.jsonl &&
         dgl-env --role worker -- sh -c 'cat data/part*/graph.dgl | wc -l' <pushed.jsonl |
         dgl-spawn --format human | sort &&
         part-pull --workspace /srv/job --to got ip_config.txt <pushed.jsonl >got.jsonl &&
         ls got | wc -l; {probe} --connect ssh2 <hosts >probed"
    );
    let ran = cluster.sh(&folder, &pipeline);
    ran.ends(74)
        .err_has("host 2 (10.77.0.3): ssh_config has proxyjump [10.77.0.2] for it, which libssh2")
        .err_has("fix: use --connect ssh, or --connect auto")
        .out_begins("-\nssh2\nssh\n")
        .out_has("[10.77.0.3 worker 2] 1\n")
        .out_has("\n3\n");
    // a record is believed, and --connect all the same
    let remembered = "jq -c '.connect = \"ssh\"' <hosts | host-probe --host 1";
    let log = cluster.lab.join("h2/sshd.log");
    let all = format!(
        "{remembered} --connect auto | jq -r .connect | sed -n 2p; {remembered} | \
         jq -r .connect | sed -n 2p"
    );
    cluster.sh(&folder, &all).gives(0, "ssh2\nssh\n");
    assert!(log.exists());
    // and never run
    let command = "jq -c '.connect = \"touch ran\"' <hosts | host-probe";
    cluster
        .sh(&folder, command)
        .ends(65)
        .err_has("unknown variant `touch ran`, expected `ssh2` or `ssh`");
    assert!(!folder.join("ran").exists());
    cluster.assert_clean();
}

#[test]
fn processes_on_real_hosts_have_the_umask_of_a_login() {
    let (folder, cluster) = with_records(2);
    let login = cluster.sh(&folder, "ssh -n h2 sh -c umask");
    login.ends(0);
    let expected = format!("[10.77.0.2 worker 0] {}", login.out);
    for connector in ["ssh2", "ssh"] {
        let job = format!(
            "echo 10.77.0.2 | ipconf-check | dgl-env --role worker -- sh -c umask | \
             dgl-spawn --connect {connector} --format human"
        );
        cluster.sh(&folder, &job).gives(0, &expected);
    }
    cluster.assert_clean();
}

#[test]
fn one_connection_of_ssh_serves_a_pipeline_on_real_hosts() {
    let (folder, cluster) = with_records(2);
    let accepted = || {
        let log = std::fs::read_to_string(cluster.lab.join("h2/sshd.log")).unwrap();
        log.matches("Accepted publickey").count()
    };
    let probe = "host-probe --host 1 --connect ssh <hosts >probed";
    let before = accepted();
    cluster.run(
        &folder,
        &format!("{probe} && {probe} && ls -l /tmp/dgl-tools-ssh-*"),
    );
    assert_eq!(accepted() - before, 1);
    // below $XDG_RUNTIME_DIR, unless the path is too long
    let long = "x".repeat(60);
    cluster.run(
        &folder,
        &format!(
            "mkdir -m 700 /tmp/run /tmp/{long} && XDG_RUNTIME_DIR=/tmp/run {probe} && \
             ls /tmp/run/dgl-tools/*.lock && \
             XDG_RUNTIME_DIR=/tmp/{long} {probe} && ! ls /tmp/{long}/dgl-tools/*.lock"
        ),
    );
    assert_eq!(accepted() - before, 2);
    // a directory that others can write is not used
    let closed = "rm -rf /tmp/dgl-tools-ssh-* && mkdir -m 777 /tmp/dgl-tools-ssh-$(id -u)";
    cluster.run(
        &folder,
        &format!("{closed} && {probe} && ! ls /tmp/dgl-tools-ssh-*/*"),
    );
    assert_eq!(accepted() - before, 3);
    // a master of the user's own
    write(&folder, "config", "Host *\n ControlPath /tmp/own-%C\n");
    cluster.run(
        &folder,
        &format!(
            "ssh -F config -M -N -f 10.77.0.2 && DGL_TOOLS_SSH_CONFIG=config {probe}; s=$?; \
             ssh -F config -O exit 10.77.0.2; exit $s"
        ),
    );
    assert_eq!(accepted() - before, 4);
    // one that takes no more sessions
    configure(&cluster, 2, "MaxSessions 1");
    let two = "rmdir /tmp/dgl-tools-ssh-*; export DGL_TOOLS_CONNECT=ssh
        dgl-env --role worker -- sleep 60 <hosts 2>err >job
        dgl-spawn --host 1 --job long <job >long & job=$!
        until grep -q started long; do sleep 0.1; done
        dgl-reap --host 1 --job long <hosts; s=$?; wait $job; exit $s";
    cluster.sh(&folder, two).ends(0).out_has("\"job\":\"long\"");
    cluster.assert_clean();
}

#[test]
fn real_hosts_that_refuse_a_login_are_tried_as_little_as_possible() {
    let (folder, cluster) = with_records(4);
    for host in 2..=4 {
        cluster
            .on(host, "mv ~/.ssh/authorized_keys ~/.ssh/away")
            .ends(0);
    }
    let probe = "host-probe --host 1,2,3";
    let both = cluster.sh(&folder, &format!("{probe} <hosts >probed"));
    let user = support::sh(&folder, "id -un && eval echo ~$(id -un)").out;
    let (user, home) = user.trim().split_once('\n').unwrap();
    both.ends(74)
        .err_has(&format!(
            "login refused for {user}: tried {home}/.ssh/id_ed25519; the host offers publickey"
        ))
        .err_has(&format!("; so was ssh: {user}@10.77.0."))
        .err_has("then `ssh -o BatchMode=yes ");
    // once by each connector
    let counts: Vec<usize> = (2..=4).map(|host| refusals(&cluster, host)).collect();
    assert!(counts.iter().all(|count| *count <= 2), "{counts:?}");
    // an agent that refuses to sign is no host that asks for more
    let asks = "eval $(ssh-agent) >agent && ssh-add -qc ~/.ssh/id_ed25519 && mv ~/.ssh/id_ed25519 \
        kept; export SSH_ASKPASS=/bin/false; host-probe --host 1 <hosts >probed; s=$?; mv kept \
        ~/.ssh/id_ed25519; kill $SSH_AGENT_PID; exit $s";
    cluster
        .on(2, "mv ~/.ssh/away ~/.ssh/authorized_keys")
        .ends(0);
    let unsigned = cluster.sh(&folder, asks);
    unsigned
        .ends(74)
        .err_has(&format!("login refused for {user}: tried "))
        .err_has(" (agent), which did not sign")
        .err_has("agent refused operation")
        .err_lacks("asks for more");
    // nothing that listens
    for connect in ["ssh2", "ssh"] {
        let closed = format!(
            "DGL_TOOLS_SSH_PORT=2222 host-probe --host 1 --connect {connect} <hosts >probed"
        );
        cluster
            .sh(&folder, &closed)
            .ends(74)
            .err_has("Connection refused")
            .err_has("fix: check that the host is up and its sshd listens");
    }
    // a key of another host is no reason to try again
    cluster.run(
        &folder,
        "ssh-keygen -q -t ed25519 -N '' -f other </dev/null; cp ~/.ssh/known_hosts all; \
         sed \"s|^10.77.0.2,h2 .*|10.77.0.2,h2 $(cut -d' ' -f1,2 other.pub)|\" all >known; \
         cp known ~/.ssh/known_hosts",
    );
    for connect in ["auto", "ssh2", "ssh"] {
        let before = refusals(&cluster, 2);
        let changed = format!("host-probe --host 1 --connect {connect} <hosts >probed");
        let changed = cluster.sh(&folder, &changed);
        changed
            .ends(74)
            .err_has("its key is not the one that known_hosts has for 10.77.0.2 (/")
            .err_has("/known_hosts:2): another host answers")
            .err_lacks("so was ssh");
        assert_eq!(refusals(&cluster, 2), before, "{connect}");
        // the command that is told
        let (_, command) = changed.err.split_once("forget the old key: ").unwrap();
        let command = command.lines().next().unwrap();
        let forgotten = format!(
            "{command} 2>&1 && ! grep -q 10.77.0.2 ~/.ssh/known_hosts && cp known \
             ~/.ssh/known_hosts"
        );
        cluster.run(&folder, &forgotten);
    }
}

#[test]
fn what_a_host_says_before_it_hangs_up_on_real_hosts() {
    if support::only_root_can("use PAM on a host") {
        return;
    }
    let (folder, cluster) = with_records(2);
    let deny = "#!/bin/sh\n[ ! -e /srv/closed ] || { echo 'you have no active jobs on this node'; \
        exit 1; }\n";
    let pam = "auth required pam_permit.so\naccount required pam_exec.so stdout /srv/deny\n\
        session required pam_permit.so\n";
    write(&folder, "pam", pam);
    write(&folder, "deny", deny);
    let here = folder.display();
    cluster
        .on(
            2,
            &format!(
                "cp {here}/deny /srv/deny && chmod 755 /srv/deny && touch /srv/closed && \
                 mount --bind {here}/pam /etc/pam.d/sshd"
            ),
        )
        .ends(0);
    configure(&cluster, 2, "UsePAM yes");
    let probe = "DGL_TOOLS_CONNECT_TIMEOUT=3s host-probe --host 1 <hosts >probed";
    for connect in ["auto", "ssh"] {
        cluster
            .sh(
                &folder,
                &format!("export DGL_TOOLS_CONNECT={connect}; {probe}"),
            )
            .ends(74)
            .err_has("you have no active jobs on this node");
    }
    cluster
        .sh(&folder, &format!("export DGL_TOOLS_CONNECT=ssh2; {probe}"))
        .ends(74)
        .err_has("the host closed the connection while root logged in");
    // for a moment only
    let later = "(sleep 2; ssh h2 true; rm -f /tmp/x) & DGL_TOOLS_CONNECT_TIMEOUT=20s host-probe \
        --host 1 <hosts >probed; s=$?; wait; exit $s";
    std::thread::scope(|threads| {
        threads.spawn(|| {
            std::thread::sleep(std::time::Duration::from_secs(2));
            cluster.on(2, "rm /srv/closed").ends(0);
        });
        cluster.sh(&folder, later).ends(0);
    });
}

#[test]
fn certificates_of_real_hosts_log_in_until_they_expire() {
    let (folder, cluster) = with_records(2);
    let make = "ssh-keygen -q -t ed25519 -N '' -f ca </dev/null && ssh-keygen -q -t ed25519 -N '' \
        -f key </dev/null && ssh-keygen -q -s ca -I ann -n $(id -un) -V -1d:+1d key.pub && \
        ssh-keygen -Lf key-cert.pub >/dev/null";
    cluster.run(&folder, make);
    let authority = folder.join("ca.pub");
    configure(
        &cluster,
        2,
        &format!("TrustedUserCAKeys \"{}\"", authority.display()),
    );
    cluster
        .on(2, "mv ~/.ssh/authorized_keys ~/.ssh/away")
        .ends(0);
    let probe = "DGL_TOOLS_IDENTITY=$PWD/key host-probe --host 1";
    connectors(&cluster, &folder, probe).gives(0, "-\nssh\n");
    let expired =
        "ssh-keygen -q -s ca -I ann -n $(id -un) -V 20200101000000Z:20200102000000Z key.pub";
    cluster.run(&folder, expired);
    cluster
        .sh(
            &folder,
            &format!("export XDG_RUNTIME_DIR=/srv; {probe} <hosts >probed"),
        )
        .ends(74)
        .err_has("key-cert.pub expired on 2020-01-02T00:00:00Z")
        .err_has("fix: get a new certificate");
    // of hosts
    let host_key = cluster.lab.join("h2/key");
    cluster.run(
        &folder,
        &format!(
            "ssh-keygen -q -s ca -I h2 -h -n 10.77.0.2 {key}.pub && cp ~/.ssh/known_hosts all && \
             printf '@cert-authority * %s\\n' \"$(cat ca.pub)\" >~/.ssh/known_hosts",
            key = host_key.display()
        ),
    );
    configure(
        &cluster,
        2,
        &format!("HostCertificate \"{}-cert.pub\"", host_key.display()),
    );
    cluster
        .on(2, "mv ~/.ssh/away ~/.ssh/authorized_keys")
        .ends(0);
    connectors(&cluster, &folder, "host-probe --host 1").gives(0, "-\nssh\n");
}

#[test]
fn real_hosts_that_trust_another_host_are_logged_in_to_by_ssh() {
    if support::only_root_can("read host keys in /etc/ssh") {
        return;
    }
    let (folder, cluster) = with_records(2);
    let here = folder.display();
    // ssh-keysign reads only the files of /etc/ssh
    let client = format!(
        "mkdir -m 755 /srv/ssh && cp -r /etc/ssh/. /srv/ssh && rm -f /srv/ssh/ssh_host_* && \
         ssh-keygen -q -t ed25519 -N '' -f /srv/ssh/ssh_host_ed25519_key </dev/null && \
         printf 'EnableSSHKeysign yes\nHostbasedAuthentication yes\n' >/srv/ssh/ssh_config && \
         mount --bind /srv/ssh /etc/ssh && cut -d' ' -f1,2 /etc/ssh/ssh_host_*.pub >{here}/key"
    );
    cluster.on(1, &client).ends(0);
    // the hosts share the home directory, so this one gets another
    let trusting = format!(
        "mkdir -m 755 /srv/home && cp -r ~/.ssh /srv/home && cd /srv/home && \
         mv .ssh/authorized_keys .ssh/away && echo \"h1 $(cat {here}/key)\" >>.ssh/known_hosts && \
         echo h1 $(id -un) >.shosts"
    );
    cluster.on(2, &trusting).ends(0);
    let settings = "HostbasedAuthentication yes\nHostbasedUsesNameFromPacketOnly yes\n\
        IgnoreRhosts no";
    configure(&cluster, 2, settings);
    cluster.on(2, "mount --bind /srv/home ~").ends(0);
    connectors(&cluster, &folder, "host-probe --host 1").gives(0, "-\nssh\n");
    let log = std::fs::read_to_string(cluster.lab.join("h2/sshd.log")).unwrap();
    assert!(log.contains("Accepted hostbased for "), "{log}");
    cluster
        .sh(&folder, "host-probe --host 1 --connect ssh2 <hosts >probed")
        .ends(74)
        .err_has("the host offers publickey,keyboard-interactive,hostbased");
}

const KERBEROS: &str = "[libdefaults]
 default_realm = LAB
 dns_lookup_kdc = false
 dns_canonicalize_hostname = false
 rdns = false
 default_keytab_name = FILE:/srv/keytab
 default_ccache_name = FILE:/srv/tickets
[realms]
 LAB = {
  kdc = 10.77.0.1
  database_name = /srv/kdc/principal
  key_stash_file = /srv/kdc/stash
 }
[domain_realm]
 h2 = LAB
";

#[test]
fn a_ticket_of_kerberos_logs_in_to_real_hosts() {
    if support::only_root_can("give a host a configuration of Kerberos") {
        return;
    }
    for program in ["krb5kdc", "kadmin.local", "kinit"] {
        if support::sh(Path::new("/"), &format!("command -v {program}")).status != 0 {
            assert!(std::env::var_os("CI").is_none(), "no {program}");
            support::skipped!("no {program} here");
            return;
        }
    }
    let (folder, cluster) = with_records(2);
    write(&folder, "krb5.conf", KERBEROS);
    write(&folder, "config", "GSSAPIAuthentication yes\n");
    let environment = "export KRB5_CONFIG=$PWD/krb5.conf KRB5_KDC_PROFILE=$PWD/krb5.conf \
        DGL_TOOLS_SSH_CONFIG=config";
    let kdc = format!(
        "{environment}; mkdir /srv/kdc && kdb5_util create -s -P pass -r LAB && \
         for name in root host/h2; do kadmin.local -q \"addprinc -randkey $name\" || exit; done && \
         kadmin.local -q 'ktadd -k user.keytab root' && \
         kadmin.local -q 'ktadd -k host.keytab host/h2' && krb5kdc -P /srv/kdc/pid && \
         echo h2 | ipconf-check >hosts"
    );
    cluster.run(&folder, &kdc);
    let here = folder.display();
    let host = format!(
        "cp {here}/host.keytab /srv/keytab && mount --bind {here}/krb5.conf /etc/krb5.conf && \
         mv ~/.ssh/authorized_keys ~/.ssh/away"
    );
    cluster.on(2, &host).ends(0);
    configure(
        &cluster,
        2,
        "GSSAPIAuthentication yes\nGSSAPIStrictAcceptorCheck no",
    );
    let probe = format!("{environment}; host-probe");
    let without = cluster.sh(&folder, &format!("{probe} <hosts >probed"));
    without
        .ends(74)
        .err_has("the host offers publickey,gssapi-")
        .err_has("with Kerberos, `klist` must show a ticket");
    let with = format!("{environment}; kinit -k -t user.keytab root && host-probe");
    connectors(&cluster, &folder, &with).gives(0, "ssh\n");
    let log = std::fs::read_to_string(cluster.lab.join("h2/sshd.log")).unwrap();
    assert!(log.contains("Accepted gssapi-with-mic for root"), "{log}");
}

/// Types an answer to each question; counts the questions.
const TYPIST: &str = "import os, pty, select, sys
pid, master = pty.fork()
if pid == 0:
    os.execvp('sh', ['sh', '-c', sys.argv[1]])
said = b''
asked = 0
while True:
    try:
        data = os.read(master, 4096)
    except OSError:
        break
    if not data:
        break
    said += data
    if said.count(b'assword:') > asked:
        asked += 1
        os.write(master, b'open sesame\\n')
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
print(said.decode(errors='replace'), file=sys.stderr)
print(asked, status)
";

#[test]
fn a_second_factor_is_asked_for_once_on_a_terminal_of_real_hosts() {
    if support::only_root_can("give a user of a host a password") {
        return;
    }
    let (folder, cluster) = with_records(3);
    write(&folder, "typist.py", TYPIST);
    let shadow = "cp /etc/shadow /srv/shadow && hash=$(openssl passwd -6 'open sesame') && \
        sed -i \"s|^root:[^:]*:|root:$hash:|\" /srv/shadow && mount --bind /srv/shadow /etc/shadow";
    // a password of sshd's own, and a question of PAM
    write(
        &folder,
        "pam",
        "auth required pam_unix.so\naccount required pam_permit.so\n\
         session required pam_permit.so\n",
    );
    let by_pam = format!(
        "{shadow} && mount --bind {}/pam /etc/pam.d/sshd",
        folder.display()
    );
    cluster.on(2, shadow).ends(0);
    cluster.on(3, &by_pam).ends(0);
    let password = "AuthenticationMethods publickey,password\nPasswordAuthentication yes";
    let question = "AuthenticationMethods publickey,keyboard-interactive:pam\nUsePAM yes\n\
        KbdInteractiveAuthentication yes";
    for (host, asks) in [(2, password), (3, question)] {
        configure(&cluster, host, &format!("PermitRootLogin yes\n{asks}"));
    }
    // nobody is asked where nobody could answer
    let probe = "host-probe --host 1,2 <hosts >probed";
    cluster
        .sh(&folder, probe)
        .ends(74)
        .err_has("the host accepts /root/.ssh/id_ed25519 and asks for more (password)")
        .err_has("the host accepts /root/.ssh/id_ed25519 and asks for more (keyboard-interactive)")
        .err_has("run this on a terminal, where ssh can ask");
    let pipeline = format!(
        "{probe} && dgl-reap --host 1,2 --list <probed >list && dgl-reap --host 1,2 --list \
         <probed >list"
    );
    let typed = cluster.sh(
        &folder,
        &format!("python3 typist.py '{}'", pipeline.replace('\'', "'\\''")),
    );
    // once for each host, whatever the connect timeout
    typed.gives(0, "2 0\n");
    cluster
        .sh(&folder, "jq -r .connect probed")
        .gives(0, "null\nssh\nssh\n");
}

/// Settings with which `ssh host` works, and what would break a tool.
const SETTINGS: [&str; 24] = [
    "RemoteCommand tmux new -A",
    "RequestTTY force",
    "RemoteCommand cat\n RequestTTY yes",
    "SessionType none",
    "StdinNull yes",
    "LogLevel QUIET",
    "LogLevel DEBUG3",
    "Ciphers aes256-ctr",
    "Ciphers aes256-cbc",
    "KexAlgorithms ecdh-sha2-nistp256",
    "HostKeyAlgorithms ssh-ed25519",
    "IdentityAgent none",
    "IdentityAgent SSH_AUTH_SOCK",
    "ControlMaster auto\n ControlPath none",
    "Compression yes",
    "ServerAliveInterval 5",
    "StrictHostKeyChecking ask",
    "VisualHostKey yes",
    "ExitOnForwardFailure yes\n LocalForward 22 localhost:22",
    "BatchMode no",
    "AddressFamily inet",
    "SetEnv DGL_TOOLS_X=1",
    "PreferredAuthentications hostbased,publickey",
    "SecurityKeyProvider /none.so",
];

/// Copies with each setting by the connectors that are chosen for the n-th.
fn copy_with_settings(connectors: impl Fn(usize) -> &'static [&'static str]) -> (PathBuf, Cluster) {
    let (folder, cluster) = with_records(2);
    partition(&folder, 1);
    let plan = "head -n 1 ip.txt >first; sed -n 2p ip.txt | ipconf-check >hosts; part-map \
        --part-config out/g.json --workspace /srv/job <hosts >plan.jsonl";
    cluster.run(&folder, plan);
    configure(&cluster, 2, "Ciphers +aes256-cbc");
    let include = format!("Include {}/other\n", folder.display());
    write(&folder, "config", include);
    for (nth, setting) in SETTINGS.iter().enumerate() {
        let config = format!("Match exec true\n {setting}\n");
        write(&folder, "other", config);
        let since_7_6 = [
            "RemoteCommand",
            "SetEnv",
            "SecurityKey",
            "SessionType",
            "StdinNull",
        ];
        if since_7_6.iter().any(|name| setting.starts_with(name)) {
            let known = cluster.sh(&folder, "ssh -G -F config h2 >settings");
            if known.err.contains("Bad configuration option") {
                continue;
            }
        }
        for connect in connectors(nth) {
            let script = format!(
                "export DGL_TOOLS_SSH_CONFIG=config DGL_TOOLS_CONNECT={connect}
                 ssh h2 rm -rf /srv/job; part-push <plan.jsonl >pushed && \
                 part-push --wire ssh <plan.jsonl >pushed && dgl-reap --list <pushed >list"
            );
            let ran = cluster.sh(&folder, &script);
            assert_eq!(ran.status, 0, "{connect}: {setting}: {}", ran.err);
        }
    }
    (folder, cluster)
}

#[test]
#[ignore = "make test-matrices"]
fn the_whole_matrix_of_settings_and_connectors_of_real_hosts() {
    copy_with_settings(|_| &["auto", "ssh"]);
}

#[test]
fn settings_of_ssh_config_keep_no_tool_from_real_hosts() {
    let (folder, cluster) = copy_with_settings(|nth| match nth % 2 {
        0 => &["auto"],
        _ => &["ssh"],
    });
    // what leads to the host says why it does not
    write(&folder, "config", "ProxyCommand /no/such/program %h\n");
    for connect in ["auto", "ssh"] {
        let list = format!(
            "DGL_TOOLS_CONNECT_TIMEOUT=2s DGL_TOOLS_SSH_CONFIG=config dgl-reap --list --connect \
             {connect} <hosts"
        );
        cluster
            .sh(&folder, &list)
            .ends(74)
            .err_has("the ProxyJump or ProxyCommand of ssh_config does not reach it: ")
            .err_has("/no/such/program: ");
    }
    // what ssh itself does not take
    write(&folder, "config", "NoSuchSetting yes\n");
    for connect in ["auto", "ssh2", "ssh"] {
        cluster
            .sh(
                &folder,
                &format!("DGL_TOOLS_SSH_CONFIG=config dgl-reap --list --connect {connect} <hosts"),
            )
            .ends(74)
            .err_has(
                "ssh -G: config: line 1: Bad configuration option: nosuchsetting; config: \
                 terminating, ",
            )
            .err_lacks("the host is up");
    }
    soon("sshd answers", || {
        cluster.sh(&folder, "ssh h2 true").status == 0
    });
}

/// The oldest and the newest that have nothing in common with libssh2.
#[test]
fn algorithms_of_real_hosts_that_only_ssh_has() {
    let (folder, cluster) = with_records(2);
    configure(&cluster, 2, "Ciphers aes256-cbc");
    cluster
        .sh(&folder, "host-probe --host 1 --connect ssh <hosts >probed")
        .ends(74)
        .err_has("no matching cipher found. Their offer: aes256-cbc")
        .err_has("that the host offers and `ssh -Q cipher` lists, add it to Ciphers in ssh_config");
    write(&folder, "config", "Ciphers +aes256-cbc\n");
    cluster
        .sh(
            &folder,
            "DGL_TOOLS_SSH_CONFIG=config host-probe --host 1 --connect ssh <hosts >probed",
        )
        .ends(0);
    configure(
        &cluster,
        2,
        "KexAlgorithms sntrup761x25519-sha512@openssh.com",
    );
    connectors(&cluster, &folder, "host-probe --host 1").gives(0, "-\nssh\n");
}
