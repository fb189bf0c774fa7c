//! Files are received in a process of its own, so that its stage is put away however it ends, even
//! if it is killed by a user or for lack of memory.
//!
//! That process is this program again, with the same stdin and stdout, and with `PART_PUSH=RUN.ID.`
//! in its environment, by which it can be found. Bytes that this process has already read are
//! passed on in the environment: the next request or a sign of life may come right behind the first
//! request, and to read that byte by byte would take as much code as to pass on the rest.

use super::serve::OVER_LOST;
use super::stage::Stage;
use crate::output::SharedOutput;
use crate::requests::{REST, Requests};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode, ExitStatus};
use wire::files::{FileRequest, Receive};
use wire::{Event, Failure, Request, codec};

/// The variable that marks the process that receives.
const MARK: &str = "PART_PUSH";

/// Whether this request needs a process of its own.
pub fn is_needed(receive: &Receive) -> bool {
    !receive.dry && !receive.direct && std::env::var_os(MARK).is_none()
}

/// Runs the process, and puts away what it leaves.
pub fn run(receive: &Receive, requests: &Requests, output: &SharedOutput) -> ExitCode {
    match start(receive, requests) {
        Ok(status) => match (status.signal(), status.code()) {
            (Some(signal), _) => {
                let stage = Stage::abandoned(receive.base.path(), &receive.run, receive.host);
                stage.iter().for_each(Stage::leave);
                let name = record::exit::signal_name(signal);
                output.event(&Event::Failed(Failure::new(format!(
                    "what receives there was ended by SIG{name}"
                ))));
                ExitCode::FAILURE
            }
            (None, code) => ExitCode::from(
                code.and_then(|code| u8::try_from(code).ok())
                    .unwrap_or(OVER_LOST),
            ),
        },
        Err(error) => {
            output.event(&Event::Failed(Failure::new(format!("host-agent: {error}"))));
            ExitCode::FAILURE
        }
    }
}

fn start(receive: &Receive, requests: &Requests) -> io::Result<ExitStatus> {
    let first = codec::encode(&Request::File(FileRequest::Receive(receive.clone())), &[]);
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("host-agent")
        .env(MARK, format!("{}.{}.", receive.run, receive.host));
    command.env(REST, requests.with_rest(&first));
    command.status()
}
