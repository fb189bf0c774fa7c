//! Direct connections beside the logins: that files go over them, and what happens where they
//! cannot.

use crate::lab::{Lab, disturb, tree};
use std::fs;
use std::path::PathBuf;
use support::{Ran, executable, noise, only_root_can, scratch, sh, soon, tools, write};

const LARGE: usize = 40 << 20;
/// An address that host 2 has and that leads wherever host 1 is told: its logins go to host 2.
const CLUSTER_ADDRESS: &str = "10.77.0.50";
const PORT: u16 = 7001;
const VARIABLES: &str = "DGL_TOOLS_SSH_CONFIG=ssh_config DGL_TOOLS_DATA_PORT=7001";

impl Lab {
    /// Three hosts; the second one is known by an address of its own.
    fn with_address(rate: &str) -> Lab {
        let mut lab = Lab::up(3, rate, &noise(1, LARGE));
        lab.variables = VARIABLES;
        write(&lab.folder, "ip.txt", format!("{CLUSTER_ADDRESS}\n"));
        let config = format!(
            "Host {CLUSTER_ADDRESS}\n HostName 10.77.0.2\n HostKeyAlias h2\nInclude ~/.ssh/config\n"
        );
        write(&lab.folder, "ssh_config", config);
        for host in [2, 3] {
            lab.on(host, &format!("ip addr add {CLUSTER_ADDRESS}/32 dev lo"));
        }
        lab.map();
        lab.lead_to("h2");
        lab
    }

    /// The address leads to this host, or to none.
    fn lead_to(&self, host: &str) {
        let script = format!(
            "PATH=$PATH:/usr/sbin:/sbin; mac=$(ssh {host} cat /sys/class/net/eth0/address) || \
             mac=02:00:00:00:00:99; ssh h1 \"PATH=\\$PATH:/usr/sbin:/sbin; \
             ip route replace {CLUSTER_ADDRESS} dev eth0 && \
             ip neigh replace {CLUSTER_ADDRESS} lladdr $mac nud permanent dev eth0\""
        );
        self.run(&script);
    }

    /// Brings back what is there.
    fn pull(&self, options: &str) -> Ran {
        let _ = fs::remove_dir_all(self.folder.join("back"));
        self.sh(&format!(
            "ipconf-check ip.txt | {VARIABLES} part-pull {options} \
             --workspace /srv/ws --to back src"
        ))
    }

    fn has_brought_all(&self) -> bool {
        tree(&self.folder.join("back/src")) == tree(&self.folder.join("src"))
    }

    fn forget(&self) {
        let _ = fs::remove_dir_all(self.ws(2));
    }

    /// A part of the large file is here.
    fn is_being_brought(&self) -> bool {
        let entries = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten();
        // the parts are in a directory of part-pull's
        let own = entries(self.folder.join("back/src")).flat_map(|own| entries(own.path()));
        own.into_iter().any(|part| {
            part.metadata()
                .is_ok_and(|meta| meta.len() > LARGE as u64 / 10)
        })
    }
}

/// Something on a host, in the background, that listens on the port; ended by the test.
struct Listener<'a> {
    lab: &'a Lab,
    pid: String,
}

impl<'a> Listener<'a> {
    fn begin(lab: &'a Lab, command: &str) -> Listener<'a> {
        write(&lab.folder, "listen.sh", command);
        let folder = lab.folder.display();
        let ran = lab.run(&format!(
            "ssh h3 'cd {folder} && {{ sh listen.sh >listen.out 2>&1 </dev/null & }} && echo $!'"
        ));
        let hex = format!(":{PORT:04X} ");
        soon("it listens on host 3", || {
            let listening = lab.sh("ssh h3 cat /proc/net/tcp");
            listening.out.lines().any(|line| {
                line.split_whitespace()
                    .nth(1)
                    .is_some_and(|local| format!("{local} ").ends_with(&hex))
                    && line.split_whitespace().nth(3) == Some("0A")
            })
        });
        Listener {
            lab,
            pid: ran.out.trim().to_owned(),
        }
    }
}

impl Drop for Listener<'_> {
    fn drop(&mut self) {
        let kill = format!("ssh h3 'pkill -KILL -P {0}; kill -KILL {0}'", self.pid);
        self.lab.sh(&kill);
    }
}

fn python(body: &str) -> String {
    format!(
        "exec python3 -c '
import socket, struct, time
s = socket.create_server((\"{CLUSTER_ADDRESS}\", {PORT}))
kept = []
while True:
    c, _ = s.accept()
    {body}
'"
    )
}

#[test]
fn files_go_directly_to_real_hosts_and_nobody_listens_afterwards() {
    let lab = Lab::with_address("");
    for options in ["--wire direct", "--wire auto", "--wire ssh"] {
        lab.forget();
        let ran = lab.push(options);
        ran.ends(0);
        assert!(lab.has(2), "{options}");
        let route = match options {
            "--wire ssh" => ", through its login",
            _ => ", directly",
        };
        ran.err_has(route);
        let connect = format!(
            "python3 -c 'import socket; socket.create_connection((\"{CLUSTER_ADDRESS}\", {PORT}))'"
        );
        lab.sh(&connect).err_has("refused");

        let pulled = lab.pull(options);
        pulled.ends(0);
        assert!(
            lab.has_brought_all() && pulled.err.contains(route),
            "{options}: {}",
            pulled.err
        );
        lab.sh(&connect).err_has("refused");
    }
    // the machine on which the tool runs: how it is reached decides, not its address
    for (login, route) in [
        (".login = env.USER + \"@10.77.0.1\"", ", directly"),
        (".", ", through its login"),
    ] {
        let own = format!(
            "rm -rf back /srv/own; echo 10.77.0.1 | ipconf-check - >one && \
             USER=$(id -un) jq -c '{login}' one >own && \
             part-map --workspace /srv/own --extra src/large <own | part-push && \
             part-pull --workspace /srv/own --to back large <own"
        );
        lab.run(&own).err_has_times(route, 2);
        let large = |folder: &str| fs::read(lab.folder.join(folder).join("large")).unwrap();
        assert!(large("back") == large("src"), "{login}");
    }
    lab.cluster.assert_clean();
}

#[test]
fn all_connections_to_real_hosts_together_keep_to_a_limit() {
    let lab = Lab::with_address("");
    write(&lab.folder, "ip.txt", "10.77.0.2\n10.77.0.3\n");
    lab.map();
    let takes = |files: f64| std::time::Duration::from_secs_f64(files * LARGE as f64 / 20e6 - 1.0);
    // what leaves this machine counts: what one host hands on to the other does not
    for (options, least) in [
        ("--limit 20MB/s", takes(1.0)),
        ("--limit 20MB/s --wire ssh --compress never", takes(2.0)),
    ] {
        for host in [2, 3] {
            let _ = fs::remove_dir_all(lab.cluster.lab.join(format!("h{host}/srv/ws")));
        }
        let begun = std::time::Instant::now();
        let ran = lab.push(options);
        assert!(
            ran.status == 0 && lab.has(2) && begun.elapsed() > least,
            "{options}: {:?} {}",
            begun.elapsed(),
            ran.err
        );
    }
    let begun = std::time::Instant::now();
    let pulled = lab.pull("--limit 20MB/s");
    assert!(
        pulled.status == 0 && begun.elapsed() > takes(2.0),
        "{:?} {}",
        begun.elapsed(),
        pulled.err
    );
    lab.push("--limit fast")
        .ends(2)
        .err_has("write it as 50MB/s");
    lab.cluster.assert_clean();
}

/// What is tried where no direct connection can be had: with the logins in its place, or without.
#[derive(Clone, Copy, Debug)]
enum Attempt {
    Push,
    Pull,
    PullDirectlyOnly,
    PushDirectlyOnly,
}

const ATTEMPTS: [Attempt; 4] = [
    Attempt::Push,
    Attempt::Pull,
    Attempt::PullDirectlyOnly,
    Attempt::PushDirectlyOnly,
];

#[test]
fn where_real_hosts_cannot_be_reached_directly_the_logins_are_used() {
    try_obstacles(|nth| match nth {
        0 | 2 => &[Attempt::Push, Attempt::PullDirectlyOnly],
        1 | 3 => &[Attempt::Pull, Attempt::PushDirectlyOnly],
        _ => &ATTEMPTS,
    });
}

#[test]
#[ignore = "make test-matrices"]
fn the_whole_matrix_of_what_keeps_real_hosts_from_direct_connections() {
    try_obstacles(|_| &ATTEMPTS);
}

/// Makes the attempts that are chosen for the n-th obstacle.
fn try_obstacles(attempts: impl Fn(usize) -> &'static [Attempt]) {
    let lab = Lab::with_address("");
    let agent = tools().join("host-agent");
    let key = "00".repeat(32);
    let impostor = format!(
        "(echo '{{\"do\":\"file\",\"step\":\"give\",\"base\":\"/srv\"}}'; echo \
         '{{\"do\":\"file\",\"step\":\"listen\",\"address\":\"{CLUSTER_ADDRESS}\",\"port\":{PORT},\
         \"key\":\"{key}\"}}'; while sleep 5; do echo '{{\"do\":\"alive\"}}'; done) | '{}'",
        agent.display()
    );
    let resets = "c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack(\"ii\", 1, 0)); \
                  c.close()";
    let chatter = "c.sendall(b\"220 hello\\r\\n\" * 1000); kept.append(c)";
    // what is there | how that is done; of the last one something is said
    let table: [(&str, Option<String>); 5] = [
        ("a firewall that drops", None),
        (
            "a port that accepts and says nothing",
            Some(python("kept.append(c)")),
        ),
        ("a port that resets", Some(python(resets))),
        (
            "somebody who speaks another language",
            Some(python(chatter)),
        ),
        ("somebody else in the middle", Some(impostor)),
    ];
    let impostor = table.len() - 1;
    for (nth, (obstacle, command)) in table.iter().enumerate() {
        let _listener = command
            .as_ref()
            .map(|command| Listener::begin(&lab, command));
        lab.lead_to(if command.is_some() { "h3" } else { "nowhere" });
        for attempt in attempts(nth) {
            make_attempt(&lab, *attempt, obstacle, nth == impostor);
        }
    }
    lab.cluster.assert_clean();
}

fn make_attempt(lab: &Lab, attempt: Attempt, obstacle: &str, by_impostor: bool) {
    let (ran, arrived) = match attempt {
        Attempt::Push => {
            lab.forget();
            (lab.push(""), lab.has(2))
        }
        Attempt::Pull => (lab.pull(""), lab.has_brought_all()),
        Attempt::PullDirectlyOnly => (lab.pull("--wire direct"), false),
        Attempt::PushDirectlyOnly => {
            lab.forget();
            let ran = lab.push_within("10s", "--wire direct");
            (ran, lab.ws(2).join("src/large").exists())
        }
    };
    let is_refused = |part: &str| ran.status == 74 && !arrived && ran.err.contains(part);
    let is_right = match attempt {
        Attempt::Push | Attempt::Pull => ran.status == 0 && arrived,
        Attempt::PullDirectlyOnly => is_refused("DGL_TOOLS_DATA_PORT"),
        Attempt::PushDirectlyOnly => {
            is_refused("DGL_TOOLS_DATA_PORT") && is_refused("it cannot be reached directly")
        }
    };
    let (status, err) = (ran.status, &ran.err);
    assert!(is_right, "{obstacle}: {attempt:?}: {status} {err}");
    // a pull that is refused says only what to do
    if !matches!(attempt, Attempt::PullDirectlyOnly) {
        let is_said = err.contains("the port answers with a different key than the host announced");
        assert_eq!(is_said, by_impostor, "{obstacle}: {attempt:?}: {err}");
    }
}

#[test]
fn a_direct_connection_that_breaks_is_made_good_over_the_login_of_real_hosts() {
    let lab = Lab::with_address("30mbit");
    let has_begun = || lab.arrived(2) > LARGE as u64 / 10;
    // host 3 knows nothing of such a connection and says so
    let ran = disturb(|| lab.push(""), has_begun, || lab.lead_to("h3"));
    ran.ends(0);
    assert!(lab.has(2));
    ran.err_has("its direct connection broke; its login is used instead");
    let failed = ran.out.lines().filter(|line| line.contains("\"ok\":false"));
    assert_eq!(failed.count(), 0, "{}", ran.out);

    // size and time are right, and --verify has found that the content is not: what breaks off does
    // not make it right
    lab.lead_to("h2");
    let on_host = lab.ws(2).join("src/large");
    write(&lab.folder, &on_host, noise(3, LARGE));
    lab.run(&format!("touch -r src/large {}", on_host.display()));
    let ran = disturb(
        || lab.push("--verify --compress never"),
        has_begun,
        || lab.lead_to("h3"),
    );
    ran.ends(0);
    ran.err_has("its direct connection broke; its login is used instead");
    assert!(lab.has(2));

    lab.lead_to("h2");
    let ran = disturb(
        || lab.pull(""),
        || lab.is_being_brought(),
        || lab.lead_to("h3"),
    );
    ran.ends(0);
    assert!(lab.has_brought_all());
    ran.err_has("its direct connection broke; its login is used instead");
    lab.cluster.assert_clean();
}

/// Hosts get the keys of all that may pass files on to them.
#[test]
fn a_host_that_announces_no_key_stops_no_other() {
    if only_root_can("mount a workspace for each host") {
        return;
    }
    let folder = scratch();
    let hosts = ["127.0.0.1", "127.0.0.2"];
    let hosts = [0, 1].map(|id| support::host_record(id, 2, hosts[id]));
    support::write_records(&folder, "hosts", &hosts);
    write(&folder, "src/large", noise(1, 17 << 20));
    let way = "#!/bin/sh\nhost=${1##*.}; shift
        run() { unshare -m sh -c 'mount --bind ws$0 ws && exec \"$@\"' \"$host\" \"$@\"; }
        case $host in
            1) run \"$@\";;
            2) run \"$@\" | sed -u 's/\"key\":\"[0-9a-f]*\"/\"key\":\"none\"/';;
        esac\n";
    executable(&folder, "way", way);
    let script = "mkdir ws ws1 ws2; part-map --workspace \"$PWD/ws\" --extra src <hosts | \
         part-push --wire direct --connect './way {ip}'";
    let ran = sh(&folder, script);
    assert_ne!(ran.status, 0);
    ran.err_has("host 1 (127.0.0.2)").err_lacks("firewall");
    assert!(
        tree(&folder.join("ws1/src")) == tree(&folder.join("src")),
        "{}",
        ran.err
    );
}
