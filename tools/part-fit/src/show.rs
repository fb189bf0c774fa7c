//! Formats fits for people.

use record::{Fit, Host, term};

/// A table with a line for each partition.
pub fn table(hosts: &[Host], fits: &[Fit]) -> String {
    let head = [
        "partition",
        "host",
        "nodes",
        "edges",
        "halo",
        "disk",
        "/dev/shm",
        "of",
        "loading",
        "running",
        "of",
        "",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    let of_hosts = fits.chunk_by(|one, next| one.host == next.host);
    let each = hosts.iter().zip(of_hosts);
    rows.extend(each.flat_map(|(host, fits)| fits.iter().map(|fit| row(host, fit))));
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |row: &[String; 12]| {
        let cells = row.iter().zip(&widths).enumerate();
        let cells: Vec<String> = cells
            .map(|(at, (cell, width))| match at {
                // names to the left, numbers to the right
                1 | 11 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            })
            .collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

fn row(host: &Host, fit: &Fit) -> [String; 12] {
    let name = host.name_or_ip();
    [
        fit.id.to_string(),
        term::plain(&name).into_owned(),
        fit.nodes.to_string(),
        fit.edges.to_string(),
        fit.halo_nodes
            .map_or("?".to_owned(), |nodes| nodes.to_string()),
        term::bytes(fit.disk_bytes),
        term::bytes(fit.shm_bytes),
        term::bytes(fit.shm_free_bytes),
        term::bytes(fit.load_bytes),
        term::bytes(fit.run_bytes),
        term::bytes(fit.mem_bytes),
        if fit.fits { "fits" } else { "does not fit" }.to_owned(),
    ]
}
