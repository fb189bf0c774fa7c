//! Turns the answers of hosts into records and faults.

use indexmap::IndexMap;
use record::error::Fault;
use record::{Host, Process, Profile, Role, Stack, term};
use std::collections::BTreeSet;
use wire::Event;
use wire::stacks::Why;

/// A host's answer about a process.
pub enum StackAnswer {
    Stack(Stack, Option<Why>),
    Profile(Profile, Option<Why>),
}

impl StackAnswer {
    pub fn process(&self) -> (u32, Option<Role>, Option<u32>) {
        match self {
            StackAnswer::Stack(stack, _) => (stack.host, stack.role, stack.rank),
            StackAnswer::Profile(profile, _) => (profile.host, profile.role, profile.rank),
        }
    }

    fn set_id(&mut self, id: Option<u32>) {
        match self {
            StackAnswer::Stack(stack, _) => stack.id = id,
            StackAnswer::Profile(profile, _) => profile.id = id,
        }
    }

    fn why(&self) -> Option<Why> {
        match self {
            StackAnswer::Stack(_, why) | StackAnswer::Profile(_, why) => *why,
        }
    }

    pub fn stack(&self) -> Option<Stack> {
        match self {
            StackAnswer::Stack(stack, _) => Some(stack.clone()),
            StackAnswer::Profile(..) => None,
        }
    }
}

/// `None` if the event was not requested.
pub fn answer(host: u32, processes: &[Process], event: Event, time_ms: u64) -> Option<StackAnswer> {
    match event {
        Event::Stack(answer) => {
            let why = answer.why;
            let stack = answer.into_record(host, processes, time_ms);
            Some(StackAnswer::Stack(stack, why))
        }
        Event::Profile(answer) => {
            let why = answer.why;
            let profile = answer.into_record(host, processes, time_ms);
            Some(StackAnswer::Profile(profile, why))
        }
        _ => None,
    }
}

/// The processes of a job whose plan did not come in, as far as its answers show them. The answers
/// get their ids.
pub fn processes(hosts: &[Host], answers: &mut [StackAnswer]) -> Vec<Process> {
    let mut members = BTreeSet::new();
    for answer in &*answers {
        if let (host, Some(role), Some(rank)) = answer.process() {
            members.insert((role, rank, host));
        }
    }
    let of = members.len() as u32;
    let process = |(id, (role, rank, host)): (u32, (Role, u32, u32))| {
        let ip = record::host_of(hosts, host).map(|host| host.ip);
        Process {
            of,
            ..Process::new(id, host, ip.unwrap_or_default(), role, rank)
        }
    };
    let processes: Vec<Process> = (0..).zip(members).map(process).collect();
    for answer in answers {
        let (host, role, rank) = answer.process();
        let mut processes = processes.iter();
        let own =
            processes.find(|own| (own.host, Some(own.role), Some(own.rank)) == (host, role, rank));
        answer.set_id(own.map(|own| own.id));
    }
    processes
}

/// One fault for all Pythons of a job without a supervisor that may not be read.
pub fn denied(answers: &[StackAnswer]) -> Option<Fault> {
    let scope = |answer: &StackAnswer| match answer.why()? {
        Why::Denied { ptrace_scope } => Some(ptrace_scope),
        _ => None,
    };
    let scopes: Vec<u8> = answers.iter().filter_map(scope).collect();
    let setting = match scopes.first()? {
        0 => "a container's seccomp filter may forbid it".to_owned(),
        scope => format!("kernel.yama.ptrace_scope is {scope}"),
    };
    let problem = format!(
        "the stacks of {} may not be read ({setting}); what the kernel reports is shown instead",
        term::count(scopes.len() as u64, "Python")
    );
    Some(Fault::item("--any", problem).fix(
        "root may read them: use sudo, or DGL_TOOLS_SSH_USERNAME=root; or let users read their own \
         processes: sysctl kernel.yama.ptrace_scope=0",
    ))
}

/// Faults of Pythons that could not be read, one for each host and reason. Processes that are not
/// Python, or have ended meanwhile, are no faults.
pub fn faults(hosts: &[Host], answers: &[StackAnswer]) -> Vec<Fault> {
    let mut faults: IndexMap<(u32, Why, &str), Vec<String>> = IndexMap::new();
    for answer in answers {
        let (host, pid, why, error) = match answer {
            StackAnswer::Stack(stack, why) => (stack.host, stack.pid, why, &stack.error),
            StackAnswer::Profile(profile, why) => (profile.host, profile.pid, why, &profile.error),
        };
        if let (Some(why @ (Why::Denied { .. } | Why::Other)), Some(problem)) = (why, error) {
            let pids = faults.entry((host, *why, problem)).or_default();
            pids.push(pid.to_string());
        }
    }
    let fault = |((host, why, problem), pids): ((u32, Why, &str), Vec<String>)| {
        let location = record::location_of(hosts, host);
        let fault = Fault::item(location, format!("process {}: {problem}", pids.join(", ")));
        match why {
            Why::Denied { ptrace_scope } => fault.fix(fix_for(ptrace_scope)),
            _ => fault.fix(format!("run this again; {BY_PYTHON}")),
        }
    };
    faults.into_iter().map(fault).collect()
}

const BY_PYTHON: &str = "dgl-reap --signal ABRT makes Python itself print it, and ends it";

/// The fix if the kernel refuses. The user started the job, because only this user's processes are
/// examined.
fn fix_for(ptrace_scope: u8) -> String {
    let allowed = match ptrace_scope {
        // 1 lets the job's supervisor read it, which is its ancestor
        0 | 1 => {
            "a container's seccomp filter may forbid process_vm_readv: allow it there".to_owned()
        }
        2 => "as root, let the job's supervisor read it there: sysctl \
              kernel.yama.ptrace_scope=1"
            .to_owned(),
        scope => format!(
            "a ptrace_scope of {scope} holds for everybody, root too, until the host is restarted"
        ),
    };
    format!("{allowed}; {BY_PYTHON}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DENIED: Option<Why> = Some(Why::Denied { ptrace_scope: 0 });

    fn stack_event(rank: u32, error: Option<Why>) -> Event {
        let record = Stack {
            job: "try7".to_owned(),
            pid: 40 + rank,
            role: Some(Role::Trainer),
            rank: Some(rank),
            error: error.map(|_| "x".to_owned()),
            ..Stack::default()
        };
        Event::Stack(Box::new(wire::stacks::ProcessStacks { record, why: error }))
    }

    #[test]
    fn a_record_has_the_id_of_its_process_where_that_came_in() {
        let ip = record::IpAddr([10, 0, 0, 1].into());
        let process = Process {
            of: 10,
            ..Process::new(9, 1, ip, Role::Trainer, 3)
        };
        for (host, rank, id) in [(1, 3, Some(9)), (0, 3, None), (1, 2, None)] {
            let processes = std::slice::from_ref(&process);
            let answered = answer(host, processes, stack_event(rank, None), 5);
            let Some(StackAnswer::Stack(stack, _)) = answered else {
                panic!("a stack is a stack")
            };
            assert_eq!((stack.id, stack.time_ms), (id, 5), "{host} {rank}");
        }
        assert!(answer(0, &[], Event::Done, 0).is_none());
    }

    #[test]
    fn a_job_without_a_plan_has_the_processes_that_answered() {
        let mut answers: Vec<StackAnswer> = [(1, 3), (0, 2), (1, 3)]
            .into_iter()
            .filter_map(|(host, rank)| answer(host, &[], stack_event(rank, None), 5))
            .collect();
        let processes = processes(&[], &mut answers);
        let found: Vec<_> = processes
            .iter()
            .map(|process| (process.id, process.of, process.host, process.rank))
            .collect();
        assert_eq!(found, [(0, 2, 0, 2), (1, 2, 1, 3)]);
        let ids: Vec<_> = answers
            .iter()
            .filter_map(StackAnswer::stack)
            .map(|stack| stack.id)
            .collect();
        assert_eq!(ids, [Some(1), Some(0), Some(1)]);
    }

    #[test]
    fn what_is_no_python_is_no_fault() {
        let all = [
            DENIED,
            None,
            Some(Why::NoPython),
            Some(Why::Ended),
            DENIED,
            Some(Why::Other),
        ];
        let answers: Vec<StackAnswer> = all
            .iter()
            .zip(0..)
            .map(|(why, rank)| answer(0, &[], stack_event(rank, *why), 0).unwrap())
            .collect();
        let reported: Vec<String> = faults(&[], &answers)
            .iter()
            .map(|fault| fault.problem.clone())
            .collect();
        assert_eq!(reported, ["process 40, 44: x", "process 45: x"]);
    }

    #[test]
    fn what_helps_depends_on_who_forbids() {
        let table = [
            (0, "seccomp filter"),
            (1, "seccomp filter"),
            (2, "sysctl kernel.yama.ptrace_scope=1"),
            (3, "until the host is restarted"),
        ];
        for (ptrace_scope, helps) in table {
            let answer = answer(
                0,
                &[],
                stack_event(0, Some(Why::Denied { ptrace_scope })),
                0,
            );
            let faults = faults(&[], &[answer.unwrap()]);
            let fix = faults[0].fix.as_deref().unwrap_or_default();
            assert!(
                fix.contains(helps) && fix.contains("--signal ABRT"),
                "{ptrace_scope}: {fix}"
            );
        }
    }
}
