//! Starts the launcher of a detached job on its first host, and has the agents of all hosts connect
//! to it.

use super::DetachedJob;
use crate::preflight::conversation::Conversation;
use crate::preflight::describe::name_in_use;
use crate::run::hosts::{ConnectedHosts, HostSession};
use crate::run::outcome::Stopped;
use record::Host;
use record::error::{Fault, Report};
use session::SessionEvent;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use wire::detached::{HostTicket, Launch, PlanPiece};
use wire::dial::Ticket;
use wire::job::JobOnHost;
use wire::preflight::Finding;
use wire::{Event, Request};

/// The most bytes of a plan in one request; JSON may double them.
const PIECE_BYTES: usize = 256 << 10;
/// How long to wait before a name that is in use is requested again.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// How the launcher listens for the agents of the hosts.
#[derive(Clone, Copy, Debug)]
pub struct LauncherListen {
    /// The port; 0 for any.
    pub port: u16,
    /// How long agents may take to connect.
    pub patience: Duration,
}

/// Starts the launcher on the first of these hosts. On success, the agents of all hosts have
/// connected to it, and the agent there sends what it writes. If anything fails, nothing is left.
pub fn start(
    hosts: &mut ConnectedHosts<'_>,
    job: &DetachedJob,
    listening: LauncherListen,
) -> Result<(), Stopped> {
    let Some(first) = hosts.sessions.first().map(|session| session.host) else {
        return Ok(());
    };
    let mut talk = Conversation::begin(hosts);
    let name = &job.plan.name;
    let text = serde_json::to_string(job)
        .map_err(|error| Stopped::Hosts(Fault::data("the plan", error.to_string()).report()))?;
    talk.ask(0, Request::Detach);
    for text in pieces(&text) {
        talk.ask(0, Request::Plan(PlanPiece { text }));
    }
    let launch = Launch {
        job: on_host(name, first),
        port: listening.port,
        patience_ms: record::term::millis(listening.patience),
    };
    let until = job.plan.wait.map(|wait| Instant::now() + wait);
    let tickets = loop {
        talk.ask(0, Request::Launch(Box::new(launch.clone())));
        match tickets(&mut talk)? {
            Some(tickets) => break tickets,
            None if until.is_some_and(|until| Instant::now() < until) => talk.pause(TRY_AGAIN)?,
            None => {
                let fault = name_in_use(name, None).fault(first.location());
                return Err(Stopped::Preflight(fault.report()));
            }
        }
    };
    dial(&mut talk, &tickets)?;
    let (followed, others) = hosts.sessions.split_at_mut(1);
    followed[0].send(Request::Follow(on_host(name, first)));
    others.iter_mut().for_each(HostSession::close);
    Ok(())
}

/// Splits the text into pieces of limited size.
fn pieces(mut text: &str) -> Vec<String> {
    let mut pieces = Vec::new();
    while !text.is_empty() {
        let mut ends = (0..=text.len().min(PIECE_BYTES)).rev();
        let end = ends.find(|end| text.is_char_boundary(*end));
        let (piece, rest) = text.split_at(end.unwrap_or(text.len()));
        pieces.push(piece.to_owned());
        text = rest;
    }
    pieces
}

/// The ticket of each host by its number; `None` if the name is in use.
fn tickets(talk: &mut Conversation<'_, '_>) -> Result<Option<BTreeMap<u32, Ticket>>, Stopped> {
    let (mut tickets, mut is_in_use) = (BTreeMap::new(), false);
    talk.collect(|_, event, _| match event {
        Event::Ticket(of_host) => {
            let HostTicket { host, ticket } = *of_host;
            tickets.insert(host, ticket);
        }
        Event::Preflight(Finding::NameInUse) => is_in_use = true,
        _ => {}
    })?;
    Ok((!is_in_use).then_some(tickets))
}

/// Has the agents of all hosts connect to the launcher.
fn dial(talk: &mut Conversation<'_, '_>, tickets: &BTreeMap<u32, Ticket>) -> Result<(), Stopped> {
    let hosts = talk.hosts;
    let mut report = Report::default();
    for (index, session) in hosts.sessions.iter().enumerate() {
        match tickets.get(&session.host.id) {
            Some(ticket) => talk.ask(index, Request::Dial(Box::new(ticket.clone()))),
            None => report.push(unconnected(hosts.sessions[0].host, "gave it no ticket")),
        }
    }
    if !report.0.is_empty() {
        return Err(Stopped::Hosts(report));
    }
    let late = talk.listen(|index, event| {
        let problem = match event {
            SessionEvent::Event(Event::Failed(failure), _) => failure.problem,
            SessionEvent::Lost(why) => why,
            SessionEvent::Event(..) => return,
        };
        report.push(unconnected(hosts.sessions[index].host, &problem));
    })?;
    for index in late {
        report.push(unconnected(hosts.sessions[index].host, "no answer"));
    }
    report.check().map_err(Stopped::Hosts)
}

fn unconnected(host: &Host, why: &str) -> Fault {
    let problem = format!("it cannot connect to the launcher on the first host: {why}");
    Fault::unreachable(host.location(), problem).fix(
        "let the hosts reach each other on all ports, or choose one that is open on the first host \
         in DGL_TOOLS_DIAL_PORT",
    )
}

/// Names a job on one of its hosts.
pub fn on_host(name: &str, host: &Host) -> JobOnHost {
    JobOnHost {
        name: name.to_owned(),
        address: host.ip.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_goes_in_pieces() {
        let text = "ä".repeat(PIECE_BYTES);
        let pieces = pieces(&format!("x{text}"));
        assert!(pieces.iter().all(|piece| piece.len() <= PIECE_BYTES));
        assert_eq!(pieces.concat(), format!("x{text}"));
        assert_eq!(pieces.len(), 3);
    }
}
