//! A large file for many hosts, handed on from host to host: our link carries it once.
//!
//! Nothing depends on it: what a chain did not bring is sent as what an earlier push has left is,
//! from where it broke off.

use crate::feed::small;
use crate::plan::{Delivery, key};
use record::Host;
use record::quote;
use remote::{HostKey, Options};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use wire::Text;
use wire::files::{Hop, Receive};

/// A host of a chain: its delivery, its folder, and where its host-agent lies.
pub struct Link<'a> {
    /// The host.
    pub host: &'a Host,
    /// What goes to it.
    pub delivery: &'a Delivery,
    /// Its folder, as it has it already.
    pub receive: Receive,
    /// Its host-agent.
    pub agent: Text,
}

/// What each host of a chain has to know of those behind it.
pub fn hops(chain: &[Link<'_>], options: &Options) -> Vec<Hop> {
    let hop = |link: &Link<'_>| Hop {
        words: reach(link, options),
        receive: Receive {
            lane: true,
            ..link.receive.clone()
        },
        file: small(link.delivery),
        key: key(link.delivery),
    };
    chain.iter().map(hop).collect()
}

/// The command that runs host-agent there.
fn reach(link: &Link<'_>, options: &Options) -> Vec<Text> {
    let mut words = vec![
        "ssh",
        "-T",
        "-o",
        "BatchMode=yes",
        "-o",
        "ServerAliveInterval=10",
        "-o",
        "ServerAliveCountMax=3",
    ];
    words.extend([
        "-o",
        "Ciphers=^aes128-gcm@openssh.com",
        "-o",
        "ForwardAgent=no",
        "-o",
        "ClearAllForwardings=yes",
        "-o",
    ]);
    words.push(match options.host_key {
        HostKey::Strict => "StrictHostKeyChecking=yes",
        HostKey::AcceptNew => "StrictHostKeyChecking=accept-new",
    });
    let timeout = format!(
        "ConnectTimeout={}",
        options.connect_timeout.as_secs().max(1)
    );
    words.extend(["-o", &timeout]);
    let port = options.ssh_port.map(|port| port.to_string());
    port.iter().for_each(|port| words.extend(["-p", port]));
    options
        .ssh_username
        .iter()
        .for_each(|user| words.extend(["-l", user]));
    let target = link.host.target();
    words.extend(["--", &target]);
    // the login shell there reads it
    let agent = OsString::from_vec(quote::sh(link.agent.bytes()));
    words
        .into_iter()
        .map(Text::from)
        .chain([agent.into()])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Args {
        #[command(flatten)]
        connect: cli::Connect,
    }

    #[test]
    fn a_hop_runs_the_agent_of_its_host() {
        let host = Host {
            id: 7,
            name: Some("n7".into()),
            ..Host::default()
        };
        let delivery = Delivery::sample();
        let receive = Receive {
            base: "/w".into(),
            run: "r".to_owned(),
            host: 7,
            dry: false,
            fsync: true,
            lane: false,
        };
        let connect = Args::parse_from(["x", "--ssh-port", "2222"]).connect;
        let link = Link {
            host: &host,
            delivery: &delivery,
            receive,
            agent: "/home/a b/host-agent".into(),
        };
        let hops = hops(&[link], &connect.options());
        let words: Vec<String> = hops[0]
            .words
            .iter()
            .map(|word| word.0.to_string_lossy().into_owned())
            .collect();
        assert_eq!(words[0], "ssh");
        assert_eq!(
            words[words.len() - 5..],
            ["-p", "2222", "--", "n7", "'/home/a b/host-agent'"]
        );
        assert!(hops[0].receive.lane && hops[0].receive.fsync && hops[0].key == key(&delivery));
    }
}
