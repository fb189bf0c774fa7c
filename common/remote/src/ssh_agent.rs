//! Whether the user's ssh-agent answers. libssh2 and `ssh` wait without a limit for one that
//! accepts a connection and never answers, as a forwarded agent behind a dead connection or a
//! locked password manager does.

use host::abstract_socket::connect_until;
use nix::sys::socket::UnixAddr;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// An agent asks its user for a signature, not for the list of keys.
const ANSWER_LIMIT: Duration = Duration::from_secs(3);
/// SSH_AGENTC_REQUEST_IDENTITIES of draft-miller-ssh-agent, after its length.
const LIST_KEYS: [u8; 5] = [0, 0, 0, 1, 11];
/// The length of an answer, and its type.
const ANSWER_BYTES: usize = 5;

pub fn is_usable() -> bool {
    matches!(state(), Ok(true))
}

/// Why the agent that SSH_AUTH_SOCK names cannot be used.
pub fn problem() -> Option<&'static str> {
    state().as_ref().err().map(String::as_str)
}

fn state() -> &'static Result<bool, String> {
    static STATE: OnceLock<Result<bool, String>> = OnceLock::new();
    STATE.get_or_init(|| {
        let Some(socket) = std::env::var_os("SSH_AUTH_SOCK").filter(|path| !path.is_empty()) else {
            return Ok(false);
        };
        let socket = Path::new(&socket);
        let name = socket.display();
        ask(socket, ANSWER_LIMIT).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => format!(
                "the ssh-agent at {name} (SSH_AUTH_SOCK) does not answer, so its keys were not \
                 tried"
            ),
            _ => format!(
                "no ssh-agent answers at {name} (SSH_AUTH_SOCK: {error}); a session of tmux or \
                 screen keeps the value of an earlier login"
            ),
        })?;
        Ok(true)
    })
}

fn ask(socket: &Path, limit: Duration) -> io::Result<()> {
    let connected = connect_until(&UnixAddr::new(socket)?, Instant::now() + limit)?;
    let mut agent = UnixStream::from(connected.ok_or(ErrorKind::TimedOut)?);
    agent.set_read_timeout(Some(limit))?;
    agent.set_write_timeout(Some(limit))?;
    agent.write_all(&LIST_KEYS)?;
    agent.read_exact(&mut [0; ANSWER_BYTES])
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, bind, listen, socket};
    use std::os::fd::AsRawFd;

    #[test]
    fn an_agent_that_accepts_no_connection_is_not_waited_for() {
        let path = std::env::temp_dir().join(format!("dgl-tools-agent-{}", std::process::id()));
        let address = UnixAddr::new(&path).unwrap();
        let agent = socket(
            AddressFamily::Unix,
            SockType::Stream,
            SockFlag::empty(),
            None,
        )
        .unwrap();
        bind(agent.as_raw_fd(), &address).unwrap();
        listen(&agent, Backlog::new(1).unwrap()).unwrap();
        let limit = Duration::from_millis(100);
        let mut queue = Vec::new();
        while let Some(client) = connect_until(&address, Instant::now() + limit).unwrap() {
            queue.push(client);
        }
        let asked = ask(&path, limit);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(asked.unwrap_err().kind(), ErrorKind::TimedOut);
    }
}
