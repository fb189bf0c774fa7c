//! Logs in by libssh2, in this process.

use super::known_hosts;
use super::options::{RemoteOptions, STOP_CHECKED};
use super::ssh_config::SshSettings;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{self, AddressFamily, SockFlag, SockType, SockaddrStorage};
use session::channel::{Channel, ChannelStream};
use session::{HostFault, reasons};
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

/// sshd closes the connection after six failures (MaxAuthTries).
const MAX_KEYS: usize = 5;
/// Keep-alives keep idle connections open in firewalls.
const KEEPALIVE_S: u32 = 15;
/// Host key algorithms in the order in which OpenSSH prefers them; those of known keys go first.
const HOST_KEYS: [&str; 6] = [
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
];
/// Used only if ssh_config allows it, as in OpenSSH, because it signs with SHA-1.
const SHA1: &str = "ssh-rsa";

/// Logs in and runs `boot` in a channel.
pub(crate) fn open(
    options: &RemoteOptions,
    settings: &SshSettings,
    boot: &str,
) -> Result<Box<dyn Channel>, HostFault> {
    let known = known_hosts::known_keys(settings)?;
    let (session, socket) = handshake(options, settings, &known)?;
    check_key(&session, settings, &known)?;
    log_in(&session, settings)?;
    let failed = |error: ssh2::Error| HostFault {
        timed_out: is_timeout(&error),
        ..HostFault::unreachable(format!(
            "no channel: {}",
            reasons::explain_libssh2(error.message())
        ))
    };
    let mut channel = session.channel_session().map_err(failed)?;
    for (name, value) in &settings.set_env {
        // sshd accepts only those in its AcceptEnv, and ssh ignores refusals, too
        let _ = channel.setenv(name, value);
    }
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

fn check_key(
    session: &Session,
    settings: &SshSettings,
    known: &[known_hosts::KnownHost],
) -> Result<(), HostFault> {
    let (blob, fingerprint) = key(session)?;
    if known_hosts::check(settings, known, &blob)? {
        return Ok(());
    }
    match settings.accepts_new_keys {
        true => known_hosts::remember(settings, &blob),
        false => Err(unknown_key_fault(settings, &blob, fingerprint)),
    }
}

/// Writes the key of a new host into known_hosts, for an OpenSSH without accept-new.
pub(crate) fn accept_key(options: &RemoteOptions, settings: &SshSettings) -> Result<(), HostFault> {
    let known = known_hosts::known_keys(settings)?;
    if !known.is_empty() {
        return Ok(());
    }
    let (session, _socket) = handshake(options, settings, &known)?;
    check_key(&session, settings, &known)
}

/// The key of a host that OpenSSH's program refused without showing it.
pub(crate) fn refused_key(options: &RemoteOptions, settings: &SshSettings) -> Option<HostFault> {
    let known = known_hosts::known_keys(settings).ok()?;
    let (session, _socket) = handshake(options, settings, &known).ok()?;
    let (blob, fingerprint) = key(&session).ok()?;
    match known_hosts::check(settings, &known, &blob) {
        Err(fault) => Some(fault),
        Ok(true) => None,
        Ok(false) => Some(unknown_key_fault(settings, &blob, fingerprint)),
    }
}

/// A kind of algorithm for which the settings allow none of libssh2's.
pub(crate) fn lacks(settings: &SshSettings) -> Option<&'static str> {
    let allowed = &settings.algorithms;
    let lists = [
        ("cipher", &allowed.ciphers, MethodType::CryptCs),
        ("key exchange", &allowed.key_exchanges, MethodType::Kex),
        ("MAC", &allowed.macs, MethodType::MacCs),
        ("kind of host key", &allowed.host_keys, MethodType::HostKey),
    ];
    let is_lacking = |list: &[String], method| {
        !list.is_empty()
            && !list
                .iter()
                .any(|name| supported(method).contains(&name.as_str()))
    };
    lists
        .into_iter()
        .find(|(_, list, method)| is_lacking(list, *method))
        .map(|(kind, ..)| kind)
}

/// What this libssh2 can do.
fn supported(method: MethodType) -> Vec<&'static str> {
    let session = Session::new();
    session
        .and_then(|session| session.supported_algs(method))
        .unwrap_or_default()
}

fn unknown_key_fault(settings: &SshSettings, blob: &[u8], fingerprint: String) -> HostFault {
    HostFault {
        unknown_key: Some(Box::new(known_hosts::unknown_key(
            settings,
            blob,
            fingerprint,
        ))),
        ..HostFault::unreachable("its key is not in known_hosts")
    }
}

fn handshake(
    options: &RemoteOptions,
    settings: &SshSettings,
    known: &[known_hosts::KnownHost],
) -> Result<(Session, TcpStream), HostFault> {
    let location = format!("{}:{}", settings.hostname, settings.port);
    let socket = connect_to(&settings.hostname, settings.port, options)?;
    let failed =
        |error: &dyn std::fmt::Display| HostFault::unreachable(format!("{location}: {error}"));
    socket.set_nodelay(true).map_err(|error| failed(&error))?;
    let mut session = Session::new().map_err(|error| failed(&error))?;
    session.set_timeout(u32::try_from(options.connect_timeout.as_millis()).unwrap_or(u32::MAX));
    session.set_tcp_stream(socket.try_clone().map_err(|error| failed(&error))?);
    let allowed = &settings.algorithms;
    let kinds = preferred(
        known.iter().map(|line| line.kind.as_str()),
        &allowed.host_keys,
    );
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
    session.handshake().map_err(|error| {
        let fault = HostFault::unreachable(format!(
            "{location}: no SSH handshake: {}",
            reasons::explain_libssh2(error.message())
        ));
        HostFault {
            again: !is_in_vain(&error),
            timed_out: is_timeout(&error),
            ssh_may_do: is_in_vain(&error),
            ..fault.fix("check that sshd answers there, and its MaxStartups")
        }
    })?;
    Ok((session, socket))
}

/// LIBSSH2_ERROR_KEX_FAILURE and LIBSSH2_ERROR_METHOD_NONE of libssh2.h: the host and libssh2 may
/// have no algorithm in common.
fn is_in_vain(error: &ssh2::Error) -> bool {
    matches!(error.code(), ssh2::ErrorCode::Session(-5 | -17))
}

/// LIBSSH2_ERROR_TIMEOUT and LIBSSH2_ERROR_SOCKET_TIMEOUT of libssh2.h.
fn is_timeout(error: &ssh2::Error) -> bool {
    matches!(error.code(), ssh2::ErrorCode::Session(-9 | -30))
}

/// Host key algorithms, limited to those that are `allowed`. Those of known keys come first;
/// otherwise a host would answer with a key of another type, and appear to have changed.
fn preferred<'a>(known: impl Iterator<Item = &'a str>, allowed: &[String]) -> String {
    let known: Vec<&str> = known.collect();
    let is_known = |kind: &&str| {
        known.contains(
            &kind
                .replace("rsa-sha2-512", "ssh-rsa")
                .replace("rsa-sha2-256", "ssh-rsa")
                .as_str(),
        )
    };
    let is_allowed = |kind: &&str| match allowed.is_empty() {
        true => *kind != SHA1,
        false => allowed.iter().any(|name| name == kind),
    };
    let kinds = HOST_KEYS.into_iter().chain([SHA1]).filter(is_allowed);
    let (first, then): (Vec<&str>, Vec<&str>) = kinds.partition(is_known);
    [first, then].concat().join(",")
}

fn connect_to(hostname: &str, port: u16, options: &RemoteOptions) -> Result<TcpStream, HostFault> {
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
                .fix("check that the host is up and sshd listens there (DGL_TOOLS_SSH_PORT)");
            }
        }
    }
    Err(last)
}

/// Connects like [`TcpStream::connect_timeout`], but only until a signal arrives, which is
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
    use base64::Engine as _;
    let fingerprint = base64::engine::general_purpose::STANDARD_NO_PAD.encode(hash);
    Ok((blob.to_vec(), format!("SHA256:{fingerprint}")))
}

/// Tries the keys of an agent, then key files, as OpenSSH would. The key of `DGL_TOOLS_IDENTITY` or
/// IdentitiesOnly is tried alone.
fn log_in(session: &Session, settings: &SshSettings) -> Result<(), HostFault> {
    let mut attempt = KeyAttempt {
        session,
        settings,
        tried: Vec::new(),
        accepted: None,
    };
    match attempt.any_key()? {
        true => Ok(()),
        false => Err(attempt.refused()),
    }
}

/// LIBSSH2_ERROR_PUBLICKEY_UNVERIFIED of libssh2.h: the host accepts the key and has received a
/// signature, but does not admit the user.
const KEY_IS_NOT_ENOUGH: ssh2::ErrorCode = ssh2::ErrorCode::Session(-19);
/// LIBSSH2_ERROR_SOCKET_SEND, _SOCKET_DISCONNECT and _SOCKET_RECV.
const HUNG_UP: [i32; 3] = [-7, -13, -43];

/// A login with one key after another.
struct KeyAttempt<'a> {
    session: &'a Session,
    settings: &'a SshSettings,
    /// The keys that were tried.
    tried: Vec<String>,
    /// The key that the host has accepted as one of several factors.
    accepted: Option<String>,
}

impl KeyAttempt<'_> {
    /// Tries keys until one logs in.
    fn any_key(&mut self) -> Result<bool, HostFault> {
        let settings = self.settings;
        let named: Option<Vec<Vec<u8>>> = settings.identities_only.then(|| {
            settings
                .identities
                .iter()
                .filter_map(|file| public_half(file))
                .collect()
        });
        if !settings.no_agent
            && let Ok(mut agent) = self.session.agent()
        {
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
                let key = format!("{} (agent)", identity.comment());
                if self.judge(agent.userauth(&settings.user, identity), key)? {
                    return Ok(true);
                }
            }
        }
        let files = settings.identities.iter().filter(|file| file.exists());
        for file in files {
            if self.accepted.is_some() || self.tried.len() >= MAX_KEYS {
                break;
            }
            let result = self
                .session
                .userauth_pubkey_file(&settings.user, None, file, None);
            if self.judge(result, file.display().to_string())? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Tries a key; returns whether it has logged in.
    fn judge(&mut self, result: Result<(), ssh2::Error>, key: String) -> Result<bool, HostFault> {
        let Err(error) = result else {
            return Ok(true);
        };
        if is_timeout(&error) {
            return Err(unanswered(self.settings));
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
        self.tried.push(match (is_locked, is_unsigned) {
            (true, _) => {
                format!("{key} (has a passphrase, or is of a kind that libssh2 cannot read)")
            }
            (false, true) => format!("{key}, which did not sign"),
            (false, false) => key,
        });
        Ok(false)
    }

    /// The fault of a host that closes the connection during the login, as sshd does for PAM.
    /// OpenSSH shows what the host sends before that.
    fn hung_up(&self) -> HostFault {
        let user = &self.settings.user;
        let fault = HostFault::unreachable(format!(
            "the host closed the connection while {user} logged in{}",
            self.banner()
        ));
        HostFault {
            again: true,
            ssh_may_do: true,
            ..fault.fix(format!(
                "see what it prints: ssh {}",
                record::quote::shown(format!("{user}@{}", self.settings.hostname))
            ))
        }
    }

    /// The banner that sshd sends before a login.
    fn banner(&self) -> String {
        let banner = self.session.userauth_banner().ok().flatten();
        let words: Vec<&str> = banner.unwrap_or_default().split_whitespace().collect();
        match words.is_empty() {
            true => String::new(),
            false => format!("; its banner: {}", words.join(" ")),
        }
    }

    /// The fault of a login for which no key was enough.
    fn refused(&self) -> HostFault {
        let user = &self.settings.user;
        // sshd counts this request, too, and closes the connection after six failures
        let methods = match self.tried.len() < MAX_KEYS {
            true => self.session.auth_methods(user).unwrap_or_default(),
            false => "",
        };
        let problem = match &self.accepted {
            // sshd has closed the connection
            Some(_) if methods.is_empty() => return self.hung_up(),
            Some(key) => format!(
                "login not complete for {user}: the host accepts {key} and asks for more \
                 ({methods})"
            ),
            None => {
                let tried = match self.tried.is_empty() {
                    true => "there is no key to try".to_owned(),
                    false => format!("tried {}", self.tried.join(", ")),
                };
                let offers = match methods.is_empty() {
                    true => String::new(),
                    false => format!("; the host offers {methods}"),
                };
                format!("login refused for {user}: {tried}{offers}")
            }
        };
        let login = record::quote::shown(format!("{user}@{}", self.settings.hostname));
        let fix = match &self.accepted {
            Some(_) => format!(
                "run this on a terminal, where ssh can ask; `ssh {login}` shows what the host asks \
                 for"
            ),
            None => super::openssh::fix_of_refusal(methods, &login),
        };
        HostFault {
            is_refused: true,
            ssh_may_do: true,
            ..HostFault::unreachable(problem + &self.banner()).fix(fix)
        }
    }
}

/// The fault of a login that was not answered in time: the host is busy, and the key may be right.
fn unanswered(settings: &SshSettings) -> HostFault {
    let fault = HostFault::unreachable(format!(
        "the login as {} was not answered in time",
        settings.user
    ));
    HostFault {
        timed_out: true,
        ..fault.fix("check the load of the host, or allow more time with DGL_TOOLS_CONNECT_TIMEOUT")
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
    /// Whether the socket accepts no more bytes now.
    full: bool,
}

impl Channel for Ssh2 {
    fn read(&mut self, stream: ChannelStream, buffer: &mut [u8]) -> io::Result<usize> {
        match stream {
            ChannelStream::Stdout => self.channel.read(buffer),
            ChannelStream::Stderr => self.channel.stderr().read(buffer),
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

    fn exit_status(&mut self) -> Option<ExitStatus> {
        let status = self.channel.exit_status().ok()?;
        Some(ExitStatus::from_raw(status << 8))
    }

    fn poll_fds(&self, _reading: [bool; 2], _writing: bool) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        // a write that waits for the window of the other side waits for incoming data
        let out = if self.full {
            PollFlags::POLLOUT
        } else {
            PollFlags::empty()
        };
        vec![(self.socket.as_fd(), PollFlags::POLLIN | out)]
    }

    fn keep_alive(&mut self) -> io::Result<()> {
        match self.session.keepalive_send() {
            Ok(_) => Ok(()),
            Err(error) => match io::Error::from(error) {
                error if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
                error => Err(error),
            },
        }
    }
}
