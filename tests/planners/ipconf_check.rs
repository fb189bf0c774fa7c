//! ipconf-check on real files: every shape that users have, what is refused and how, names, tables
//! of hosts, a clean file for DGL.

use std::path::Path;
use support::{Ran, scratch, sh, write};

#[test]
fn shapes_that_users_have_come_out_clean() {
    let folder = scratch();
    let clean = "10.0.0.1 30050\n10.0.0.2 30051\n";
    let table: [&[u8]; 6] = [
        b"10.0.0.1\n10.0.0.2 30051\n",
        b"\xef\xbb\xbf10.0.0.1\t\r\n\r\n10.0.0.2\t30051  \r\n",
        b"# the cluster\n10.0.0.1  # first\n\n  10.0.0.2 30051",
        b"10.0.0.1 30050\r10.0.0.2 30051\r",
        b"\xc2\xa010.0.0.1\xc2\xa030050\n10.0.0.2 30051\n",
        clean.as_bytes(),
    ];
    for text in table {
        write(&folder, "ip.txt", text);
        for script in [
            "ipconf-check --emit ip_config ip.txt",
            "ipconf-check --emit ip_config <ip.txt",
            "ipconf-check --emit ip_config - <ip.txt",
        ] {
            let got = sh(&folder, script);
            assert_eq!(
                (got.status, got.out.as_str(), got.err.as_str()),
                (0, clean, ""),
                "{text:?}"
            );
        }
    }
    let records = sh(
        &folder,
        "ipconf-check --default-port 4000 --num-servers 2 ip.txt | tail -n 1",
    );
    assert_eq!(
        records.out,
        "{\"type\":\"host\",\"id\":1,\"of\":2,\"ip\":\"10.0.0.2\",\"port\":30051,\"line\":2}\n"
    );
}

#[test]
fn what_dgl_cannot_use_is_refused_with_its_line_and_cure() {
    let folder = scratch();
    let all = "fe80::1\nno-such.invalid\n10.0.0.1 30050 8\n10.0.0.2 65534\n10.0.0.2\n0.0.0.0\n\
        127.0.0.1\n";
    write(&folder, "ip.txt", all);
    let got = sh(&folder, "ipconf-check --num-servers 4 ip.txt");
    let expected = [
        "ip.txt:1: fe80::1 is an IPv6 address",
        "ip.txt:2: no-such.invalid: ",
        "ip.txt:3: a third column: \"8\"",
        "ip.txt:4: 4 servers from port 65534 on go beyond 65535",
        "ip.txt:6: 0.0.0.0 is not a host's address",
    ];
    got.gives(65, "");
    for problem in expected {
        got.err_has(&format!("ipconf-check: {problem}"))
            .err_has("  fix: ");
    }
    let utf16: Vec<u8> = [0xff, 0xfe]
        .into_iter()
        .chain("10.0.0.1\r\n".bytes().flat_map(|byte| [byte, 0]))
        .collect();
    write(&folder, "utf16.txt", utf16);
    let table = [
        (
            "ipconf-check utf16.txt",
            65,
            "iconv -f utf-16 -t utf-8 utf16.txt",
        ),
        (
            "printf '10.0.0.1\\n10.0.0.1 4\\n' | ipconf-check",
            65,
            "stdin:2: 10.0.0.1 stands in line 1 already",
        ),
        (
            "printf '127.0.0.1\\n10.0.0.1\\n' | ipconf-check",
            65,
            "stdin:1: 127.0.0.1 is every machine's own address",
        ),
        ("ipconf-check </dev/null", 65, "stdin: names no host"),
        (
            "head -c 70000000 /dev/zero | ipconf-check",
            65,
            "more than 67108864 bytes",
        ),
        ("ipconf-check none.txt", 74, "none.txt: No such file"),
        ("ipconf-check --default-port 0 ip.txt", 2, "--default-port"),
    ];
    for (script, status, problem) in table {
        sh(&folder, script).gives(status, "").err_has(problem);
    }
}

/// Runs a script with a folder's `hosts` in the place of /etc/hosts, and its `config` as
/// ssh_config.
fn with_names(folder: &Path, script: &str) -> Ran {
    let script = format!(
        "exec unshare $([ $(id -u) = 0 ] || echo --map-root-user) --mount sh -c '
            mount --bind hosts /etc/hosts && DGL_TOOLS_SSH_CONFIG=$PWD/config; \
            export DGL_TOOLS_SSH_CONFIG; {script}'"
    );
    sh(folder, &script)
}

#[test]
fn names_are_looked_up_as_ssh_does() {
    let folder = scratch();
    write(
        &folder,
        "hosts",
        "127.0.0.1 localhost\n10.0.0.1 n1\n10.0.0.2 n2 n2.example.org\n10.0.0.4 real4\n",
    );
    write(
        &folder,
        "config",
        "Host gpu3\n  HostName 10.0.0.3\nHost gpu4\n  HostName real4\nMatch user ann host gpu5\n  \
         HostName 10.0.0.5\n",
    );
    let hosts = "n1\nbob@n2.example.org 30051\ngpu3\ngpu4 # HostName is a name\nann@gpu5\n\
         cy@10.0.0.6\n";
    write(&folder, "ip.txt", hosts);
    let shown = "ipconf-check ip.txt | jq -r \"[.ip, .port, .name, .login] | @csv\"";
    with_names(&folder, shown).gives(
        0,
        "\"10.0.0.1\",30050,\"n1\",\n\
         \"10.0.0.2\",30051,\"n2.example.org\",\"bob@n2.example.org\"\n\
         \"10.0.0.3\",30050,\"gpu3\",\n\
         \"10.0.0.4\",30050,\"gpu4\",\n\
         \"10.0.0.5\",30050,\"gpu5\",\"ann@gpu5\"\n\
         \"10.0.0.6\",30050,,\"cy@10.0.0.6\"\n",
    );
    // DGL gets addresses
    with_names(&folder, "head -n 2 ip.txt | ipconf-check --emit ip_config")
        .gives(0, "10.0.0.1 30050\n10.0.0.2 30051\n");
    // the login of a table goes before the name in the place of the address
    let table = "printf \"ip,login\\nn1,gate\\nbob@n2,\\n\" | ipconf-check | jq -r .name,.login";
    with_names(&folder, table).gives(0, "n1\ngate\nn2\nbob@n2\n");
    // without ssh the resolver alone is asked
    let without_ssh = "mkdir bin; ln -s $(command -v ipconf-check) bin; \
        printf \"n1\\nreal4\\n\" | PATH=$PWD/bin ipconf-check --emit ip_config";
    with_names(&folder, without_ssh).gives(0, "10.0.0.1 30050\n10.0.0.4 30050\n");
    // a command of ssh_config that does not end
    write(&folder, "config", "Match exec \"sleep 60\"\n  User ann\n");
    with_names(
        &folder,
        "echo n1 | DGL_TOOLS_CONNECT_TIMEOUT=1s ipconf-check",
    )
    .gives(74, "")
    .err_has("stdin:1: n1: ssh -G: no end within 1 s, such as of a `Match exec`");
}

#[test]
fn names_that_lead_nowhere_useful_are_reported_with_what_to_write() {
    let folder = scratch();
    write(
        &folder,
        "hosts",
        "127.0.0.1 localhost\n127.0.1.1 me\n10.0.0.1 two\n10.1.0.1 two\nfd00::1 six\n\
         203.0.113.9 gate\n",
    );
    write(
        &folder,
        "config",
        "Host vm\n  HostName 127.0.0.1\n  Port 2222\nHost inner\n  ProxyJump bastion\n\
         Host nat?\n  HostName gate\n",
    );
    write(
        &folder,
        "ip.txt",
        "me\ntwo\nsix\nvm\ninner\nno-such.invalid\nnat1\nnat2\n",
    );
    let by_address = "fix: list it by the address at which the other hosts reach it, and have ssh \
        log in by the name: a first line ip,login, then ADDRESS,NAME";
    let ran = with_names(&folder, "ipconf-check ip.txt");
    ran.gives(65, "");
    for told in [
        "ip.txt:1: me resolves to 127.0.1.1 here, which is every machine's own address\n  fix: \
         write its address in place of the name, or correct the line `127.0.1.1 me` of /etc/hosts",
        "ip.txt:2: two has several addresses: 10.0.0.1, 10.1.0.1\n",
        "ip.txt:3: six has only an IPv6 address (fd00::1), which no version of DGL supports\n",
        "ip.txt:4: vm (HostName 127.0.0.1 of ssh_config) is every machine's own address\n",
        "ip.txt:5: inner: ",
        "; ssh reaches it by proxyjump bastion, so only that may know the name\n",
        by_address,
        "ip.txt:6: no-such.invalid: ",
        "fix: correct the name, or write the host's IPv4 address",
        "ip.txt:8: nat2 has the address 203.0.113.9, as the host of line 7\n",
    ] {
        ran.err_has(told);
    }
    // what these fixes say
    write(
        &folder,
        "hosts.csv",
        "ip,login\n10.0.0.5,inner\n10.0.0.6,vm\n",
    );
    with_names(&folder, "ipconf-check hosts.csv | jq -r .login").gives(0, "inner\nvm\n");
    write(&folder, "config", "Hots vm\n");
    with_names(&folder, "echo vm | ipconf-check")
        .ends(74)
        .err_has("stdin:1: vm: ssh -G: ")
        .err_has("Bad configuration option: hots");
    sh(&folder, "echo n1 | ipconf-check --resolve")
        .gives(2, "")
        .err_has("--resolve: was removed\n  fix: leave it out: names are always looked up");
}

#[test]
fn host_files_of_other_launchers_are_told_what_to_write() {
    let folder = scratch();
    let table = [
        (
            "gpu1 slots=4\\ngpu2 slots=2",
            "\"slots=4\" gives slots",
            "--num-workers 4,2",
        ),
        (
            "gpu1:4\\ngpu2:4",
            "\"gpu1:4\" gives slots",
            "--num-workers 4\n",
        ),
        (
            "[gpu]\\ngpu1",
            "[gpu] is of an inventory of Ansible",
            "FILE gpu --list-hosts",
        ),
        (
            "h[1-2,04]",
            "h[1-2,04] stands for several hosts",
            "printf '%s\\n' h{{1..2},04}",
        ),
    ];
    for (text, problem, fix) in table {
        let script = format!("printf '{text}\\n' | ipconf-check");
        let ran = sh(&folder, &script);
        ran.gives(65, "").err_has(&format!("stdin:1: {problem}"));
        ran.err_has(fix);
    }
    let expanded = "bash -c \"printf '%s\\n' 10.0.0.{{1..2},4}\" | ipconf-check --emit ip_config";
    sh(&folder, expanded).gives(0, "10.0.0.1 30050\n10.0.0.2 30050\n10.0.0.4 30050\n");
}

/// What consoles and command lines of clouds write, with the addresses of one host.
#[test]
fn tables_of_hosts() {
    let folder = scratch();
    let hosts = |file: &str| {
        let script = format!(
            "ipconf-check --emit jsonl {file} | jq -r '[.line, .ip, .port, .name, .login] | @csv'"
        );
        sh(&folder, &script)
    };
    let table = [
        (
            "\u{feff}\"Name\",\"Instance ID\",\"Public IPv4 address\",\"Private IP address\"\r\n\
             \"trainer 0, large\",\"i-1\",\"3.4.5.6\",\"10.0.0.1\"\r\n\r\n\
             \"trainer-1\",\"i-2\",\"\",\"10.0.0.2\"\r\n",
            "2,\"10.0.0.1\",30050,,\n4,\"10.0.0.2\",30050,\"trainer-1\",\"10.0.0.2\"\n",
        ),
        (
            "VirtualMachine\tPublicIPAddresses\tPrivateIPAddresses\nvm1\t3.4.5.6\t10.0.0.1\n",
            "2,\"10.0.0.1\",30050,,\n",
        ),
        (
            "name,network_ip,login\nvm1,10.0.0.1,3.4.5.6\nvm2,10.0.0.2,ann@gate.example.org\n",
            "2,\"10.0.0.1\",30050,\"vm1\",\"3.4.5.6\"\n\
             3,\"10.0.0.2\",30050,\"vm2\",\"ann@gate.example.org\"\n",
        ),
        (
            "IP;Port;Bemerkung\n10.0.0.1;4000;\"a;b\"\n;;\n10.0.0.2;;\n",
            "2,\"10.0.0.1\",4000,,\n4,\"10.0.0.2\",30050,,\n",
        ),
        ("address\n10.0.0.1\n", "2,\"10.0.0.1\",30050,,\n"),
    ];
    for (text, expected) in table {
        write(&folder, "hosts.csv", text);
        hosts("hosts.csv").gives(0, expected);
    }
    // a name in the place of the address is looked up
    let named = "printf 'ip,login\\nlocalhost,gate\\n' | ipconf-check - | \
        jq -r '.ip + .name + .login'";
    sh(&folder, named).gives(0, "127.0.0.1localhostgate\n");
    let clean = "printf 'ip,name\\n10.0.0.1,a\\n' | ipconf-check --emit ip_config -";
    sh(&folder, clean).gives(0, "10.0.0.1 30050\n");
    let wrong = "printf '%s\\n' ip,login 10.0.0.1,me@ '10.0.0.2,a b' 10.0.0.3 10.0.0.2, 10.0.0.2,c \
        >wrong.csv; ipconf-check wrong.csv";
    sh(&folder, wrong).ends(65).err_has(
        "wrong.csv:4: has 1 column, and the header has 2 columns\n  fix: add what is missing",
    );
    sh(&folder, "sed -i 4d wrong.csv; ipconf-check wrong.csv")
        .ends(65)
        .err_has("wrong.csv:2: login \"me@\" is neither a name nor an address\n")
        .err_has("wrong.csv:3: login \"a b\" is neither")
        .err_has("wrong.csv:5: 10.0.0.2 stands in line 4 already");
    sh(&folder, "printf '10.0.0.1,4000,a\\n' | ipconf-check -")
        .ends(65)
        .err_has(
            "fix: a file with separators needs a header in its first line: ip,port,name,login",
        );
}
