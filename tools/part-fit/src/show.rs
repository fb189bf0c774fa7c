//! Formats fits for people.

use crate::plan::HostPlan;
use record::{Fit, Host, term};

const HEAD: [&str; 11] = [
    "partition",
    "host",
    "nodes",
    "edges",
    "disk",
    "/dev/shm",
    "of",
    "loading",
    "running",
    "of",
    "",
];

/// A table with a line for each partition.
pub fn table(plans: &[HostPlan]) -> String {
    let mut rows = vec![HEAD.map(str::to_owned)];
    let of_host = |plan| {
        let HostPlan { host, fits, .. }: &HostPlan = plan;
        fits.iter().map(move |fit| row(host, fit))
    };
    rows.extend(plans.iter().flat_map(of_host));
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: [usize; 11] = std::array::from_fn(width);
    let line = |row: &[String; 11]| {
        let cells = row.iter().zip(widths);
        let cells: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:>width$}"))
            .collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

fn row(host: &Host, fit: &Fit) -> [String; 11] {
    [
        fit.id.to_string(),
        term::plain(&host.name_or_ip()).into_owned(),
        fit.nodes.to_string(),
        fit.edges.to_string(),
        term::bytes(fit.disk_bytes),
        term::bytes(fit.shm_bytes),
        term::bytes(fit.shm_free_bytes),
        term::bytes(fit.load_bytes),
        term::bytes(fit.run_bytes),
        term::bytes(fit.mem_bytes),
        if fit.fits { "fits" } else { "does not fit" }.to_owned(),
    ]
}
