//! Reads a table of hosts (CSV) as cloud consoles and spreadsheets export it, with a header.

use crate::text::{HostLine, MAX_FAULTS, MAX_LINE, MAX_LINES};
use csv::{ReaderBuilder, StringRecord};
use record::error::{Fault, Report};
use std::net::Ipv4Addr;

/// The columns for the address at which hosts reach each other, in the form of [`plain`]: of AWS's
/// console and API (`Private IP address`, `PrivateIpAddress`), of Azure's portal and `az vm
/// list-ip-addresses` (`PrivateIPAddresses`), of Google's console (`Internal IP`) and of gcloud,
/// whose CSV printer writes names small (`internal_ip`, `network_ip`).
const PRIVATE: [&str; 9] = [
    "privateipaddress",
    "privateipaddresses",
    "privateipv4address",
    "privateipv4addresses",
    "privateip",
    "privateips",
    "internalip",
    "internalips",
    "networkip",
];
/// If there is no private address.
const ADDRESS: [&str; 3] = ["ip", "address", "ipaddress"];
const PORT: &str = "port";
const NAME: &str = "name";
const LOGIN: &str = "login";
const SEPARATORS: [u8; 3] = [b',', b';', b'\t'];
const HEADER: &str = "name the column of addresses ip in the first line; without a header, write \
                      one host per line: its address, then its port";

/// For comparison.
fn plain(name: &str) -> String {
    let is_mark = |c: char| c.is_whitespace() || ['_', '-', '"'].contains(&c);
    name.chars()
        .filter(|c| !is_mark(*c))
        .flat_map(char::to_lowercase)
        .collect()
}

fn is_address(name: &str) -> bool {
    PRIVATE.contains(&name) || ADDRESS.contains(&name)
}

fn reader(text: &str, separator: u8) -> csv::Reader<&[u8]> {
    ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .delimiter(separator)
        .from_reader(text.as_bytes())
}

/// `None` if the first line is that of an ip_config.
pub fn separator(text: &str) -> Option<u8> {
    let is_text = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    let line = text.lines().find(is_text)?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let before_comment = line.split('#').next().unwrap_or_default();
    // a bracket begins a range of hosts, such as h[1,3]
    let is_marked = |word: &str| word.contains([',', ';']) && !word.contains('[');
    let has_marks = before_comment.split_whitespace().any(is_marked);
    let cells = |separator: &u8| {
        let row = reader(line, *separator).into_records().next()?.ok()?;
        Some(row.iter().map(plain).collect::<Vec<_>>())
    };
    let first = words[0].split([',', ';']).next().unwrap_or_default();
    let is_host = first.trim_matches('"').parse::<Ipv4Addr>().is_ok();
    let widest = SEPARATORS
        .iter()
        .filter_map(|separator| Some((*separator, cells(separator)?)))
        .rev()
        .max_by_key(|(_, cells)| cells.len());
    let (separator, cells) = widest?;
    let is_header = match cells.len() {
        // a single word may be the name of a host
        1 if words.len() == 1 => ["ip", "address"].contains(&cells[0].as_str()),
        1 => is_address(&cells[0]),
        _ if separator == b'\t' && !has_marks => cells
            .iter()
            .any(|name| is_address(name) || [PORT, NAME, LOGIN].contains(&name.as_str())),
        _ => has_marks && !is_host,
    };
    is_header.then_some(separator)
}

/// By number.
struct Columns {
    address: usize,
    port: Option<usize>,
    name: Option<usize>,
    login: Option<usize>,
}

impl Columns {
    fn from_header(location: &str, header: &StringRecord) -> Result<Columns, Report> {
        let mut report = Report::default();
        let names: Vec<String> = header.iter().map(plain).collect();
        let mut find = |known: &[&str]| {
            let all: Vec<usize> = (0..names.len())
                .filter(|column| known.contains(&names[*column].as_str()))
                .collect();
            if let [first, second, ..] = all[..] {
                let problem = format!(
                    "{:?} and {:?} are both columns for the {}",
                    header[first].trim(),
                    header[second].trim(),
                    if is_address(&names[first]) {
                        "address"
                    } else {
                        known[0]
                    }
                );
                let fault = Fault::data(location, problem);
                report.push(fault.fix("leave one of them out, or rename it"));
            }
            all.first().copied()
        };
        let private = find(&PRIVATE);
        let address = private.or_else(|| find(&ADDRESS));
        let (port, name, login) = (find(&[PORT]), find(&[NAME]), find(&[LOGIN]));
        let Some(address) = address else {
            let found: Vec<&str> = header.iter().map(str::trim).collect();
            let problem = format!(
                "no column gives the address of a host: {}",
                found.join(", ")
            );
            report.push(Fault::data(location, problem).fix(HEADER));
            return Err(report);
        };
        report.check()?;
        Ok(Columns {
            address,
            port,
            name,
            login,
        })
    }
}

/// Without empty rows.
pub fn rows(file: &str, text: &str, separator: u8) -> Result<Vec<HostLine>, Report> {
    let mut report = Report::default();
    let mut columns: Option<(Columns, usize)> = None;
    let mut lines = Vec::new();
    let mut reader = reader(text, separator);
    let mut row = StringRecord::new();
    let (mut number, mut counted) = (1, 0);
    loop {
        let begin = usize::try_from(reader.position().byte()).unwrap_or(text.len());
        match reader.read_record(&mut row) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => {
                let fault = Fault::data(file, error.to_string());
                return Err(fault.fix("save the file as CSV, in UTF-8").report());
            }
        }
        // the reader skips empty lines before a row
        let blank = text[begin..].len() - text[begin..].trim_start_matches('\n').len();
        number += text[counted..begin + blank].matches('\n').count() as u64;
        counted = begin + blank;
        let location = format!("{file}:{number}");
        let end = usize::try_from(reader.position().byte()).unwrap_or(text.len());
        if let Some(fault) = unreadable(&location, &text[counted..end]) {
            report.push(fault);
        }
        let cells: Vec<&str> = row.iter().map(str::trim).collect();
        let is_comment = columns.is_none() && cells[0].starts_with('#');
        if is_comment || cells.iter().all(|cell| cell.is_empty()) {
            continue;
        }
        match &columns {
            None => columns = Some((Columns::from_header(&location, &row)?, row.len())),
            Some((columns, width)) => {
                let line = line(location, number, &cells, columns, *width);
                lines.extend(report.keep(line));
            }
        }
        if lines.len() > MAX_LINES {
            report.push(
                Fault::data(file, format!("more than {MAX_LINES} hosts"))
                    .fix("remove what is not a host of the job"),
            );
            break;
        }
        if report.0.len() >= MAX_FAULTS {
            break;
        }
    }
    report.check()?;
    Ok(lines)
}

fn unreadable(location: &str, text: &str) -> Option<Fault> {
    let text = text.trim_end_matches('\n');
    if text.contains('\n') && !text.matches('"').count().is_multiple_of(2) {
        let fault = Fault::data(location, "a quotation mark is not closed");
        return Some(fault.fix("write it twice within a cell, and close the cell with one"));
    }
    if text.len() > MAX_LINE {
        let fault = Fault::data(location, format!("a row of {} bytes", text.len()));
        return Some(fault.fix("leave out columns that have nothing to do with hosts"));
    }
    let fault = || Fault::data(location, "is not UTF-8 text").fix("save the file as CSV, in UTF-8");
    text.contains('\u{fffd}').then(fault)
}

fn line(
    location: String,
    number: u64,
    cells: &[&str],
    columns: &Columns,
    width: usize,
) -> Result<HostLine, Fault> {
    if cells.len() != width {
        let columns = |count: usize| record::term::count(count as u64, "column");
        let problem = format!(
            "has {}, and the header has {}",
            columns(cells.len()),
            columns(width)
        );
        return Err(Fault::data(location, problem).fix(
            "add what is missing, or put a cell that has a separator in it between quotation \
             marks",
        ));
    }
    let cell = |column: Option<usize>| {
        let cell = cells[column?];
        (!cell.is_empty()).then(|| cell.to_owned())
    };
    let Some(address) = cell(Some(columns.address)) else {
        return Err(Fault::data(location, "has no address")
            .fix("write the address of this host, or leave its row out"));
    };
    // Google's console adds the interface: 10.128.0.2 (nic0)
    let address = address.split(" (").next().unwrap_or_default().to_owned();
    if address.contains([',', ';', ' ', '\n']) {
        let problem = format!("has several addresses: {address:?}");
        return Err(Fault::data(location, problem)
            .fix("leave the one at which the other hosts reach this host"));
    }
    Ok(HostLine {
        location,
        number,
        address,
        port: cell(columns.port),
        name: cell(columns.name),
        login: cell(columns.login),
        surplus: None,
    })
}
