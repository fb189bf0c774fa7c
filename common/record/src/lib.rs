//! What all tools share, whether they reach hosts or not: records, the stream with its rules,
//! faults, and exit statuses. dgl-tools(7) and dgl-tools-records(5) describe it for users.
//!
//! Names are permanent: a field is added, never renamed or given another meaning; that needs a new
//! type. No integer exceeds 2^53, because jq would change it.

mod connection;
pub mod cpus;
mod encoded;
pub mod error;
mod events;
pub mod exit;
mod files;
pub mod hex;
mod host;
pub mod jsonl;
pub mod majority;
mod process;
pub mod profile;
pub mod python;
pub mod quote;
mod reap;
pub mod run;
#[cfg(test)]
mod schema;
pub mod similar;
pub mod stacks;
mod stalled;
pub mod stderr;
pub mod term;

pub use connection::Connection;
pub use encoded::path_fields;
pub use events::{Dropped, Exited, FirstFailure, Listening, Output, Started, Summary, Verdict};
pub use files::{
    FileCopy, Graph, LocalFile, Pulled, Pushed, RESERVED, Workspace, changed_since_copied,
    has_changed, is_reserved,
};
pub use host::{
    Connect, DEFAULT_PORT, Facts, GpuCard, GpuUser, Host, IpAddr, PROGRAM_PORTS, at_home, host_of,
    ip_config, ip_config_line, location_of, unequal_parts,
};
pub use process::{
    ATTEMPT, Command, Process, ProgramName, Role, is_job_name, is_variable_name, job_name, log_name,
};
pub use profile::Profile;
pub use reap::{Found, Reaped};
pub use stacks::{Stack, Thread};
pub use stalled::{Culprit, Resumed, Sign, Stalled};

/// A line of the stream: its `type` and, in Rust, its fields.
///
/// Reading and writing are functions of each type, so that their code, which is long, is compiled
/// here once and not in each crate that uses the record.
pub trait Record: Sized {
    const TYPE: &'static str;

    fn from_json(text: &[u8]) -> serde_json::Result<Self>;

    fn append_json(&self, text: &mut Vec<u8>) -> serde_json::Result<()>;
}

macro_rules! records {
    ($($name:literal $record:ty),* $(,)?) => {
        $(impl Record for $record {
            const TYPE: &'static str = $name;

            #[inline(never)]
            fn from_json(text: &[u8]) -> serde_json::Result<Self> {
                serde_json::from_slice(text)
            }

            #[inline(never)]
            fn append_json(&self, text: &mut Vec<u8>) -> serde_json::Result<()> {
                serde_json::to_writer(text, self)
            }
        })*
        /// The types that these tools know.
        pub const TYPES: &[&str] = &[$($name),*];

        #[cfg(test)]
        fn schemas(
            generator: &mut schemars::SchemaGenerator,
        ) -> Vec<(String, serde_json::Value)> {
            vec![$(schema::of::<$record>(generator)),*]
        }

        /// Reads a record as the type that it names, and writes it again.
        #[cfg(test)]
        fn rewritten(
            kind: &str,
            record: serde_json::Value,
        ) -> serde_json::Result<serde_json::Value> {
            match kind {
                $($name => serde_json::to_value(serde_json::from_value::<$record>(record)?),)*
                _ => panic!("{kind}"),
            }
        }
    };
}
records! {
    "host" Host, "graph" Graph, "workspace" Workspace, "file" FileCopy,
    "pushed" Pushed, "pulled" Pulled, "process" Process, "started" Started,
    "listening" Listening,
    "output" Output, "dropped" Dropped, "exited" Exited, "found" Found, "reaped" Reaped,
    "stack" Stack, "profile" Profile, "stalled" Stalled, "resumed" Resumed,
    "verdict" Verdict, "summary" Summary,
}
