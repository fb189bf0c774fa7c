//! libssh2 in this process.

use super::channel::{Channel, Stream};
use super::options::{HostKey, Options, STOP_CHECKED};
use super::ssh_config::{Settings, settings};
use super::{HostFault, known_hosts, reasons};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, SockaddrStorage};
use record::Host;
use ssh2::{BlockDirections, HashType, MethodType, Session};
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Instant;

/// sshd hangs up after six failures (MaxAuthTries).
const MAX_KEYS: usize = 5;
/// A keep-alive keeps the way open through firewalls that forget idle connections.
const KEEPALIVE_S: u32 = 15;
/// Host key algorithms in the order in which OpenSSH prefers them; those of known keys go first.
/// As in OpenSSH, ssh-rsa is not among them, because it signs with SHA-1.
const HOST_KEYS: [&str; 6] = [
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
];

/// Logs in and runs `boot` in a channel.
pub(crate) fn open(
    options: &Options,
    host: &Host,
    boot: &str,
) -> Result<Box<dyn Channel>, HostFault> {
    let settings = settings(options, host)?;
    if let Some(what) = &settings.beyond_us {
        return Err(HostFault::unreachable(format!(
            "ssh_config has {what} for it, which libssh2 cannot do"
        ))
        .fix("use --connect ssh"));
    }
    let known = known_hosts::known_keys(&settings)?;
    let (session, socket) = handshake(options, &settings, &known)?;
    let (blob, fingerprint) = key(&session)?;
    if !known_hosts::check(&settings, &known, &blob)? {
        match options.host_key {
            HostKey::AcceptNew => known_hosts::remember(&settings, &blob)?,
            HostKey::Strict => return Err(unknown(&settings, &blob, fingerprint)),
        }
    }
    log_in(&session, &settings)?;
    let failed = |error: ssh2::Error| HostFault {
        timed_out: is_timeout(&error),
        ..HostFault::unreachable(format!(
            "no channel: {}",
            reasons::of_libssh2(error.message())
        ))
    };
    let mut channel = session.channel_session().map_err(failed)?;
    channel
        .exec(&format!("/bin/sh -c {}", record::quote::shown(boot)))
        .map_err(failed)?;
    session.set_keepalive(true, KEEPALIVE_S);
    session.set_blocking(false);
    Ok(Box::new(Ssh2 {
        session,
        channel,
        socket,
        full: false,
    }))
}

/// The key of a host that OpenSSH's program refused without showing it.
pub(crate) fn refused_key(options: &Options, host: &Host) -> Option<HostFault> {
    let settings = settings(options, host)
        .ok()
        .filter(|settings| settings.beyond_us.is_none())?;
    let known = known_hosts::known_keys(&settings).ok()?;
    let (session, _socket) = handshake(options, &settings, &known).ok()?;
    let (blob, fingerprint) = key(&session).ok()?;
    match known_hosts::check(&settings, &known, &blob) {
        Err(fault) => Some(fault),
        Ok(true) => None,
        Ok(false) => Some(unknown(&settings, &blob, fingerprint)),
    }
}

fn unknown(settings: &Settings, blob: &[u8], fingerprint: String) -> HostFault {
    HostFault {
        unknown_key: Some(Box::new(known_hosts::unknown(settings, blob, fingerprint))),
        ..HostFault::unreachable("its key is not in known_hosts")
    }
}

fn handshake(
    options: &Options,
    settings: &Settings,
    known: &[known_hosts::Known],
) -> Result<(Session, TcpStream), HostFault> {
    let location = format!("{}:{}", settings.hostname, settings.port);
    let socket = connect_to(&settings.hostname, settings.port, options)?;
    let failed =
        |error: &dyn std::fmt::Display| HostFault::unreachable(format!("{location}: {error}"));
    socket.set_nodelay(true).map_err(|error| failed(&error))?;
    let mut session = Session::new().map_err(|error| failed(&error))?;
    session.set_timeout(u32::try_from(options.connect_timeout.as_millis()).unwrap_or(u32::MAX));
    session.set_tcp_stream(socket.try_clone().map_err(|error| failed(&error))?);
    let kinds = preferred(known.iter().map(|line| line.kind.as_str()));
    session
        .method_pref(MethodType::HostKey, &kinds)
        .map_err(|error| failed(&error))?;
    session.handshake().map_err(|error| {
        let fault = HostFault::unreachable(format!(
            "{location}: no SSH handshake: {}",
            reasons::of_libssh2(error.message())
        ));
        HostFault {
            again: true,
            timed_out: is_timeout(&error),
            ..fault.fix("look whether sshd answers there, and its MaxStartups")
        }
    })?;
    Ok((session, socket))
}

/// LIBSSH2_ERROR_TIMEOUT and LIBSSH2_ERROR_SOCKET_TIMEOUT of libssh2.h.
fn is_timeout(error: &ssh2::Error) -> bool {
    matches!(error.code(), ssh2::ErrorCode::Session(-9 | -30))
}

/// Host key algorithms, those of known keys first; otherwise an honest host would appear to have
/// changed.
fn preferred<'a>(known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.collect();
    let is_known = |kind: &&str| {
        known.contains(
            &kind
                .replace("rsa-sha2-512", "ssh-rsa")
                .replace("rsa-sha2-256", "ssh-rsa")
                .as_str(),
        )
    };
    let (first, then): (Vec<&str>, Vec<&str>) = HOST_KEYS.iter().partition(|kind| is_known(kind));
    [first, then].concat().join(",")
}

fn connect_to(hostname: &str, port: u16, options: &Options) -> Result<TcpStream, HostFault> {
    let limit = options.connect_timeout;
    let unresolved = |error: io::Error| {
        HostFault::unreachable(format!("{hostname}: {error}"))
            .fix("correct the name, or choose another connector with --connect")
    };
    let mut last = HostFault::unreachable(format!("{hostname}: the name has no address"));
    for address in (hostname, port).to_socket_addrs().map_err(unresolved)? {
        match connect(&address, options) {
            Ok(socket) => return Ok(socket),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                return Err(HostFault::stopped());
            }
            Err(error) => {
                let problem = match error.kind() {
                    io::ErrorKind::TimedOut => {
                        format!("{address}: no answer within {} s", limit.as_secs_f32())
                    }
                    _ => format!("{address}: {error}"),
                };
                let timed_out = error.kind() == io::ErrorKind::TimedOut;
                last = HostFault {
                    timed_out,
                    ..HostFault::unreachable(problem)
                }
                .fix("look whether the host is up and sshd listens there (DGL_TOOLS_SSH_PORT)");
            }
        }
    }
    Err(last)
}

/// Connects like [`TcpStream::connect_timeout`], but only until a signal comes, which is
/// [`io::ErrorKind::Interrupted`].
fn connect(address: &SocketAddr, options: &Options) -> io::Result<TcpStream> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::Inet,
        SocketAddr::V6(_) => AddressFamily::Inet6,
    };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = TcpStream::from(socket::socket(family, SockType::Stream, flags, None)?);
    match socket::connect(socket.as_raw_fd(), &SockaddrStorage::from(*address)) {
        Ok(()) | Err(Errno::EINPROGRESS) => {}
        Err(error) => return Err(error.into()),
    }
    let until = Instant::now() + options.connect_timeout;
    let pause = PollTimeout::try_from(STOP_CHECKED).unwrap_or(PollTimeout::ZERO);
    while let Ok(0) | Err(Errno::EINTR) = poll(
        &mut [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)],
        pause,
    ) {
        if options.is_stopped() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        if Instant::now() >= until {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    if let Some(error) = socket.take_error()? {
        return Err(error);
    }
    socket.set_nonblocking(false)?;
    Ok(socket)
}

fn key(session: &Session) -> Result<(Vec<u8>, String), HostFault> {
    let missing = || HostFault::unreachable("it sent no host key");
    let (blob, _) = session.host_key().ok_or_else(missing)?;
    let hash = session
        .host_key_hash(HashType::Sha256)
        .ok_or_else(missing)?;
    use base64::Engine as _;
    let fingerprint = base64::engine::general_purpose::STANDARD_NO_PAD.encode(hash);
    Ok((blob.to_vec(), format!("SHA256:{fingerprint}")))
}

/// Tries the keys that an agent holds, then key files, as OpenSSH would. The key of
/// `DGL_TOOLS_IDENTITY` or IdentitiesOnly is tried alone.
fn log_in(session: &Session, settings: &Settings) -> Result<(), HostFault> {
    let mut tried = Vec::new();
    let named: Option<Vec<Vec<u8>>> = settings.identities_only.then(|| {
        settings
            .identities
            .iter()
            .filter_map(|file| public_half(file))
            .collect()
    });
    if let Ok(mut agent) = session.agent() {
        let listed = agent
            .connect()
            .and_then(|()| agent.list_identities())
            .and_then(|()| agent.identities())
            .unwrap_or_default();
        let may = |identity: &&ssh2::PublicKey| {
            named
                .as_ref()
                .is_none_or(|named| named.iter().any(|blob| blob == identity.blob()))
        };
        for identity in listed.iter().filter(may).take(MAX_KEYS) {
            match agent.userauth(&settings.user, identity) {
                Ok(()) => return Ok(()),
                Err(error) if is_timeout(&error) => return Err(unanswered(settings)),
                Err(_) => {}
            }
            tried.push(format!("{} (agent)", identity.comment()));
        }
    }
    for file in settings
        .identities
        .iter()
        .filter(|file| file.exists())
        .take(MAX_KEYS.saturating_sub(tried.len()))
    {
        match session.userauth_pubkey_file(&settings.user, None, file, None) {
            Ok(()) => return Ok(()),
            Err(error) if is_timeout(&error) => return Err(unanswered(settings)),
            // libssh2 has no better message for a key with a passphrase
            Err(error)
                if error.message().contains("passphrase")
                    || error.message().contains("extract public key") =>
            {
                tried.push(format!(
                    "{} (has a passphrase, or is of a kind that libssh2 cannot read)",
                    file.display()
                ));
            }
            Err(_) => tried.push(file.display().to_string()),
        }
    }
    Err(refused(settings, &tried))
}

/// The fault of a login for which no key was accepted.
fn refused(settings: &Settings, tried: &[String]) -> HostFault {
    let tried = if tried.is_empty() {
        "there is no key to try".to_owned()
    } else {
        format!("tried {}", tried.join(", "))
    };
    let fault = HostFault::unreachable(format!("login refused for {}: {tried}", settings.user));
    let login = record::quote::shown(format!("{}@{}", settings.user, settings.hostname));
    fault.fix(format!(
        "name user and key in ssh_config, or in DGL_TOOLS_SSH_USERNAME and DGL_TOOLS_IDENTITY; \
         load a key that has a passphrase into ssh-agent, with its .pub beside it; then \
         `ssh {login}` must work without asking for a password, passphrase or host key"
    ))
}

/// A login that was not answered in time: the host is busy; the key is not wrong.
fn unanswered(settings: &Settings) -> HostFault {
    let fault = HostFault::unreachable(format!(
        "the login as {} was not answered in time",
        settings.user
    ));
    HostFault {
        timed_out: true,
        ..fault
            .fix("look how busy the host is, or give it more time with DGL_TOOLS_CONNECT_TIMEOUT")
    }
}

/// The public half of a key, from the file beside it; or from the file itself if only an agent has
/// the private half.
fn public_half(file: &Path) -> Option<Vec<u8>> {
    use base64::Engine as _;
    let beside = [file.as_os_str().as_bytes(), b".pub"].concat();
    let files = [Path::new(OsStr::from_bytes(&beside)), file];
    let blob = |text: String| {
        base64::engine::general_purpose::STANDARD
            .decode(text.split_whitespace().nth(1)?)
            .ok()
    };
    files
        .into_iter()
        .find_map(|file| blob(std::fs::read_to_string(file).ok()?))
}

struct Ssh2 {
    session: Session,
    channel: ssh2::Channel,
    socket: TcpStream,
    /// Whether the socket takes no more just now.
    full: bool,
}

impl Channel for Ssh2 {
    fn read(&mut self, stream: Stream, buffer: &mut [u8]) -> io::Result<usize> {
        match stream {
            Stream::Stdout => self.channel.read(buffer),
            Stream::Stderr => self.channel.stderr().read(buffer),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let result = self.channel.write(bytes);
        self.full = matches!(&result, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
            && matches!(
                self.session.block_directions(),
                BlockDirections::Outbound | BlockDirections::Both
            );
        result
    }

    fn close_stdin(&mut self) -> io::Result<()> {
        self.channel.send_eof().map_err(io::Error::from)
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.channel.exit_status().ok()?;
        Some(ExitStatus::from_raw(status << 8))
    }

    fn wait_for(&self, _reading: [bool; 2], _writing: bool) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        // a write that waits for the other side's window waits for incoming data
        let out = if self.full {
            PollFlags::POLLOUT
        } else {
            PollFlags::empty()
        };
        vec![(self.socket.as_fd(), PollFlags::POLLIN | out)]
    }

    fn tick(&mut self) -> io::Result<()> {
        match self.session.keepalive_send() {
            Ok(_) => Ok(()),
            Err(error) => match io::Error::from(error) {
                error if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
                error => Err(error),
            },
        }
    }
}
