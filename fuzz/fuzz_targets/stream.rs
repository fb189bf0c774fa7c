//! Any bytes as a stream of records: no panic; and what is taken goes on as lines that are taken
//! again, byte for byte.
#![no_main]

use libfuzzer_sys::fuzz_target;
use record::jsonl::Stream;
use record::{FileCopy, Graph, Host, Process, Pushed};

fuzz_target!(|data: &[u8]| {
    for partial in [false, true] {
        let Ok(stream) = Stream::read(data, partial) else {
            continue;
        };
        let lines: Vec<&[u8]> = stream.lines().map(|(line, _)| line).collect();
        assert!(
            lines.iter().all(|line| !line.contains(&b'\n')),
            "a record is a line"
        );
        let passed = [lines.join(&b'\n'), b"\n".to_vec()].concat();
        let again = Stream::read(passed.as_slice(), partial)
            .ok()
            .expect("what was taken is taken again");
        assert!(
            again.lines().map(|(line, _)| line).eq(lines),
            "byte for byte"
        );

        let _ = (
            stream.all::<Host>(),
            stream.one::<Graph>(),
            stream.all::<Pushed>(),
            dgl_spawn::copied::check(&stream),
        );
        for file in stream.all::<FileCopy>().unwrap_or_default() {
            let _ = (file.source(), file.destination());
        }
        for process in stream.all::<Process>().unwrap_or_default() {
            let _ = (
                process.command(),
                process.environment().map(|env| env.len()),
            );
            if process.check().is_ok() {
                let has_nul =
                    |text: &Option<String>| text.as_ref().is_some_and(|text| text.contains('\0'));
                assert!(
                    !has_nul(&process.cwd) && !has_nul(&process.setup) && !has_nul(&process.shell)
                );
            }
        }
    }
});
