//! Measures how fast the hosts of a job reach each other. [`plan`] maps values to values; `act` has
//! the hosts send.

mod act;
mod args;
pub mod plan;

pub use args::Args;

use record::error::Report;
use record::exit::Exit;
use record::jsonl::Stream;

/// Runs the tool.
pub fn main(args: Args) -> Result<Exit, Report> {
    let stream = Stream::from_stdin(args.connect.partial)?;
    args.connect.say_partial("link-probe");
    let hosts = args.connect.choose(stream.require("ipconf-check")?)?;
    act::run(&args, &stream, &hosts)
}
