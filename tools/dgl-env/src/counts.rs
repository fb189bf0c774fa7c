//! The number of processes on each host, and the graph formats that servers create.

use record::Host;
use record::error::{Fault, Report};

/// More processors than any machine on sale has; a larger number is a typing error.
pub const MAX_PER_HOST: u32 = 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PerHost {
    /// One number for all hosts, or one for each.
    Numbers(Vec<u32>),
    /// One process for each GPU that host-probe counted.
    Gpus,
}

impl PerHost {
    /// In the order of `hosts`. `option` names the flag in messages.
    pub fn counts(&self, option: &'static str, hosts: &[Host]) -> Result<Vec<u32>, Report> {
        let counts = match self {
            PerHost::Gpus => gpus(option, hosts)?,
            PerHost::Numbers(counts) if counts.len() == 1 => vec![counts[0]; hosts.len()],
            PerHost::Numbers(counts) => counts.clone(),
        };
        if counts.len() == hosts.len() {
            return Ok(counts);
        }
        let problem = format!("has {} numbers for {} hosts", counts.len(), hosts.len());
        Err(Fault::usage(option, problem)
            .fix("give one number for all hosts, or one for each in the order of ip_config")
            .report())
    }
}

fn gpus(option: &'static str, hosts: &[Host]) -> Result<Vec<u32>, Report> {
    let of_host = |host: &Host| {
        let (problem, fix) = match host.facts.gpus {
            Some(count @ 1..=MAX_PER_HOST) => return Ok(count),
            Some(0) => (
                "has no GPU that nvidia-smi or the kernel shows and CUDA_VISIBLE_DEVICES allows"
                    .to_owned(),
                format!("give {option} a number, or leave the host out"),
            ),
            Some(count) => (
                format!("{count} GPUs are more than any machine has"),
                "run host-probe again".to_owned(),
            ),
            None => (
                "its number of GPUs is unknown".to_owned(),
                format!("put host-probe before dgl-env, or give {option} a number"),
            ),
        };
        Err(Fault::data(host.location(), format!("{option} gpus: {problem}")).fix(fix))
    };
    Report::collect(hosts.iter().map(of_host))
}

/// Reads `N`, `N,N,…` or `gpus`.
pub fn per_host(text: &str) -> Result<PerHost, String> {
    let one = |word: &str| match word.parse() {
        Ok(count @ 1..=MAX_PER_HOST) => Ok(count),
        _ => Err(format!(
            "{word:?} is not a number from 1 to {MAX_PER_HOST}, nor gpus"
        )),
    };
    match text {
        "gpus" => Ok(PerHost::Gpus),
        numbers => numbers
            .split(',')
            .map(one)
            .collect::<Result<_, _>>()
            .map(PerHost::Numbers),
    }
}

/// Parses a list of csc, coo and csr, the form of DGL_GRAPH_FORMAT.
pub fn graph_format(text: &str) -> Result<String, String> {
    match text
        .split(',')
        .find(|word| !["csc", "coo", "csr"].contains(word))
    {
        Some(word) => Err(format!(
            "{word:?} is not csc, coo or csr; write them as csc,coo"
        )),
        None => Ok(text.to_owned()),
    }
}
