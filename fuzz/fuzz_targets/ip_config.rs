//! Any bytes as an ip_config, and behind a form feed on a line of its own as the file of `--login`:
//! no panic; and what is taken can be written as an ip_config that DGL reads, which says the same.
#![no_main]

use ipconf_check::plan::{Options, plan};
use ipconf_check::{login, text};
use libfuzzer_sys::fuzz_target;
use record::Host;
use std::net::Ipv4Addr;

fuzz_target!(|data: &[u8]| {
    let at = data
        .windows(3)
        .position(|bytes| bytes == b"\n\x0c\n")
        .unwrap_or(data.len());
    let (data, logins) = data.split_at(at);
    let Some(mut hosts) = read(data) else { return };
    assert!(
        !hosts.is_empty()
            && (0u32..)
                .zip(&hosts)
                .all(|(id, host)| host.id == id && host.of as usize == hosts.len())
    );
    let written: String = hosts
        .iter()
        .map(|host| format!("{} {}\n", host.ip, host.port))
        .collect();
    let again = read(written.as_bytes()).expect("what was taken can be written and read");
    assert!(
        hosts
            .iter()
            .zip(&again)
            .all(|(a, b)| (a.ip, a.port) == (b.ip, b.port))
            && hosts.len() == again.len()
    );
    if let Ok(lines) = text::lines("logins", logins) {
        let _ = login::assign(&mut hosts, &lines);
    }
});

fn read(data: &[u8]) -> Option<Vec<Host>> {
    let lines = text::lines("f", data).ok()?;
    // a resolver that knows every name of up to 7 letters
    let resolve = |name: &str| {
        let number = name.bytes().fold(0u32, |number, byte| {
            number.wrapping_mul(31).wrapping_add(byte.into())
        });
        match name.len() < 8 {
            true => Ok(vec![Ipv4Addr::from(number)]),
            false => Err("no such name".to_owned()),
        }
    };
    plan(
        &lines,
        &Options {
            file: "f",
            default_port: 30050,
            num_servers: 4,
            resolver: Some(&resolve),
        },
    )
    .ok()
}
