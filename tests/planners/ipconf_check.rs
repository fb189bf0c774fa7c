//! ipconf-check on real files: every shape that users have, what is refused and how, names, tables
//! of hosts, a clean file for DGL.

use support::{scratch, sh, write};

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
    let all = "fe80::1\nnode-1\n10.0.0.1 30050 8\n10.0.0.2 65534\n10.0.0.2\n0.0.0.0\n127.0.0.1\n";
    write(&folder, "ip.txt", all);
    let got = sh(&folder, "ipconf-check --num-servers 4 ip.txt");
    let expected = [
        "ip.txt:1: fe80::1 is an IPv6 address",
        "ip.txt:2: node-1 is a name",
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

#[test]
fn names_are_looked_up() {
    let folder = scratch();
    // what `scontrol show hostnames` prints, for the one name that every machine knows
    let got = sh(&folder, "echo localhost | ipconf-check --resolve -");
    assert_eq!(
        got.out,
        "{\"type\":\"host\",\"id\":0,\"of\":1,\"ip\":\"127.0.0.1\",\"port\":30050,\
             \"line\":1,\"name\":\"localhost\"}\n"
    );
    sh(
        &folder,
        "echo no-such-host.invalid | ipconf-check --resolve",
    )
    .ends(74)
    .err_has("stdin:1: no-such-host.invalid: ")
    .err_has("fix:");
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
    let named = "printf 'ip,login\\nlocalhost,gate\\n' | ipconf-check --resolve - | \
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
