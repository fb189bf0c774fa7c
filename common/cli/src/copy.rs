//! What tools share that copy files in either direction: the report of results, and the choice of a
//! route.

use crate::progress::{ProgressDisplay, Route};
use parking_lot::Mutex;
use record::error::Fault;
use record::jsonl::{self, Out, Stream};
use record::{Host, Record, term};
use remote::direct::{Wire, WireOptions};
use remote::host_link::HostLink;
use remote::{HostFault, PublicKey};
use std::path::Path;

/// Reports results: records on stdout, progress on stderr, faults at the end.
pub struct CopyReporter {
    tool: &'static str,
    out: Mutex<Out>,
    is_for_people: bool,
    pub of: u32,
    pub show: ProgressDisplay,
    faults: Mutex<Vec<Fault>>,
}

impl CopyReporter {
    /// Passes the input on, except these hosts and records of type `again`, which are written
    /// again.
    pub fn new(
        tool: &'static str,
        is_for_people: bool,
        of: u32,
        show: ProgressDisplay,
        stream: &Stream,
        again: &str,
        changed: &[Host],
    ) -> CopyReporter {
        let mut out = Out::new(tool);
        if !is_for_people {
            out.pass_but(stream, again, changed);
        }
        CopyReporter {
            tool,
            out: Mutex::new(out),
            is_for_people,
            of,
            show,
            faults: Mutex::default(),
        }
    }

    pub fn record(&self, record: &impl Record) {
        if !self.is_for_people {
            let line = jsonl::line(record);
            self.out.lock().write(&line);
        }
    }

    pub fn fault(&self, fault: Fault) {
        self.faults.lock().push(fault);
    }

    /// Ends the display; returns all faults, including that of stdout.
    pub fn end(self) -> Vec<Fault> {
        self.show.end();
        let mut faults = self.faults.into_inner();
        faults.extend(self.out.into_inner().fault());
        faults
    }

    /// Chooses the route of `bytes` of content to or from a host. Agents with the keys `hosts` may
    /// pass files on to it.
    pub fn choose_route(
        &self,
        host: &Host,
        client: &mut HostLink,
        bytes: u64,
        wire: &WireOptions,
        hosts: &[PublicKey],
    ) -> Result<(), HostFault> {
        if let Some(warning) = client.choose_wire(host.ip.0, bytes, wire, hosts)? {
            self.tell(host, &warning);
        }
        Ok(())
    }

    pub fn show_route(&self, host: &Host, client: &HostLink) {
        let is_direct = client.is_direct();
        let route = if is_direct {
            Route::Direct
        } else {
            Route::Login
        };
        self.show.route(host, route);
    }

    /// Continues over the login if a direct connection broke.
    pub fn fall_back(
        &self,
        host: &Host,
        client: &mut HostLink,
        broken: HostFault,
        wire: Wire,
    ) -> Result<(), HostFault> {
        let notice = client.fall_back(broken, wire)?;
        self.tell(host, notice);
        self.show_route(host, client);
        Ok(())
    }

    fn tell(&self, host: &Host, notice: &str) {
        record::tell!("{}: {}: {notice}", self.tool, host.location());
    }
}

/// For --dry-run.
pub fn print_planned(out: &mut Out, host: &Host, src: &str, dst: &Path, bytes: u64) {
    let (location, dst, bytes) = (host.location(), dst.display(), term::bytes(bytes));
    let line = format!("{location}: {src} -> {dst} ({bytes})");
    out.write(format!("{}\n", term::plain(&line)).as_bytes());
}
