//! ipconf-check on real files: every shape that users have, what is refused and how, names, logins,
//! a clean file for DGL.

use support::{scratch, sh};

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
        std::fs::write(folder.join("ip.txt"), text).unwrap();
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
    std::fs::write(folder.join("ip.txt"), all).unwrap();
    let got = sh(&folder, "ipconf-check --num-servers 4 ip.txt");
    let expected = [
        "ip.txt:1: fe80::1 is an IPv6 address",
        "ip.txt:2: node-1 is a name",
        "ip.txt:3: a third column: \"8\"",
        "ip.txt:4: 4 servers from port 65534 on go beyond 65535",
        "ip.txt:6: 0.0.0.0 is not a host's address",
    ];
    assert!(got.status == 65 && got.out.is_empty(), "{}", got.err);
    for problem in expected {
        assert!(
            got.err.contains(&format!("ipconf-check: {problem}")) && got.err.contains("  fix: "),
            "{problem}: {}",
            got.err
        );
    }
    let utf16: Vec<u8> = [0xff, 0xfe]
        .into_iter()
        .chain("10.0.0.1\r\n".bytes().flat_map(|byte| [byte, 0]))
        .collect();
    std::fs::write(folder.join("utf16.txt"), utf16).unwrap();
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
        let got = sh(&folder, script);
        assert!(
            got.status == status && got.err.contains(problem) && got.out.is_empty(),
            "{script}: {} {}",
            got.status,
            got.err
        );
    }
}

#[test]
fn names_and_logins() {
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

    std::fs::write(
        folder.join("logins"),
        "10.0.0.2 gate-2.example.org # InfiniBand\n10.0.0.1 203.0.113.1\n",
    )
    .unwrap();
    let logins = sh(
        &folder,
        "printf '10.0.0.1\\n10.0.0.2\\n' | ipconf-check --login logins | jq -r .login",
    );
    assert_eq!(logins.out, "203.0.113.1\ngate-2.example.org\n");
    // for pipelines that another tool makes
    let by_variable = sh(
        &folder,
        "echo 10.0.0.1 >ip.txt; sed '/10.0.0.1/!d' logins >login; \
         export DGL_TOOLS_LOGIN=login; ipconf-check ip.txt | jq -r .login",
    );
    assert_eq!(by_variable.out, "203.0.113.1\n", "{}", by_variable.err);
    let wrong = sh(&folder, "echo 10.0.0.1 | ipconf-check --login logins");
    wrong
        .ends(65)
        .err_has("logins:1: \"10.0.0.2\" is not a host of ip_config");
}
