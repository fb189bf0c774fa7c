//! Lets the hosts send to each other, round by round, and writes their results.

use crate::args::Args;
use crate::plan;
use rayon::prelude::*;
use record::error::{Fault, Report};
use record::exit::Exit;
use record::jsonl::{Out, Stream};
use record::term;
use record::{Host, Link};
use remote::{Connector, HostFault, Remote, Session};
use std::net::SocketAddrV4;
use std::time::Duration;
use wire::link::{Expect, Received, Send, Sent};
use wire::{Event, Request};

/// How long a host may take beside the sending: it waits 10 s for a connection, and another host
/// may wait for it.
const PATIENCE: Duration = Duration::from_secs(30);

/// A host and the session with it.
struct Peer<'a> {
    host: &'a Host,
    session: Session,
}

/// Measures the links, and prints the stream with their records.
pub fn run(args: &Args, stream: &Stream, hosts: &[Host]) -> Result<Exit, Report> {
    let remote = Remote::new(args.connect.options(), Connector::Ssh2)?;
    let (reached, report) = remote.open_reachable(hosts);
    report.check()?;
    let mut peers: Vec<Peer<'_>> = reached
        .into_iter()
        .map(|(host, session)| Peer { host, session })
        .collect();

    let human = args.connect.format.human();
    let mut out = Out::new("link-probe");
    if !human {
        out.pass(stream);
    }
    let pool = remote::threads(hosts.len())?;
    let distances = plan::distances(hosts.len(), args.rounds);
    let of = u32::try_from(distances.clone().count() * hosts.len()).unwrap_or(u32::MAX);
    let mut links: Vec<Link> = Vec::new();
    for distance in distances {
        let round = pool.install(|| round(args, &mut peers, distance))?;
        for (id, link) in (links.len()..).zip(round) {
            let id = u32::try_from(id).unwrap_or(u32::MAX);
            let link = Link { id, of, ..link };
            if !human {
                out.record(&link);
            }
            links.push(link);
        }
    }
    if human {
        out.write(table(hosts, &links).as_bytes());
    }
    Report(plan::slow(hosts, &links)).print("link-probe");
    let mut report = broken(hosts, &links);
    report.0.extend(out.fault());
    report.check().map(|()| Exit::Done)
}

/// One round: every host sends to the host that is `distance` places behind it, and receives from
/// the one as many places before it.
fn round(args: &Args, peers: &mut [Peer<'_>], distance: usize) -> Result<Vec<Link>, Report> {
    let key = remote::random_token()?;
    let targets: Vec<Result<SocketAddrV4, String>> = peers
        .par_iter_mut()
        .map(|peer| peer.expect(args, &key))
        .collect();
    let sent: Vec<Result<Sent, String>> = peers
        .par_iter_mut()
        .enumerate()
        .map(|(at, peer)| {
            let to = targets[(at + distance) % targets.len()].clone()?;
            peer.send_to(to, args, &key)
        })
        .collect();
    let count = sent.len();
    let received: Vec<Result<Received, String>> = peers
        .par_iter_mut()
        .enumerate()
        .map(|(at, peer)| {
            // it would wait for a connection that will not come
            sent[(at + count - distance) % count].clone()?;
            peer.received(args)
        })
        .collect();
    let link = |(at, sent): (usize, Result<Sent, String>)| {
        let to = (at + distance) % peers.len();
        let ends = (peers[at].host.id, peers[to].host.id);
        link(ends, sent, received[to].clone())
    };
    Ok(sent.into_iter().enumerate().map(link).collect())
}

impl Peer<'_> {
    /// Lets the host wait for a connection; returns its address and port.
    fn expect(&mut self, args: &Args, key: &str) -> Result<SocketAddrV4, String> {
        let address = self.host.ip.0;
        let request = Request::ExpectLink(Expect {
            address,
            key: key.to_owned(),
            time_ms: term::millis(args.time),
        });
        self.ask(&request, args, |event| match event {
            Event::LinkExpected(expected) => Some(SocketAddrV4::new(address, expected.port)),
            _ => None,
        })
    }

    fn send_to(&mut self, to: SocketAddrV4, args: &Args, key: &str) -> Result<Sent, String> {
        let request = Request::SendLink(Send {
            from: self.host.ip.0,
            to,
            key: key.to_owned(),
            time_ms: term::millis(args.time),
            max_bytes: args.max_bytes(),
        });
        self.ask(&request, args, |event| match event {
            Event::LinkSent(sent) => Some(sent),
            _ => None,
        })
    }

    fn received(&mut self, args: &Args) -> Result<Received, String> {
        self.ask(&Request::TellLink, args, |event| match event {
            Event::LinkReceived(received) => Some(received),
            _ => None,
        })
    }

    /// Sends a request, which is answered by one event.
    fn ask<T>(
        &mut self,
        request: &Request,
        args: &Args,
        answer: impl Fn(Event) -> Option<T>,
    ) -> Result<T, String> {
        let events = self
            .session
            .ask(request, args.time + PATIENCE)
            .map_err(|HostFault { problem, .. }| problem)?;
        events
            .into_iter()
            .find_map(answer)
            .ok_or_else(|| "host-agent gave no answer".to_owned())
    }
}

/// The record of a link; of two failures, the sender's is reported.
fn link(
    (from, to): (u32, u32),
    sent: Result<Sent, String>,
    received: Result<Received, String>,
) -> Link {
    let ends = Link {
        from,
        to,
        ..Link::default()
    };
    match sent.and_then(|sent| Ok((sent, received?))) {
        Err(error) => Link {
            error: Some(error),
            ..ends
        },
        Ok((sent, received)) => Link {
            ok: true,
            rate_bytes_per_s: plan::rate(received.received_bytes, received.time_us),
            round_trip_ms: Some(sent.round_trip_us as f64 / 1000.0),
            retransmits: Some(sent.retransmits),
            sent_bytes: Some(sent.sent_bytes),
            ..ends
        },
    }
}

fn broken(hosts: &[Host], links: &[Link]) -> Report {
    let location = |id: u32| record::location_of(hosts, id);
    let fault = |link: &Link| {
        let error = link.error.as_deref()?;
        let location = format!("{} to {}", location(link.from), location(link.to));
        let fault = Fault::unreachable(location, error);
        Some(fault.fix("let a firewall pass what the hosts of a job send to each other"))
    };
    Report(links.iter().filter_map(fault).collect())
}

/// The table for people: for each host the medians of what it sent and received, and of its round
/// trips.
fn table(hosts: &[Host], links: &[Link]) -> String {
    let rates = plan::by_host(links);
    let row = |cells: [&str; 6]| {
        let [id, ip, sends, receives, round_trip, retransmits] = cells.map(term::plain);
        format!(
            "{id:>4}  {ip:<15}  {sends:>9}  {receives:>9}  {round_trip:>10}  {retransmits:>11}\n"
        )
    };
    let mut text = row([
        "host",
        "ip",
        "sends",
        "receives",
        "round trip",
        "retransmits",
    ]);
    for host in hosts {
        let own = || links.iter().filter(|link| link.from == host.id);
        let rate = |end: usize| {
            let rates = rates.get(&host.id).map(|rates| rates[end].iter().copied());
            let rate = rates.and_then(plan::median);
            rate.map_or("-".to_owned(), |rate| format!("{}/s", term::bytes(rate)))
        };
        let trips = own().filter_map(|link| Some((link.round_trip_ms? * 1000.0) as u64));
        let trip = plan::median(trips)
            .map_or("-".to_owned(), |us| format!("{:.2} ms", us as f64 / 1000.0));
        let again: u64 = own().filter_map(|link| link.retransmits).sum();
        text += &row([
            &host.id.to_string(),
            &host.ip.to_string(),
            &rate(0),
            &rate(1),
            &trip,
            &again.to_string(),
        ]);
    }
    text
}
