//! Logs in by libssh2, in this process.
//!
//! 1. `handshake` connects and agrees on algorithms, with the types of known host keys first.
//! 2. `check_key` compares the host's key with known_hosts, or remembers it if it may.
//! 3. `log_in` tries the keys of the agent and of files; `refused` and `hung_up` word a failure.
//! 4. `open` starts the bootstrap in a channel, which `Ssh2Channel` reads and writes without
//!    blocking.

use super::guard::Guard;
use super::known_hosts::{self, KnownKeys};
use super::openssh;
use super::options::{RemoteOptions, STOP_CHECKED};
use super::resolve;
use super::ssh_agent;
use super::ssh_config::SshSettings;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, SockaddrStorage};
use session::HostFault;
use session::channel::{Channel, ChannelStream};
use ssh2::{BlockDirections, HashType, MethodType, Session};
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Instant;

/// sshd closes the connection after six failures (MaxAuthTries).
const MAX_KEYS: usize = 5;
/// So that firewalls keep idle connections open.
const KEEPALIVE_S: u32 = 15;
/// Host key algorithms in OpenSSH's order; those of known keys go first.
const HOST_KEYS: [&str; 6] = [
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
];
/// Only if ssh_config allows it, as in OpenSSH, because it signs with SHA-1.
const SHA1: &str = "ssh-rsa";

pub fn open(
    options: &RemoteOptions,
    settings: &SshSettings,
) -> Result<Box<dyn Channel>, HostFault> {
    let known = known_hosts::known_keys(options, settings)?;
    let connection = handshake(options, settings, &known)?;
    let guard = &connection.guard;
    check_key(&connection.session, settings, &known)?;
    let channel = log_in(&connection, settings).and_then(|()| open_channel(&connection, settings));
    let channel = channel.map_err(|fault| guard.fault(fault))?;
    guard.login_is_over();
    connection.session.set_keepalive(true, KEEPALIVE_S);
    connection.session.set_blocking(false);
    Ok(Box::new(Ssh2Channel {
        channel,
        connection,
        is_full: false,
    }))
}

/// The fields are dropped in this order.
struct Connection {
    session: Session,
    socket: TcpStream,
    guard: Guard,
}

fn open_channel(
    connection: &Connection,
    settings: &SshSettings,
) -> Result<ssh2::Channel, HostFault> {
    let failed = |error: ssh2::Error| {
        let reason = connection.guard.explain(error.message());
        HostFault {
            timed_out: connection.guard.is_late(),
            ..HostFault::unreachable(format!("no channel: {reason}"))
        }
    };
    let mut channel = connection.session.channel_session().map_err(failed)?;
    for (name, value) in &settings.set_env {
        // sshd accepts only its AcceptEnv, and ssh ignores refusals, too
        let _ = channel.setenv(name, value);
    }
    channel
        .exec(&super::bootstrap::login_command())
        .map_err(failed)?;
    Ok(channel)
}

fn check_key(
    session: &Session,
    settings: &SshSettings,
    known: &KnownKeys,
) -> Result<(), HostFault> {
    let (blob, fingerprint) = key(session)?;
    if known_hosts::check(settings, known, &blob)? {
        return Ok(());
    }
    if settings.accepts_new_keys {
        return known_hosts::remember(settings, &blob);
    }
    Err(unknown_key_fault(settings, &blob, fingerprint))
}

/// Accepts a new host's key for an OpenSSH without accept-new.
pub fn accept_key(options: &RemoteOptions, settings: &SshSettings) -> Result<(), HostFault> {
    let known = known_hosts::known_keys(options, settings)?;
    if !known.keys.is_empty() {
        return Ok(());
    }
    let connection = handshake(options, settings, &known)?;
    check_key(&connection.session, settings, &known)
}

/// OpenSSH's program refused the key without showing it.
pub fn refused_key(options: &RemoteOptions, settings: &SshSettings) -> Option<HostFault> {
    let known = known_hosts::known_keys(options, settings).ok()?;
    let connection = handshake(options, settings, &known).ok()?;
    let (blob, fingerprint) = key(&connection.session).ok()?;
    match known_hosts::check(settings, &known, &blob) {
        Err(fault) => Some(fault),
        Ok(true) => None,
        Ok(false) => Some(unknown_key_fault(settings, &blob, fingerprint)),
    }
}

/// Names a kind of algorithm for which the settings allow none of libssh2's.
pub fn lacks(settings: &SshSettings) -> Option<&'static str> {
    let allowed = &settings.algorithms;
    let lists = [
        ("cipher", &allowed.ciphers, MethodType::CryptCs),
        ("key exchange", &allowed.key_exchanges, MethodType::Kex),
        ("MAC", &allowed.macs, MethodType::MacCs),
        ("kind of host key", &allowed.host_keys, MethodType::HostKey),
    ];
    for (kind, list, method) in lists {
        let supported = Session::new().and_then(|session| session.supported_algs(method));
        let supported = supported.unwrap_or_default();
        if !list.is_empty() && !list.iter().any(|name| supported.contains(&name.as_str())) {
            return Some(kind);
        }
    }
    None
}

fn unknown_key_fault(settings: &SshSettings, blob: &[u8], fingerprint: String) -> HostFault {
    let key = known_hosts::unknown_key(settings, blob, fingerprint);
    HostFault {
        unknown_key: Some(Box::new(key)),
        ..HostFault::unreachable("its key is not in known_hosts")
    }
}

fn handshake(
    options: &RemoteOptions,
    settings: &SshSettings,
    known: &KnownKeys,
) -> Result<Connection, HostFault> {
    let location = format!("{}:{}", settings.hostname, settings.port);
    let socket = connect_to(&settings.hostname, settings.port, options)?;
    let failed =
        |error: &dyn std::fmt::Display| HostFault::unreachable(format!("{location}: {error}"));
    socket.set_nodelay(true).map_err(|error| failed(&error))?;
    let mut session = Session::new().map_err(|error| failed(&error))?;
    session.set_tcp_stream(socket.try_clone().map_err(|error| failed(&error))?);
    let allowed = &settings.algorithms;
    let kinds = preferred(&known.keys, &allowed.host_keys);
    session
        .method_pref(MethodType::HostKey, &kinds)
        .map_err(|error| failed(&error))?;
    for (method, list) in [
        (MethodType::Kex, &allowed.key_exchanges),
        (MethodType::CryptCs, &allowed.ciphers),
        (MethodType::CryptSc, &allowed.ciphers),
        (MethodType::MacCs, &allowed.macs),
        (MethodType::MacSc, &allowed.macs),
    ] {
        if !list.is_empty() {
            // libssh2 refuses a list with algorithms that it does not know
            let _ = session.method_pref(method, &list.join(","));
        }
    }
    let deadline = Instant::now() + options.connect_timeout;
    let guard = Guard::new(&socket, deadline, options).map_err(|error| failed(&error))?;
    let shaken = session.handshake().map_err(|error| {
        // LIBSSH2_ERROR_KEX_FAILURE and LIBSSH2_ERROR_METHOD_NONE of libssh2.h: perhaps no
        // algorithm in common
        let is_in_vain = matches!(error.code(), ssh2::ErrorCode::Session(-5 | -17));
        let reason = guard.explain(error.message());
        let fault = HostFault::unreachable(format!("{location}: no SSH handshake: {reason}"));
        HostFault {
            again: !is_in_vain,
            timed_out: guard.is_late(),
            ssh_may_do: is_in_vain,
            ..fault.fix("check that the host's sshd answers, and its MaxStartups")
        }
    });
    shaken.map_err(|fault| guard.fault(fault))?;
    Ok(Connection {
        session,
        socket,
        guard,
    })
}

/// The `allowed` host key algorithms. Those of known keys come first; otherwise a host would answer
/// with a key of another type, and appear to have changed.
fn preferred(known: &[known_hosts::KnownHost], allowed: &[String]) -> String {
    let mut kinds: Vec<&str> = HOST_KEYS.into_iter().chain([SHA1]).collect();
    kinds.retain(|kind| {
        if allowed.is_empty() {
            *kind != SHA1
        } else {
            allowed.iter().any(|name| name == kind)
        }
    });
    kinds.sort_by_key(|kind| {
        let key_type = if kind.starts_with("rsa-") {
            SHA1
        } else {
            *kind
        };
        !known.iter().any(|line| line.kind == key_type)
    });
    kinds.join(",")
}

const CHECK_FIREWALL: &str = ". A firewall that limits new connections (ufw limit, fail2ban) \
    refuses them, too: wait a minute, and use --connect ssh, which keeps one connection";

fn connect_to(hostname: &str, port: u16, options: &RemoteOptions) -> Result<TcpStream, HostFault> {
    let limit = options.connect_timeout;
    let unresolved = |error: io::Error| {
        HostFault::unreachable(format!("{hostname}: {error}"))
            .fix("correct the name, or choose another connector with --connect")
    };
    let mut last = HostFault::unreachable(format!("{hostname}: the name has no address"));
    let addresses = resolve::addresses(hostname, port, limit, || options.is_stopped());
    for address in addresses.map_err(unresolved)? {
        match connect(&address, options) {
            Ok(socket) => return Ok(socket),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                return Err(HostFault::stopped());
            }
            Err(error) => {
                let timed_out = error.kind() == io::ErrorKind::TimedOut;
                let problem = if timed_out {
                    format!("{address}: no answer within {} s", limit.as_secs_f32())
                } else {
                    format!("{address}: {error}")
                };
                let mut fix = openssh::CHECK_SSHD.to_owned();
                if error.kind() == io::ErrorKind::ConnectionRefused {
                    fix += CHECK_FIREWALL;
                }
                last = HostFault {
                    timed_out,
                    ..HostFault::unreachable(problem)
                }
                .fix(fix);
            }
        }
    }
    Err(last)
}

/// Like [`TcpStream::connect_timeout`], but a signal to the tool ends it with
/// [`io::ErrorKind::Interrupted`].
fn connect(address: &SocketAddr, options: &RemoteOptions) -> io::Result<TcpStream> {
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
    let fingerprint = STANDARD_NO_PAD.encode(hash);
    Ok((blob.to_vec(), format!("SHA256:{fingerprint}")))
}

/// Tries the keys of an agent, then key files, as OpenSSH would. The key of `DGL_TOOLS_IDENTITY` or
/// IdentitiesOnly is tried alone.
fn log_in(connection: &Connection, settings: &SshSettings) -> Result<(), HostFault> {
    let mut attempt = KeyAttempt {
        session: &connection.session,
        guard: &connection.guard,
        settings,
        tried: Vec::new(),
        accepted: None,
    };
    if attempt.try_keys()? {
        return Ok(());
    }
    Err(attempt.refused())
}

/// LIBSSH2_ERROR_PUBLICKEY_UNVERIFIED of libssh2.h: the host accepts the key and a signature, but
/// does not admit the user.
const KEY_IS_NOT_ENOUGH: ssh2::ErrorCode = ssh2::ErrorCode::Session(-19);
/// LIBSSH2_ERROR_SOCKET_SEND, _SOCKET_DISCONNECT and _SOCKET_RECV.
const HUNG_UP: [i32; 3] = [-7, -13, -43];

struct KeyAttempt<'a> {
    session: &'a Session,
    guard: &'a Guard,
    settings: &'a SshSettings,
    tried: Vec<String>,
    /// The key that the host has accepted as one of several factors.
    accepted: Option<String>,
}

impl KeyAttempt<'_> {
    fn try_keys(&mut self) -> Result<bool, HostFault> {
        let settings = self.settings;
        let named: Option<Vec<Vec<u8>>> = settings.identities_only.then(|| {
            settings
                .identities
                .iter()
                .filter_map(|file| public_half(file))
                .collect()
        });
        if !settings.no_agent
            && ssh_agent::is_usable()
            && let Ok(mut agent) = self.session.agent()
        {
            let listed = agent
                .connect()
                .and_then(|()| agent.list_identities())
                .and_then(|()| agent.identities())
                .unwrap_or_default();
            let is_allowed = |identity: &&ssh2::PublicKey| {
                named
                    .as_ref()
                    .is_none_or(|named| named.iter().any(|blob| blob == identity.blob()))
            };
            for identity in listed.iter().filter(is_allowed).take(MAX_KEYS) {
                let key = format!("{} (agent)", identity.comment());
                if self.has_logged_in(agent.userauth(&settings.user, identity), key)? {
                    return Ok(true);
                }
            }
        }
        for file in settings.identities.iter().filter(|file| file.exists()) {
            if self.accepted.is_some() || self.tried.len() >= MAX_KEYS {
                break;
            }
            let session = self.session;
            let result = session.userauth_pubkey_file(&settings.user, None, file, None);
            if self.has_logged_in(result, file.display().to_string())? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Remembers a key that has not logged in. Fails if no other key can.
    fn has_logged_in(
        &mut self,
        result: Result<(), ssh2::Error>,
        key: String,
    ) -> Result<bool, HostFault> {
        let Err(error) = result else {
            return Ok(true);
        };
        if self.guard.is_late() {
            let user = &self.settings.user;
            let problem = format!("the login as {user} was not answered in time");
            let fix = "allow more time with DGL_TOOLS_CONNECT_TIMEOUT; if the host is not busy, \
                its sshd may ask a name server that does not answer (UseDNS in sshd_config, \
                /etc/resolv.conf)";
            // the host is busy, and the key may be right
            return Err(HostFault {
                timed_out: true,
                ..HostFault::unreachable(problem).fix(fix)
            });
        }
        if matches!(error.code(), ssh2::ErrorCode::Session(code) if HUNG_UP.contains(&code)) {
            return Err(self.hung_up());
        }
        // libssh2 uses this code for an agent that refuses, too
        let is_unsigned = error.message() == "Callback returned error";
        if error.code() == KEY_IS_NOT_ENOUGH && !is_unsigned {
            self.accepted.get_or_insert_with(|| key.clone());
        }
        // libssh2's message for a key with a passphrase
        let is_locked = error.message().contains("passphrase")
            || error.message().contains("extract public key");
        let why = match (is_locked, is_unsigned) {
            (true, _) => " (has a passphrase, or is of a kind that libssh2 cannot read)",
            (false, true) => ", which did not sign",
            (false, false) => "",
        };
        self.tried.push(key + why);
        Ok(false)
    }

    /// The host closed the connection during the login, as sshd does for PAM. OpenSSH shows what
    /// the host sends before that.
    fn hung_up(&self) -> HostFault {
        let (user, banner) = (&self.settings.user, self.banner());
        let problem = format!("the host closed the connection while {user} logged in{banner}");
        let fix = format!("see what it prints: ssh {}", self.destination());
        let fault = HostFault {
            ssh_may_do: true,
            ..HostFault::unreachable(problem).fix(fix)
        };
        // with several keys, each attempt would offer them again, and programs such as fail2ban
        // count that. libssh2 calls one of them accepted when the connection closes
        if self.tried.len() < 2 {
            return HostFault {
                again: true,
                ..fault
            };
        }
        let tried = format!(
            "{}, after it had refused {}",
            fault.problem,
            self.tried.join(", ")
        );
        HostFault {
            problem: tried,
            ..fault.fix(
                "if a host closes the connection after a few keys (MaxAuthTries), have the right \
                 one tried alone: IdentityFile with `IdentitiesOnly yes` in ssh_config, or \
                 DGL_TOOLS_IDENTITY",
            )
        }
    }

    fn destination(&self) -> String {
        record::quote::shown(format!("{}@{}", self.settings.user, self.settings.hostname))
    }

    /// The banner of sshd as the end of a message.
    fn banner(&self) -> String {
        let banner = self.session.userauth_banner().ok().flatten();
        let words: Vec<&str> = banner.unwrap_or_default().split_whitespace().collect();
        if words.is_empty() {
            return String::new();
        }
        format!("; its banner: {}", words.join(" "))
    }

    /// The fault of a login for which no key was enough.
    fn refused(&self) -> HostFault {
        let user = &self.settings.user;
        // sshd counts this request, too, and closes the connection after six failures
        let mut methods = "";
        if self.tried.len() < MAX_KEYS {
            methods = self.session.auth_methods(user).unwrap_or_default();
        }
        let problem = match &self.accepted {
            // sshd has closed the connection
            Some(_) if methods.is_empty() => return self.hung_up(),
            Some(key) => format!(
                "login not complete for {user}: the host accepts {key} and asks for more \
                 ({methods})"
            ),
            None => {
                let mut tried = format!("tried {}", self.tried.join(", "));
                if self.tried.is_empty() {
                    tried = "no key to try".to_owned();
                }
                if let Some(problem) = ssh_agent::problem().filter(|_| !self.settings.no_agent) {
                    tried += &format!("; {problem}");
                }
                if !methods.is_empty() {
                    tried += &format!("; the host offers {methods}");
                }
                format!("login refused for {user}: {tried}")
            }
        };
        let login = self.destination();
        let fix = match &self.accepted {
            Some(_) => format!(
                "run this on a terminal, where ssh can ask; `ssh {login}` shows what the host asks \
                 for"
            ),
            None => openssh::fix_of_refusal(methods, &login),
        };
        HostFault {
            is_refused: true,
            ssh_may_do: true,
            ..HostFault::unreachable(problem + &self.banner()).fix(fix)
        }
    }
}

/// From the file beside the key; or from the key file itself if only an agent has the private half.
fn public_half(file: &Path) -> Option<Vec<u8>> {
    let beside = [file.as_os_str().as_bytes(), b".pub"].concat();
    let files = [Path::new(OsStr::from_bytes(&beside)), file];
    files.into_iter().find_map(|file| {
        let text = std::fs::read_to_string(file).ok()?;
        STANDARD.decode(text.split_whitespace().nth(1)?).ok()
    })
}

struct Ssh2Channel {
    channel: ssh2::Channel,
    connection: Connection,
    /// The socket accepts no more bytes now.
    is_full: bool,
}

impl Channel for Ssh2Channel {
    fn read(&mut self, stream: ChannelStream, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match stream {
            ChannelStream::Stdout => self.channel.read(buffer),
            ChannelStream::Stderr => self.channel.stderr().read(buffer),
        };
        let guard = &self.connection.guard;
        guard.has_read(*read.as_ref().unwrap_or(&0));
        read.map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => error,
            kind => io::Error::new(kind, guard.explain(&error.to_string())),
        })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let result = self.channel.write(bytes);
        let guard = &self.connection.guard;
        guard.has_written(*result.as_ref().unwrap_or(&0));
        self.is_full = matches!(&result, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
            && matches!(
                self.connection.session.block_directions(),
                BlockDirections::Outbound | BlockDirections::Both
            );
        result
    }

    fn close_stdin(&mut self) -> io::Result<()> {
        self.channel.send_eof().map_err(io::Error::from)
    }

    fn exit_status(&mut self) -> Option<ExitStatus> {
        let status = self.channel.exit_status().ok()?;
        Some(ExitStatus::from_raw(status << 8))
    }

    fn poll_fds(&self, _reading: [bool; 2], _writing: bool) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        // a write that waits for the window of the other side waits for incoming data
        let mut flags = PollFlags::POLLIN;
        flags.set(PollFlags::POLLOUT, self.is_full);
        vec![(self.connection.socket.as_fd(), flags)]
    }

    fn keep_alive(&mut self) -> io::Result<()> {
        let session = &self.connection.session;
        match session.keepalive_send().map_err(io::Error::from) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }
}
