//! Large files for several hosts: they leave this machine once, and whatever happens to one of the
//! hosts, the others have them.

use crate::lab::{Lab, disturb, of_size};
use std::fs;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};
use support::{Ran, executable, noise, soon, tools};

const LARGE: usize = 48 << 20;

/// Hosts 2, 3 and 4 get a file, in this order.
fn up(rate: &str) -> Lab {
    up_with(4, rate, LARGE)
}

fn up_with(hosts: u32, rate: &str, large: usize) -> Lab {
    let lab = Lab::up(hosts, rate, &noise(1, large));
    // every host has the agent already
    lab.run("part-push --dry-run <plan.jsonl");
    lab
}

/// Pushes, and disturbs when host 4 has this much of the large file.
fn disturb_push(lab: &Lab, arrived: u64, disturbance: impl FnOnce()) -> Ran {
    disturb(|| lab.push(""), || lab.arrived(4) > arrived, disturbance)
}

/// Whether each host has its record of the large file; and what left this machine for it.
fn large(ran: &Ran) -> Vec<(bool, u64)> {
    records_of(ran, LARGE)
}

fn records_of(ran: &Ran, bytes: usize) -> Vec<(bool, u64)> {
    let records = of_size(&ran.out, bytes).into_iter();
    records.map(|(_, ok, sent)| (ok, sent)).collect()
}

impl Lab {
    /// The agent of a host lies from here on: a line of Python changes `message`, a request to it,
    /// or an event of it, on the way.
    fn take_over(&self, host: u32, forgery: &str) {
        let agent = tools().join("host-agent").display().to_string();
        let hash = self.run(&format!("'{agent}' hash")).out;
        let liar = LIAR.replace("AGENT", &agent).replace("LIE", forgery);
        let location = format!("taken/host-agent-{}", hash.trim());
        executable(&self.folder, location, &liar);
        let taken = self.folder.join("taken");
        let cache = "${XDG_CACHE_HOME:-$HOME/.cache}/dgl-tools";
        self.on(
            host,
            &format!("mount --bind '{}' \"{cache}\"", taken.display()),
        );
    }
}

/// The process that receives on a host, by the stage that it has open.
const RECEIVER: &str = "for p in /proc/[0-9]*; do \
    ls -l $p/fd 2>/dev/null | grep -q '/\\.part-push\\.' && \
    grep -qs ^host-agent $p/cmdline && r=${p#/proc/}; done; test -n \"$r\" || exit 7;";

const ALL: u64 = LARGE as u64;

/// Stands in for host-agent, and is between it and its login.
const LIAR: &str = "#!/usr/bin/env python3
import json, os, subprocess, sys, threading
if sys.argv[1:] == ['hash']: os.execv('AGENT', ['host-agent', 'hash'])
agent = subprocess.Popen(['AGENT'] + sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
def relay(here, there):
    for line in iter(here.readline, b''):
        if line.startswith(b'{'):
            said = json.loads(line)
            body = here.read(said.get('bytes', 0))
            LIE
            line = json.dumps(said).encode() + b'\\n' + body
        there.write(line)
        there.flush()
    there.close()
threading.Thread(target=relay, args=(agent.stdout, sys.stdout.buffer), daemon=True).start()
relay(sys.stdin.buffer, agent.stdin)
agent.wait()
";

#[test]
fn a_file_for_three_real_hosts_leaves_this_machine_once() {
    let lab = up("");
    let chain = [(true, ALL), (true, 0), (true, 0)];
    // to all, to those that have it no longer, and to each from here
    for (hosts, options, expected) in [
        (vec![2, 3, 4], "", chain),
        (vec![2, 4], "", chain),
        (vec![2, 3, 4], "--wire ssh", [(true, ALL); 3]),
    ] {
        for host in hosts {
            let _ = fs::remove_dir_all(lab.ws(host));
        }
        let ran = lab.push(options);
        ran.ends(0);
        let is_chain = ran.err.contains(" through a chain");
        assert_eq!(is_chain, expected == chain, "{options}: {}", ran.err);
        assert_eq!(self::large(&ran), expected, "{options}: {}", ran.err);
        assert!((2..=4).all(|host| lab.has(host)), "{options}");
        lab.cluster.assert_clean();
    }
}

const KILL: &str = "kill -9 $r";

/// The agent of a host in a chain is killed when the last host has this much. The others have the
/// file, and those behind the break get the rest from here; the next push completes the host.
fn break_chain(lab: &Lab, killed: u32, arrived: u64) {
    let what = format!("host {killed} is killed at {arrived}");
    for host in 2..=4 {
        let _ = fs::remove_dir_all(lab.ws(host));
    }
    let ran = disturb_push(lab, arrived, || {
        lab.on(killed, &format!("{RECEIVER} {KILL}"));
    });
    ran.ends(1);
    let large = self::large(&ran);
    for (host, (ok, sent)) in (2..=4).zip(large) {
        assert_eq!(ok, host != killed, "{what}: {host}: {}", ran.err);
        assert_eq!(lab.has(host), ok, "{what}: {host}");
        assert_eq!(
            lab.ws(host).join("src/large").exists(),
            ok,
            "{what}: {host}"
        );
        let is_resumed = (1..ALL).contains(&sent) || arrived > ALL / 2 && sent == 0;
        match host {
            _ if host == killed => {}
            2 => assert_eq!(sent, ALL, "{what}"),
            _ if host < killed => assert_eq!(sent, 0, "{what}: {host}"),
            _ => assert!(is_resumed, "{what}: {host}: {sent}"),
        }
    }
    let again = lab.push("");
    again.ends(0);
    let sent: u64 = self::large(&again).iter().map(|(_, sent)| sent).sum();
    assert!((2..=4).all(|host| lab.has(host)), "{what}: {}", again.err);
    assert!(sent < ALL, "{what}: {sent} again");
    lab.cluster.assert_clean();
}

/// The beginning, the middle and the end of the file.
const POINTS: [u64; 3] = [4 << 20, ALL / 2, ALL * 3 / 4];

#[test]
fn a_chain_that_breaks_is_completed_from_here_real_hosts() {
    // the last quarter has to last longer than a busy machine takes to find the receiver
    let lab = up("30mbit");
    for (killed, point) in [(2, POINTS[1]), (3, POINTS[0]), (4, POINTS[2])] {
        break_chain(&lab, killed, point);
    }
}

#[test]
#[ignore = "make test-matrices"]
fn the_whole_matrix_of_breaks_of_a_chain_real_hosts() {
    let lab = up("60mbit");
    for killed in 2..=4 {
        for point in POINTS {
            break_chain(&lab, killed, point);
        }
    }
}

/// The connection between two hosts breaks, and the first host is killed while the others go on.
#[test]
fn a_chain_that_breaks_twice_is_completed_from_here_real_hosts() {
    let lab = up_with(5, "60mbit", LARGE);
    let ran = disturb_push(&lab, POINTS[0], || {
        lab.on(3, "ip route replace blackhole 10.77.0.4/32");
        soon("more has arrived", || lab.arrived(3) > POINTS[1]);
        lab.on(2, &format!("{RECEIVER} {KILL}"));
    });
    ran.ends(1);
    let large = self::large(&ran);
    assert!(!large[0].0 && !lab.has(2), "{}", ran.err);
    for (host, (ok, sent)) in (3..=5).zip(&large[1..]) {
        assert!(*ok && lab.has(host), "{host}: {}", ran.err);
        assert!((1..ALL).contains(sent), "{host}: {sent}");
    }
    let again = lab.push("");
    again.ends(0);
    assert!((2..=5).all(|host| lab.has(host)), "{}", again.err);
    lab.cluster.assert_clean();
}

/// It hands the file on slowly, so the host behind it gets the rest from here.
#[test]
fn a_slow_host_delays_no_other_for_long_real_hosts() {
    const BYTES: usize = 120 << 20;
    let lab = up_with(4, "120mbit", BYTES);
    let slow = "tc qdisc replace dev eth0 root tbf rate 4mbit burst 64kb latency 50ms";
    lab.on(3, slow);
    let begun = Instant::now();
    let ran = lab.push("");
    ran.ends(0);
    // 240 s at the rate of the slow host
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(90), "{took:?}");
    assert!((2..=4).all(|host| lab.has(host)), "{}", ran.err);
    let large = records_of(&ran, BYTES);
    let sent = large.iter().map(|(_, sent)| *sent);
    let sent: Vec<u64> = sent.collect();
    let whole = BYTES as u64;
    assert!(
        sent[0] == whole && sent[1] < whole && (1..whole).contains(&sent[2]),
        "{sent:?} {}",
        ran.err
    );
    lab.cluster.assert_clean();
}

#[test]
fn a_host_in_the_middle_that_stops_is_served_apart_and_holds_up_no_other_real_hosts() {
    let lab = up("60mbit");
    let ran = disturb_push(&lab, POINTS[0], || {
        lab.on(3, &format!("{RECEIVER} kill -STOP $r"));
        let begun = Instant::now();
        soon("the others have it", || lab.has(2) && lab.has(4));
        assert!(
            begun.elapsed() < Duration::from_secs(50),
            "{:?}",
            begun.elapsed()
        );
        assert!(!lab.ws(3).join("src/large").exists());
        lab.on(3, &format!("{RECEIVER} kill -CONT $r"));
    });
    ran.ends(0);
    let large = self::large(&ran);
    assert!(
        large.iter().all(|(ok, _)| *ok) && lab.has(3),
        "{large:?} {}",
        ran.err
    );
    // both from here, but only what they lacked
    let sent = [large[1].1, large[2].1];
    assert!(sent.iter().all(|sent| (1..ALL).contains(sent)), "{large:?}");
    lab.cluster.assert_clean();
}

#[test]
fn a_host_that_hands_on_other_content_gives_it_to_no_other_real_hosts() {
    let lab = up("");
    // two blocks change places, each with its own sum, and the checksum of the file is withheld; to
    // be seen here, blocks have to come over the login
    lab.take_over(
        2,
        "if said.get('kind') == 'listening': said['port'] = 1
            if said.get('step') == 'commit': said.pop('sum', None)
            if said.get('step') == 'write' and said['offset'] == 0:
                first = (said, body)
                continue
            if said.get('step') == 'write' and said['offset'] == 1 << 20:
                said['offset'], first[0]['offset'] = 0, said['offset']
                there.write(json.dumps(said).encode() + b'\\n' + body)
                said, body = first",
    );
    let ran = lab.push("--compress never");
    ran.ends(0);
    assert!(!lab.has(2) && lab.has(3) && lab.has(4), "{}", ran.err);
    ran.err_has("host 1 (10.77.0.3): rejected the content of ")
        .err_lacks("host 2 (10.77.0.4): refused");
    // the others get it from here
    let large = self::large(&ran);
    assert!(
        large[1..]
            .iter()
            .all(|(ok, sent)| *ok && (1..=ALL).contains(sent)),
        "{large:?} {}",
        ran.err
    );
    lab.cluster.assert_clean();
}

/// Its disk changes what it has, before it hands that on.
#[test]
fn a_host_in_the_middle_that_hands_on_other_content_harms_no_other_real_hosts() {
    let lab = up("60mbit");
    // again and again what came last, so that some of it is not handed on yet
    lab.take_over(
        3,
        "if said.get('step') == 'listen':
                def change():
                    import glob, time
                    end = 0
                    while end < 40 << 20:
                        time.sleep(0.001)
                        for name in glob.glob('/srv/ws/.part-push.*/part.*'):
                            with open(name, 'r+b') as part:
                                last, end = end, part.seek(0, 2)
                                if end > max(last, 1 << 20):
                                    part.seek(end - 9)
                                    part.write(b'otherwise')
                threading.Thread(target=change, daemon=True).start()",
    );
    let ran = lab.push("");
    ran.ends(0);
    assert!(lab.has(2) && !lab.has(3) && lab.has(4), "{}", ran.err);
    ran.err_has("host 2 (10.77.0.4): rejected the content of ");
    // what differs comes from here
    let sent: Vec<u64> = self::large(&ran).iter().map(|(_, sent)| *sent).collect();
    assert!(
        sent[..2] == [ALL, 0] && (1..ALL / 2).contains(&sent[2]),
        "{sent:?}"
    );
    lab.cluster.assert_clean();
}

/// A chain carries the whole file. Where hosts lack less in all, each gets that from here.
#[test]
fn holes_are_handed_on_and_what_real_hosts_had_before_is_not_sent_again() {
    let lab = up("");
    let (hole, large) = (14 << 20, lab.folder.join("src/large"));
    let data = noise(1, LARGE);
    fs::remove_file(&large).unwrap();
    let file = fs::File::create(&large).unwrap();
    file.set_len(ALL).unwrap();
    file.write_all_at(&data[..hole], 0).unwrap();
    file.write_all_at(&data[..hole - 5], (2 * hole + 5) as u64)
        .unwrap();
    lab.map();
    let ran = lab.push("");
    let expected = [(true, 2 * hole as u64), (true, 0), (true, 0)];
    ran.ends(0);
    assert!((2..=4).all(|host| lab.has(host)));
    let sent = self::large(&ran);
    assert!(
        sent[0].1 <= expected[0].1 + (2 << 20) && sent[1..] == expected[1..],
        "{sent:?} {}",
        ran.err
    );

    // what is not the same any more, under the time that it had
    for (host, places) in [
        (2, vec![3 << 20]),
        (4, vec![(1 << 20) + 100, hole + 9, LARGE - 9]),
    ] {
        let path = lab.ws(host).join("src/large");
        let there = fs::File::options().write(true).open(path).unwrap();
        let time = there.metadata().unwrap().modified().unwrap();
        for location in places {
            there.write_all_at(b"else", location as u64).unwrap();
        }
        there.set_modified(time).unwrap();
    }
    let ran = lab.push("--verify");
    ran.ends(0);
    assert!((2..=4).all(|host| lab.has(host)));
    let sent: Vec<u64> = self::large(&ran).iter().map(|(_, sent)| *sent).collect();
    // two of the three pieces of host 4 are holes here
    assert_eq!(sent, [64 << 10, 0, 64 << 10], "{}", ran.err);

    for host in [3, 4] {
        fs::remove_dir_all(lab.ws(host)).unwrap();
    }
    let ran = lab.push("--verify");
    ran.ends(0);
    assert!((2..=4).all(|host| lab.has(host)));
    let sent: Vec<u64> = self::large(&ran).iter().map(|(_, sent)| *sent).collect();
    assert!(
        sent[1] <= expected[0].1 + (2 << 20) && [sent[0], sent[2]] == [0, 0],
        "{sent:?} {}",
        ran.err
    );
    ran.err_lacks("refused");
    lab.cluster.assert_clean();
}

#[test]
fn where_real_hosts_cannot_reach_one_another_each_gets_the_file_from_here() {
    let lab = up("");
    // nothing answers where they look for one another; this machine is reached
    for host in 2..=4 {
        let others: Vec<u32> = (2..=4).filter(|other| *other != host).collect();
        for other in others {
            lab.on(
                host,
                &format!(
                    "ip route replace 10.77.0.{other} dev eth0 && ip neigh replace 10.77.0.{other} \
                     lladdr 02:00:00:00:00:99 nud permanent dev eth0"
                ),
            );
        }
    }
    let ran = lab.push("");
    ran.ends(0);
    assert_eq!(self::large(&ran), [(true, ALL); 3], "{}", ran.err);
    assert!((2..=4).all(|host| lab.has(host)));
    lab.cluster.assert_clean();
}
