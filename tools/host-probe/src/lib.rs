//! Logs in once to each host and adds the facts about it to its record. [`plan`], [`choice`],
//! [`gpus`] and [`ports`] map values to values; `act` reaches the hosts.

mod act;
mod args;
pub mod choice;
pub mod gpus;
pub mod plan;
pub mod ports;

pub use args::Args;

use record::error::{Fault, Report};
use record::exit::Exit;
use record::jsonl::Stream;

pub fn main(args: Args) -> Result<Exit, Report> {
    if args.least("disk").is_some() && args.workspace.is_none() {
        let problem = "needs --workspace";
        let fault = Fault::usage("--min disk", problem).fix("add --workspace DIR");
        return Err(fault.report());
    }
    let stream = Stream::from_stdin(args.connect.partial)?;
    args.connect.say_partial("host-probe");
    let hosts = args.connect.choose(stream.require("ipconf-check")?)?;
    act::run(&args, &stream, &hosts)
}
