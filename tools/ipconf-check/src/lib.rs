//! Makes host records of an ip_config or a table of hosts. [`text`], [`table`] and [`plan`] map
//! values to values; this file reads files, and [`resolve`] looks up names.

pub mod args;
mod foreign;
pub mod plan;
mod resolve;
pub mod table;
pub mod text;

pub use args::Args;

use args::Emit;
use record::error::{Fault, Report};
use record::exit::Exit;
use record::jsonl;
use std::borrow::Cow;
use std::io::{self, IsTerminal, Read};
use std::path::Path;
use std::slice;
use text::HostLine;

pub fn main(args: Args) -> Result<Exit, Report> {
    let (file, text) = read(args.file.as_deref())?;
    let lines = lines(&file, &text)?;
    let names = plan::names(&lines);
    let resolutions = resolve::all(&names, &args.settings.options);
    let options = plan::PlanOptions {
        file: &file,
        default_port: args.default_port,
        num_servers: args.num_servers,
        resolver: &|name| resolutions.get(name).cloned(),
    };
    let hosts = plan::plan(&lines, &options)?;
    let lines = hosts.iter().map(|host| match args.emit {
        Emit::Jsonl => jsonl::line(host),
        Emit::IpConfig => record::ip_config(slice::from_ref(host)).into_bytes(),
    });
    jsonl::print(None, lines.map(Cow::Owned))?;
    Ok(Exit::Done)
}

/// The lines that name hosts: those of an ip_config, or the rows of a table.
pub fn lines(file: &str, text: &[u8]) -> Result<Vec<HostLine>, Report> {
    let text = text::decode(file, text)?;
    if let Some(separator) = table::separator(&text) {
        return table::rows(file, &text, separator);
    }
    let lines = text::lines(file, &text)?;
    foreign::fault(&lines).map_or(Ok(lines), |fault| Err(fault.report()))
}

/// Its name for messages, and its content.
fn read(file: Option<&Path>) -> Result<(String, Vec<u8>), Report> {
    let mut text = Vec::new();
    let named = file.filter(|file| *file != "-");
    let location = named.map_or("stdin".to_owned(), |file| file.display().to_string());
    // one extra byte is enough to refuse it
    let limit = text::MAX_BYTES + 1;
    let read = match named {
        Some(file) => {
            std::fs::File::open(file).and_then(|file| file.take(limit).read_to_end(&mut text))
        }
        None if io::stdin().is_terminal() => {
            return Err(Fault::usage("FILE", "is missing")
                .fix("name an ip_config file, or pipe one in")
                .report());
        }
        None => io::stdin().lock().take(limit).read_to_end(&mut text),
    };
    read.map_err(|error| {
        Fault::unreachable(&location, error.to_string())
            .did_you_mean(named.unwrap_or(Path::new("")))
            .fix("name a file that has one host per line")
            .report()
    })?;
    Ok((location, text))
}
