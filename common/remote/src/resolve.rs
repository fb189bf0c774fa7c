//! Looks up the addresses of a name. getaddrinfo(3) waits half a minute and longer for several name
//! servers that do not answer.

use super::options::STOP_CHECKED;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// A look-up that takes longer than the limit is left to its thread.
pub fn addresses(
    name: &str,
    port: u16,
    limit: Duration,
    is_stopped: impl Fn() -> bool,
) -> io::Result<Vec<SocketAddr>> {
    // an address needs no name server
    if let Ok(ip) = name.parse() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let (answer, answered) = channel();
    let asked = name.to_owned();
    thread::Builder::new().spawn(move || {
        let found = (asked.as_str(), port).to_socket_addrs();
        let _ = answer.send(found.map(Iterator::collect));
    })?;
    let until = Instant::now() + limit;
    loop {
        match answered.recv_timeout(STOP_CHECKED) {
            Ok(found) => return found,
            Err(RecvTimeoutError::Timeout) if is_stopped() => {
                return Err(io::ErrorKind::Interrupted.into());
            }
            Err(RecvTimeoutError::Timeout) if Instant::now() < until => {}
            Err(_) => {
                let problem = format!(
                    "the name servers do not answer within {} s",
                    limit.as_secs_f32()
                );
                return Err(io::Error::new(io::ErrorKind::TimedOut, problem));
            }
        }
    }
}
