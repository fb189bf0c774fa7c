//! Any bytes as an ip_config or a table of hosts: no panic; and what is taken can be written as an
//! ip_config that DGL reads, which says the same.
#![no_main]

use ipconf_check::plan::{PlanOptions, Resolution, plan};
use ipconf_check::lines;
use libfuzzer_sys::fuzz_target;
use record::Host;
use std::net::IpAddr;

fuzz_target!(|data: &[u8]| {
    let Some(hosts) = read(data) else { return };
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
});

fn read(data: &[u8]) -> Option<Vec<Host>> {
    let lines = lines("f", data).ok()?;
    // a resolver that knows every name of up to 7 letters
    let resolve = |name: &str| {
        let number = name.bytes().fold(0u32, |number, byte| {
            number.wrapping_mul(31).wrapping_add(byte.into())
        });
        let addresses = match name.len() < 8 {
            true => Ok(vec![IpAddr::from(number.to_be_bytes())]),
            false => Err("no such name".to_owned()),
        };
        Some(Resolution {
            host_name: name.to_owned(),
            proxy: None,
            addresses,
        })
    };
    plan(
        &lines,
        &PlanOptions {
            file: "f",
            default_port: 30050,
            num_servers: 4,
            resolver: &resolve,
        },
    )
    .ok()
}
