//! Any bytes as what a host answers to host-probe and to the preflight of dgl-spawn: no panic, and
//! whatever is made of them for people stands on one line that no terminal obeys.
#![no_main]

use launcher::preflight::diagnosis::{Diagnosis, JobUnderCheck};
use libfuzzer_sys::fuzz_target;
use record::error::Fault;
use record::{Graph, Host};
use remote::SessionEvent;
use wire::Event;
use wire::codec::Decoder;
use wire::probe::Python;

fn host(id: u32) -> Host {
    let text = format!(r#"{{"id":{id},"of":2,"ip":"10.0.0.{id}","port":30050}}"#);
    serde_json::from_str(&text).expect("a host record")
}

/// Report and Fault are escaped once more where they are printed; a line's end would pass there as
/// the end of a message.
fn is_one_line(fault: &Fault) {
    assert!(!fault.problem.contains('\n'), "{:?}", fault.problem);
    assert!(
        fault.fix.iter().all(|fix| !fix.contains('\n')),
        "{:?}",
        fault.fix
    );
}

fuzz_target!(|data: &[u8]| {
    let hosts = [host(0), host(1)];
    let graph = Graph {
        graph_name: "g".to_owned(),
        num_parts: 2,
        files: 0,
        workspace: "/w".to_owned(),
        part_config: "g.json".to_owned(),
        ip_config: "ip_config.txt".to_owned(),
    };
    let job = JobUnderCheck {
        job: "job",
        hosts: &hosts,
        processes: &[],
        graph: Some(&graph),
        private_shm: false,
        examines: true,
        wait: None,
    };
    let mut diagnosis = Diagnosis::new(hosts.iter().collect(), &job);
    let mut decoder = Decoder::default();
    decoder.push(data);
    let mut at = 0;
    while let Ok(Some(message)) = decoder.next_message::<Event>() {
        at = 1 - at;
        match message.head {
            Event::Probed(probed) => {
                let python = Python::Command("python3".to_owned());
                match host_probe::plan::answer(&hosts[at], &python, *probed) {
                    Ok(answer) => answer.warnings.iter().for_each(is_one_line),
                    Err(fault) => is_one_line(&fault),
                }
            }
            Event::Taken(taken) => diagnosis.note(at, taken.problem),
            event => diagnosis.note_event(at, SessionEvent::Event(event, message.body)),
        }
    }
    diagnosis.note_late(&[0]);
    let targets = diagnosis.targets();
    assert!(targets.iter().all(|(at, _)| *at < hosts.len()));
    for (at, problem) in diagnosis.take_lingering() {
        diagnosis.note(at, problem);
    }
    diagnosis.report().0.iter().for_each(is_one_line);
});
