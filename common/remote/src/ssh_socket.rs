//! The connection on which OpenSSH logs in, made by the tool itself: ssh runs the tool once more as
//! its ProxyCommand and gets the socket from it (ProxyUseFdpass in ssh_config(5)).
//!
//! OpenSSH logs in with Nagle's algorithm on, so that both ends send one small message each only
//! when the other end has acknowledged the one before, which takes 40 ms: the client between its
//! new keys and its first request, the server between its host keys and its answer to the opening
//! of the channel. A login to a host that is near took 144 ms; with TCP_NODELAY 103 ms, and 72 ms
//! where Linux (6.15 and later) also lets us acknowledge at once.

use nix::libc;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg, setsockopt, sockopt};
use nix::{errno::Errno, setsockopt_impl, sockopt_impl};
use record::Host;
use std::ffi::OsString;
use std::io::{self, IoSlice};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;

/// The first word of the command line with which ssh runs us.
const WORD: &str = "--ssh-socket";
/// TCP_DELACK_MAX_US of linux/tcp.h, which libc does not have.
const TCP_DELACK_MAX_US: libc::c_int = 46;
/// Two ticks of the kernel's clock, the least that it accepts, at 250 or more ticks a second and at
/// 100.
const LEAST_DELAYS_US: [u32; 2] = [8_000, 20_000];

/// What ssh may find in SHELL to run a ProxyCommand.
const SHELLS: [&str; 9] = [
    "sh", "ash", "bash", "csh", "dash", "fish", "ksh", "tcsh", "zsh",
];

sockopt_impl!(
    /// The longest delay of an acknowledgement.
    DelackMax, SetOnly, libc::IPPROTO_TCP, TCP_DELACK_MAX_US, u32
);

/// How ssh can run this program; `None` if a shell would not take its path for one word, or if the
/// user's shell may be none, such as nologin.
static PROGRAM: OnceLock<Option<String>> = OnceLock::new();

/// What every tool calls first. Returns the exit status if ssh has run us for a socket.
pub fn begin() -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == WORD) {
        return Some(match serve(&words.collect::<Vec<OsString>>()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                record::tell!("{why}");
                ExitCode::FAILURE
            }
        });
    }
    PROGRAM.get_or_init(|| {
        let path = std::env::current_exe().ok().filter(|path| path.exists())?;
        let path = path.to_str()?.to_owned();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
        let shell = std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
        let shell = Path::new(&shell).file_name()?.to_str()?;
        (SHELLS.contains(&shell) && path.chars().all(is_plain)).then_some(path)
    });
    None
}

/// The ProxyCommand for a host; ssh puts in its name and port. `None` if this program cannot be run
/// as one, or if the host's name is not plain (CVE-2023-51385: a shell reads it).
pub(crate) fn command(host: &Host, limit: Duration) -> Option<String> {
    let program = PROGRAM.get()?.as_ref()?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-:@".contains(c);
    let target = host.target();
    (target.chars().all(is_plain) && !target.starts_with('-'))
        .then(|| format!("{program} {WORD} %h %p {}", limit.as_secs().max(1)))
}

/// Whether ssh only says with this line that it got no socket; why, was said before.
pub(crate) fn is_echo(line: &str) -> bool {
    line.starts_with("mm_receive_fd: ") || line == "proxy dialer did not pass back a connection"
}

/// Connects as ssh would and hands the socket to it on stdout; the error is in ssh's own words.
fn serve(words: &[OsString]) -> Result<(), String> {
    // who waits for the socket may be gone before the host has answered
    set_pdeathsig(Signal::SIGTERM).map_err(|error| error.to_string())?;
    let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
    let [host, port, limit] = words[..] else {
        return Err(format!("{WORD} is for ssh alone"));
    };
    let unresolved = |error: io::Error| {
        let why = error.to_string();
        let why = why.rsplit(": ").next().unwrap_or(&why);
        format!("ssh: Could not resolve hostname {host}: {why}")
    };
    let port_number = port.parse().map_err(|_| format!("ssh: no port: {port}"))?;
    let limit = Duration::from_secs(limit.parse().map_err(|_| format!("ssh: {limit}"))?);
    let addresses = (host, port_number).to_socket_addrs().map_err(unresolved)?;
    let socket = connect(addresses, limit)
        .map_err(|error| format!("ssh: connect to host {host} port {port}: {}", error.desc()))?;
    hand_over(&socket).map_err(|error| format!("ssh: its socket: {}", error.desc()))
}

fn connect(addresses: impl Iterator<Item = SocketAddr>, limit: Duration) -> nix::Result<TcpStream> {
    let mut last = Errno::EADDRNOTAVAIL;
    for address in addresses {
        match TcpStream::connect_timeout(&address, limit) {
            Ok(socket) => return Ok(socket),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => last = Errno::ETIMEDOUT,
            Err(error) => last = Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)),
        }
    }
    Err(last)
}

fn hand_over(socket: &TcpStream) -> nix::Result<()> {
    // ssh does so itself, with sockets of its own
    setsockopt(socket, sockopt::KeepAlive, &true)?;
    setsockopt(socket, sockopt::TcpNoDelay, &true)?;
    // an older kernel does not know it, and the login takes longer
    let mut delays = LEAST_DELAYS_US.iter();
    let _ = delays.find(|delay| setsockopt(socket, DelackMax, delay).is_ok());
    let socket = [socket.as_raw_fd()];
    let message = [ControlMessage::ScmRights(&socket)];
    let ssh = io::stdout();
    sendmsg::<()>(
        ssh.as_raw_fd(),
        &[IoSlice::new(&[0])],
        &message,
        MsgFlags::empty(),
        None,
    )?;
    Ok(())
}
