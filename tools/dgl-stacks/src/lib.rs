//! Shows the stacks of the Python processes of a job, on all hosts. [`plan`], [`ranks`],
//! [`torchrun`], [`standstill`], [`groups`] and [`profile`] map values to values; `act` reaches the
//! hosts.

mod act;
mod args;
pub mod groups;
pub mod plan;
pub mod profile;
pub mod ranks;
pub mod standstill;
pub mod torchrun;

pub use args::Args;

use record::Process;
use record::error::{Fault, Report};
use record::exit::Exit;
use record::jsonl::Stream;

pub fn main(args: Args) -> Result<Exit, Report> {
    let stream = Stream::from_stdin(args.connect.partial)?;
    args.connect.say_partial("dgl-stacks");
    let hosts = stream.require("ipconf-check")?;
    let chosen = args.connect.choose(hosts.clone())?;
    // for whom a job waits is a question to all of its processes
    let asked = if args.connections || args.any {
        &hosts
    } else {
        &chosen
    };
    if args.any && stream.has::<Process>() {
        let fault = Fault::data(
            "stdin",
            "it has process records, and --any finds the processes",
        );
        return Err(fault
            .fix("give it host records alone, as ipconf-check writes them")
            .report());
    }
    act::run(&args, &stream, asked, &chosen)
}
