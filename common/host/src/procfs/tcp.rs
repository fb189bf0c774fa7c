//! TCP sockets of this network namespace: /proc/net/tcp and tcp6.

use std::fs;
use std::net::Ipv4Addr;

/// TIME_WAIT of the kernel's include/net/tcp_states.h.
const TIME_WAIT: u8 = 0x06;
/// TCP_LISTEN of the same file.
const LISTEN: u8 = 0x0a;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpSocket {
    /// Its local address; `None` for an IPv6 address that does not map an IPv4 address.
    pub address: Option<Ipv4Addr>,
    pub port: u16,
    state: u8,
    /// The user who created it.
    pub uid: u32,
    /// The inode, by which descriptors of processes refer to it; 0 if no process holds it any more.
    pub inode: u64,
}

impl TcpSocket {
    pub fn listens(&self) -> bool {
        self.state == LISTEN
    }

    /// Whether its connection has ended and blocks its port for a minute.
    pub fn lingers(&self) -> bool {
        self.state == TIME_WAIT
    }
}

pub fn tcp_sockets() -> Vec<TcpSocket> {
    let texts = ["/proc/net/tcp", "/proc/net/tcp6"]
        .into_iter()
        .filter_map(|path| fs::read_to_string(path).ok());
    texts
        .flat_map(|text| text.lines().skip(1).filter_map(socket).collect::<Vec<_>>())
        .collect()
}

/// `SL LOCAL:PORT REMOTE:PORT STATE QUEUES TIMER RETRANSMITS UID TIMEOUT INODE …`.
fn socket(line: &str) -> Option<TcpSocket> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let (address, port) = words.get(1)?.rsplit_once(':')?;
    Some(TcpSocket {
        address: ipv4(address)?,
        port: u16::from_str_radix(port, 16).ok()?,
        state: u8::from_str_radix(words.get(3)?, 16).ok()?,
        uid: words.get(7)?.parse().ok()?,
        inode: words.get(9)?.parse().ok()?,
    })
}

/// An address is written as 32-bit numbers in memory order. IPv6 addresses only count if they are
/// unspecified (`::`), which usually includes IPv4, or map an IPv4 address (`::ffff:10.0.0.1`).
fn ipv4(hex: &str) -> Option<Option<Ipv4Addr>> {
    let word = |text: &str| {
        Some(Ipv4Addr::from(
            u32::from_str_radix(text, 16).ok()?.to_ne_bytes(),
        ))
    };
    match hex.len() {
        8 => Some(Some(word(hex)?)),
        32 => {
            let (head, tail) = hex.split_at(24);
            let mapped =
                head.ends_with("FFFF0000") && head[..16].bytes().all(|digit| digit == b'0');
            let unspecified = hex.bytes().all(|digit| digit == b'0');
            Some(if mapped || unspecified {
                word(tail)
            } else {
                None
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // the kernel writes addresses in its own byte order
    #[cfg(target_endian = "little")]
    #[test]
    fn sockets_of_proc_net_tcp() {
        let ip = |a, b, c, d| Some(Ipv4Addr::new(a, b, c, d));
        let table = [
            (
                "0: 0100000A:7562 00000000:0000 0A 0:0 00:0 0 1000 0 21 1 0 100",
                ip(10, 0, 0, 1),
                30050,
                1000,
                21,
            ),
            (
                "1: 00000000000000000000000000000000:1F90 0:0 0A 0:0 00:0 0 0 0 23 1",
                ip(0, 0, 0, 0),
                8080,
                0,
                23,
            ),
            (
                "2: 0000000000000000FFFF00000100007F:0016 0:0 06 0:0 00:0 0 0 0 0 1",
                ip(127, 0, 0, 1),
                22,
                0,
                0,
            ),
            (
                "3: 000080FE000000000000000001000000:0016 0:0 01 0:0 00:0 0 0 0 9 1",
                None,
                22,
                0,
                9,
            ),
        ];
        for (line, address, port, uid, inode) in table {
            let found = socket(line).unwrap();
            assert_eq!(
                (found.address, found.port, found.uid, found.inode),
                (address, port, uid, inode),
                "{line}"
            );
        }
        assert!(socket(table[0].0).unwrap().listens() && socket(table[2].0).unwrap().lingers());
        for line in [
            "",
            "nonsense",
            "0: 0100000A 0:0 0A",
            "0: 010A:7562 0:0 0A 0:0 00:0 0 0 0 1",
        ] {
            assert_eq!(socket(line), None, "{line}");
        }
    }
}
