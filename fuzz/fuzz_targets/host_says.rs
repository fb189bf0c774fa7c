//! Any bytes as what a host says of its files, and as text on its way to a terminal: no panic; what
//! is taken was asked for, and nothing is left that a terminal obeys.
#![no_main]

use libfuzzer_sys::fuzz_target;
use record::term::{plain, printable};
use transfer::parts::Parts;
use transfer::source::same_time;
use wire::Event;
use wire::codec::{Decoder, MAX_BODY};
use wire::files::{FileEvent, FileStep};

fuzz_target!(|data: &[u8]| {
    let mut decoder = Decoder::default();
    decoder.push(data);
    while let Ok(Some(message)) = decoder.next_message::<Event>() {
        assert!(message.body.len() <= MAX_BODY);
        match message.head {
            Event::File(FileEvent::Step(FileStep::Write(block))) => {
                if let Ok(Some(content)) = transfer::content::unpack(&block.content, message.body) {
                    assert_eq!(content.len(), block.content.length as usize);
                }
            }
            Event::File(FileEvent::Partial { parts, .. }) => {
                let parts = Parts::of(&parts).whole_grains(1 << 40);
                assert!(
                    parts
                        .list()
                        .iter()
                        .all(|(begin, end)| begin < end && *end <= 1 << 40)
                );
            }
            Event::File(FileEvent::Inspected { entries, .. }) => {
                for meta in entries.into_iter().flatten() {
                    let _ = same_time(meta.mtime, (0, 0));
                }
            }
            _ => {}
        }
    }

    let text = String::from_utf8_lossy(data);
    let shown = plain(&text);
    assert!(!shown.contains(char::is_control));
    assert_eq!(plain(&shown), shown, "once is enough");

    let line = printable(data, false);
    assert_eq!(printable(&line, false), line, "once is enough");
    assert!(!line.contains(&0x1b));
    let line = printable(data, true);
    assert_eq!(printable(&line, true), line, "once is enough");
    for sequence in line.split(|byte| *byte == 0x1b).skip(1) {
        let end = sequence
            .iter()
            .position(|byte| !(byte.is_ascii_digit() || b"[;:".contains(byte)));
        assert_eq!(end.map(|end| sequence[end]), Some(b'm'), "a colour");
    }
});
