//! A large file for many hosts, handed on from host to host: our link carries it once.
//!
//! Nothing depends on it: what a chain did not bring is sent as what an earlier push has left is, from where it broke off.

use crate::plan::{Delivery, key};
use common::cli::{Connect, HostKey};
use common::quote;
use common::record::Host;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What the hosts of a chain have to know, in front of the file: two lines each, then an empty one.
pub fn header(chain: &[(&Host, &Delivery)], connect: &Connect, base: &Path, run: &str) -> Vec<u8> {
    let mut header = Vec::new();
    for (at, (host, delivery)) in chain.iter().enumerate() {
        let stage = format!(".part-push.{run}.{}/part.{}", host.id, key(delivery));
        header.extend_from_slice(base.join(stage).as_os_str().as_bytes());
        header.push(b'\n');
        match chain.get(at + 1) {
            Some((next, _)) => header.extend(reach(next, connect)),
            None => header.push(b'-'),
        }
        header.push(b'\n');
    }
    header.push(b'\n');
    header
}

/// The command that runs the same on the next host, which is `$0`.
fn reach(host: &Host, connect: &Connect) -> Vec<u8> {
    let mut words = vec!["ssh", "-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3"];
    words.extend(["-o", "Ciphers=^aes128-gcm@openssh.com", "-o"]);
    words.push(match connect.host_key {
        HostKey::Strict => "StrictHostKeyChecking=yes",
        HostKey::AcceptNew => "StrictHostKeyChecking=accept-new",
    });
    let timeout = format!("ConnectTimeout={}", connect.connect_timeout.as_secs().max(1));
    words.extend(["-o", &timeout]);
    let port = connect.ssh_port.map(|port| port.to_string());
    port.iter().for_each(|port| words.extend(["-p", port]));
    connect.ssh_username.iter().for_each(|user| words.extend(["-l", user]));
    let target = host.target();
    words.extend(["--", &target]);
    [quote::sh_words(words).as_slice(), br#" "sh -c '$0' '$0'""#].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Args {
        #[command(flatten)]
        connect: Connect,
    }

    #[test]
    fn each_host_has_two_lines() {
        let (a, b) = (Host { id: 0, ..Host::default() }, Host { id: 7, name: Some("n7".into()), ..Host::default() });
        let delivery = Delivery::sample();
        let connect = Args::parse_from(["x", "--ssh-port", "2222"]).connect;
        let header = String::from_utf8(header(&[(&a, &delivery), (&b, &delivery)], &connect, Path::new("/w"), "r")).unwrap();
        let lines: Vec<&str> = header.split('\n').collect();
        let key = key(&delivery);
        assert_eq!(
            (lines[0], lines[2]),
            (format!("/w/.part-push.r.0/part.{key}").as_str(), format!("/w/.part-push.r.7/part.{key}").as_str())
        );
        assert!(lines[1].starts_with("ssh ") && lines[1].ends_with(r#"-p 2222 -- n7 "sh -c '$0' '$0'""#), "{}", lines[1]);
        assert_eq!(lines[3..], ["-", "", ""]);
    }
}
