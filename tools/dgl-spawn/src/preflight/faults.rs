//! Faults of hosts that several steps of the preflight report.

use record::Host;
use record::error::Fault;

/// How to end a job that a host has named. People paste the command, so it holds only what can be
/// the name of a job.
fn end_of(job: &str) -> String {
    match cli::job_name(job) {
        Ok(job) => format!("ipconf-check ip_config.txt | dgl-reap --job {job}"),
        Err(_) => "its name is none that dgl-spawn gives; look with ipconf-check ip_config.txt | \
            dgl-reap --list"
            .to_owned(),
    }
}

/// The fault of a job whose name is in use: two jobs of one name could not be told apart.
pub fn name_in_use(host: &Host, name: &str) -> Fault {
    let fix = format!(
        "give this one another --job, or end that one: {}",
        end_of(name)
    );
    Fault::unreachable(host.place(), format!("a job named {name} runs there")).fix(fix)
}

/// The fault of a host that is lost before anything was started.
pub fn lost(host: &Host, why: String) -> Fault {
    Fault::unreachable(host.place(), why).fix("look whether the host is up, and run it again")
}
