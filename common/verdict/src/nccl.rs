//! What torch leaves when NCCL gives up an operation, usually because not all ranks have begun it.

use crate::findings::{JobFinding, Quote};
use crate::job::{JobHistory, ProcessHistory};
use record::Process;
use record::quote::shown;

/// What torch writes when NCCL gives up an operation, as found in its libraries (2.15).
const GAVE_UP: [&str; 4] = [
    "Watchdog caught collective operation timeout",
    "To avoid data inconsistency, we are taking the entire process down",
    "Received a dump signal due to a collective timeout",
    "NCCL communicator was aborted",
];

/// Variables that name the dumps of torch's flight recorder, without the rank at the end.
const DUMP_FILE: [&str; 2] = ["TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"];

/// The processes in which NCCL gave up an operation, and how to find the rank that caused it.
pub fn gave_up(job: &JobHistory) -> Option<JobFinding> {
    let mut gave_up: Vec<(&ProcessHistory, Quote)> = job
        .clients()
        .filter_map(|history| Some((history, sign(history)?)))
        .collect();
    // lines without a mark are of the ranks that have others with one
    let is_mixed = |history: &ProcessHistory| history.evidence.is_mixed();
    if gave_up.iter().any(|(history, _)| !is_mixed(history)) {
        gave_up.retain(|(history, _)| !is_mixed(history));
    }
    let (first, line) = gave_up.iter().min_by_key(|(_, line)| line.output.time_ms)?;
    let others = match gave_up.len() {
        1 => String::new(),
        count => format!(" and in {} more", count - 1),
    };
    let name = job.process_name(first);
    let finding = JobFinding::new(format!(
        "NCCL gave up an operation in {name}{others}, which need not be to blame"
    ));
    Some(
        finding
            .since(line.output.time_ms)
            .shown_by([line])
            .fix(analysis(&first.process, job.is_foreign())),
    )
}

fn sign(history: &ProcessHistory) -> Option<Quote> {
    let says_so = |text: &str| GAVE_UP.iter().any(|words| text.contains(words));
    let mut statements = history.evidence.statements().into_iter();
    let stated = statements.find(|statement| statement.lines().any(says_so));
    let mut last_lines = history.evidence.last_lines();
    let last = || last_lines.find(|line| says_so(&line.text));
    Some(history.output(stated.map(|statement| &statement.named).or_else(last)?))
}

/// The commands that fetch and analyse the dumps of all ranks, or how to get dumps next time.
fn analysis(process: &Process, is_foreign: bool) -> String {
    if is_foreign {
        return "start the job with TORCH_NCCL_TRACE_BUFFER_SIZE=2000 and \
                TORCH_NCCL_DUMP_ON_TIMEOUT=1 in the environment, so that torch leaves dumps that \
                name the rank to blame, and analyse those of all ranks with torchfrtrace"
            .to_owned();
    }
    let file = DUMP_FILE.iter().find_map(|name| process.env.get(*name));
    let Some((folder, prefix)) = file.and_then(|file| file.rsplit_once('/')) else {
        return "let host-probe find the GPUs before dgl-env, so that torch leaves dumps that name \
                the rank to blame; man dgl-tools-trouble"
            .to_owned();
    };
    format!(
        "look at torch's dumps, {file}N on each host: ipconf-check ip_config.txt | part-pull \
         --workspace {folder} --to dumps {pattern} && torchfrtrace --prefix {prefix} dumps (of \
         torch 2.10 or later; man dgl-tools-trouble)",
        file = shown(format!("{folder}/{prefix}")),
        folder = shown(folder),
        pattern = shown(format!("{prefix}*")),
        prefix = shown(prefix),
    )
}
