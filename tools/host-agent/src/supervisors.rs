//! Finds and asks the supervisors of this user's jobs on this host. Each listens on an abstract
//! Unix socket ([`crate::supervise::socket`]), whose name says the job.

use host::abstract_socket;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{UnixCredentials, getsockopt};
use nix::unistd::geteuid;
use record::is_job_name;
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use wire::codec::{self, Decoder};
use wire::job::Job;
use wire::{Event, Request};

/// The socket of a supervisor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SupervisorSocket {
    /// The job's name.
    pub job: String,
    /// The address of the host, because several hosts of a rehearsal are one machine.
    pub address: Ipv4Addr,
    /// The process id of the supervisor.
    pub pid: i32,
}

/// Why a supervisor gave no answer.
#[derive(Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// It has ended.
    Gone,
    /// It lives, but has not answered in time.
    Late,
}

impl SupervisorSocket {
    /// That of this process, which supervises this job.
    pub fn own(job: &Job) -> SupervisorSocket {
        SupervisorSocket {
            job: job.name.clone(),
            address: job.address,
            pid: std::process::id().cast_signed(),
        }
    }

    /// Its abstract name. The process id keeps the name of a supervisor that is ending from being
    /// in the way of the next one.
    pub fn name(&self) -> String {
        let SupervisorSocket { job, address, pid } = self;
        format!("dgl-tools/supervisor/{}/{address}/{job}/{pid}", geteuid())
    }

    fn parse(name: &str) -> Option<SupervisorSocket> {
        let rest = name.strip_prefix("dgl-tools/supervisor/")?;
        let rest = rest.strip_prefix(&format!("{}/", geteuid()))?;
        let mut parts = rest.split('/');
        let (address, job, pid) = (parts.next()?, parts.next()?, parts.next()?);
        let socket = SupervisorSocket {
            job: job.to_owned(),
            address: address.parse().ok()?,
            pid: pid.parse().ok()?,
        };
        (is_job_name(job) && parts.next().is_none()).then_some(socket)
    }

    /// Sends a request, and waits for all events of the answer, of at most this size. Any user may
    /// have bound the name, so only the supervisor itself is asked.
    pub fn ask(
        &self,
        request: &Request,
        limit: Duration,
        most: usize,
    ) -> Result<Vec<Event>, NoAnswer> {
        let until = Instant::now() + limit;
        let stream = match abstract_socket::connect_until(&self.name(), until) {
            Ok(Some(stream)) => UnixStream::from(stream),
            Ok(None) => return Err(NoAnswer::Late),
            Err(_) => return Err(NoAnswer::Gone),
        };
        let is_own =
            |peer: UnixCredentials| peer.uid() == geteuid().as_raw() && peer.pid() == self.pid;
        if !getsockopt(&stream, PeerCredentials).is_ok_and(is_own) {
            return Err(NoAnswer::Gone);
        }
        let question = codec::encode(request, &[]);
        let (bytes, is_late) = abstract_socket::ask_over(stream, &question, until, most)
            .map_err(|_| NoAnswer::Gone)?;
        if is_late {
            return Err(NoAnswer::Late);
        }
        let mut decoder = Decoder::default();
        decoder.push(&bytes);
        let next = || decoder.next_message::<Event>().ok().flatten();
        let events: Vec<Event> = std::iter::from_fn(next).map(|event| event.head).collect();
        if events.is_empty() {
            return Err(NoAnswer::Gone);
        }
        Ok(events)
    }
}

/// The sockets of all supervisors of this user in this network namespace.
pub fn all() -> Vec<SupervisorSocket> {
    let names = abstract_socket::names();
    let mut all: Vec<_> = names
        .iter()
        .filter_map(|name| SupervisorSocket::parse(name))
        .collect();
    // an accepted connection has the name of its socket
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};

    #[test]
    fn the_name_of_a_socket_says_the_job() {
        let socket = SupervisorSocket {
            job: "try-7.a".to_owned(),
            address: Ipv4Addr::new(10, 0, 0, 1),
            pid: 77,
        };
        let name = socket.name();
        assert_eq!(SupervisorSocket::parse(&name), Some(socket));
        let uid = format!("/{}/", geteuid());
        for wrong in [
            name.replace(&uid, "/4000000000/"),
            name.replace("try-7.a", "try\u{1b}"),
            name.replace("/77", "/77/8"),
            name.replace("/77", ""),
        ] {
            assert_eq!(SupervisorSocket::parse(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn another_process_that_has_bound_the_name_is_not_waited_for() {
        let socket = SupervisorSocket {
            job: format!("bound-{}", std::process::id()),
            address: Ipv4Addr::LOCALHOST,
            pid: 1,
        };
        let name = SocketAddr::from_abstract_name(socket.name()).unwrap();
        // it accepts connections and never answers
        let _stranger = UnixListener::bind_addr(&name).unwrap();
        let answer = socket.ask(&Request::ListJobs, Duration::from_secs(30), 4096);
        assert_eq!(answer.unwrap_err(), NoAnswer::Gone);
    }
}
