//! The encoding of messages: a line of JSON, followed by as many bytes as its field `bytes`
//! announces.
//!
//!     {"do":"probe","workspace":"/data"}\n
//!     {"event":"output","process":3,"bytes":6}\nhello\n

use serde::Deserialize;
use std::io;

/// The longest line. More is not needed: no message has a list that grows with the job.
pub const MAX_LINE: usize = 1 << 20;
/// The longest body; each side must have memory for one. A file is sent in many bodies.
pub const MAX_BODY: usize = 1 << 20;

/// What a line says. Its code is compiled in this crate alone: serde's for enums this large takes
/// longer to compile than everything else that its users do.
pub trait Head: Sized {
    fn from_json(line: &[u8]) -> serde_json::Result<Self>;

    fn to_json(&self) -> serde_json::Result<Vec<u8>>;
}

macro_rules! heads {
    ($($head:ty),* $(,)?) => {
        $(impl $crate::codec::Head for $head {
            #[inline(never)]
            fn from_json(line: &[u8]) -> serde_json::Result<Self> {
                serde_json::from_slice(line)
            }

            #[inline(never)]
            fn to_json(&self) -> serde_json::Result<Vec<u8>> {
                serde_json::to_vec(self)
            }
        })*
    };
}

heads!(
    crate::Request,
    crate::Event,
    crate::dial::Hello,
    crate::dial::DialMessage
);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message<T> {
    pub head: T,
    /// Empty if the line announced none.
    pub body: Vec<u8>,
    /// Without the body.
    pub line_bytes: usize,
}

/// A message, ready to be sent. A body longer than [`MAX_BODY`] is an error of the caller; the
/// other side refuses it.
pub fn encode<T: Head>(head: &T, body: &[u8]) -> Vec<u8> {
    let mut message = encode_head(head, body.len());
    message.extend_from_slice(body);
    message
}

/// The line alone. The caller sends the body of `length` bytes behind it.
pub fn encode_head<T: Head>(head: &T, length: usize) -> Vec<u8> {
    // cannot fail: every message is a struct or an enum of structs, so it becomes an object
    let mut line = head.to_json().unwrap_or_default();
    if length > 0 && line.pop().is_some() {
        line.extend_from_slice(format!(",\"bytes\":{length}}}").as_bytes());
    }
    line.push(b'\n');
    line
}

/// Takes bytes as they arrive and returns messages.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The received bytes, without those of `begun`.
    buffer: Vec<u8>,
    /// How many bytes of `buffer` were returned already.
    taken: usize,
    /// The line that begins at `taken` has no end before this position of `buffer`.
    searched: usize,
    /// The message whose line was received. While its body is incomplete, `buffer` is empty.
    begun: Option<Begun>,
}

/// A line and the received part of its body, which has its own buffer: bodies are most of the
/// traffic, and every copy costs time.
#[derive(Debug)]
struct Begun {
    line: Vec<u8>,
    body: Vec<u8>,
    length: usize,
}

impl Begun {
    /// Takes the body's bytes; returns their number.
    fn take(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.length - self.body.len());
        self.body.extend_from_slice(&bytes[..count]);
        count
    }
}

#[derive(Deserialize)]
struct Announced {
    #[serde(default)]
    bytes: u64,
}

fn no_message(line: &[u8], error: &serde_json::Error) -> String {
    let cut = String::from_utf8_lossy(&line[..line.len().min(200)]);
    format!("{cut:?} is not a message: {error}")
}

fn parse<T: Head>(line: &[u8]) -> Result<T, String> {
    T::from_json(line).map_err(|error| no_message(line, &error))
}

impl Decoder {
    pub fn push(&mut self, bytes: &[u8]) {
        let taken = self.begun.as_mut().map_or(0, |begun| begun.take(bytes));
        if taken == bytes.len() {
            return;
        }
        if self.taken > 0 {
            self.buffer.drain(..self.taken);
            self.searched = self.searched.saturating_sub(self.taken);
            self.taken = 0;
        }
        self.buffer.extend_from_slice(&bytes[taken..]);
    }

    /// The bytes that were not returned, for another reader to continue with.
    pub fn rest(&self) -> Vec<u8> {
        let begun = self.begun.iter();
        let mut rest: Vec<u8> = begun
            .flat_map(|begun| [&begun.line[..], b"\n", &begun.body].concat())
            .collect();
        rest.extend_from_slice(&self.buffer[self.taken..]);
        rest
    }

    /// How many bytes were not returned.
    pub fn waiting(&self) -> usize {
        let begun = self.begun.as_ref();
        let begun = begun.map_or(0, |begun| begun.line.len() + 1 + begun.body.len());
        begun + self.buffer.len() - self.taken
    }

    /// The next message, if all of it was received. Skips empty lines, which users may type. Fails
    /// with the reason if the bytes are not a message; then the stream cannot be read further.
    pub fn next_message<T: Head>(&mut self) -> Result<Option<Message<T>>, String> {
        loop {
            if let Some(begun) = self.begun.take_if(|begun| begun.body.len() == begun.length) {
                let head = parse(&begun.line)?;
                let (body, line_bytes) = (begun.body, begun.line.len());
                return Ok(Some(Message {
                    head,
                    body,
                    line_bytes,
                }));
            }
            if self.begun.is_some() {
                return Ok(None);
            }
            let Some(end) = self.line_end()? else {
                return Ok(None);
            };
            let line = &self.buffer[self.taken..end];
            if line.trim_ascii().is_empty() {
                self.taken = end + 1;
                continue;
            }
            let announced = serde_json::from_slice::<Announced>(line);
            let length = announced.map_err(|error| no_message(line, &error))?.bytes;
            let length = usize::try_from(length)
                .ok()
                .filter(|length| *length <= MAX_BODY)
                .ok_or_else(|| format!("a body of {length} bytes where {MAX_BODY} are allowed"))?;
            if length == 0 {
                let (head, line_bytes) = (parse(line)?, line.len());
                self.taken = end + 1;
                return Ok(Some(Message {
                    head,
                    body: Vec::new(),
                    line_bytes,
                }));
            }
            let mut begun = Begun {
                line: line.to_vec(),
                body: Vec::with_capacity(length),
                length,
            };
            self.taken = end + 1 + begun.take(&self.buffer[end + 1..]);
            self.begun = Some(begun);
        }
    }

    fn line_end(&mut self) -> Result<Option<usize>, String> {
        let from = self.searched.max(self.taken);
        let end = self.buffer[from..]
            .iter()
            .position(|byte| *byte == b'\n')
            .map(|position| from + position);
        // a malformed line is not taken, so its end is found again
        self.searched = end.unwrap_or(self.buffer.len());
        let length = end.unwrap_or(self.buffer.len()) - self.taken;
        if length > MAX_LINE {
            Err(format!("a line of more than {MAX_LINE} bytes"))
        } else {
            Ok(end)
        }
    }
}

impl io::Write for Decoder {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.push(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Serialize;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(tag = "event", rename_all = "snake_case")]
    enum Event {
        Output { process: u32 },
        Done,
    }

    heads!(Event);

    #[test]
    fn messages_come_whole_however_they_are_cut() {
        let sent = [
            (Event::Output { process: 3 }, &b"hello\n\n{"[..]),
            (Event::Done, b""),
            (Event::Output { process: 0 }, b"\n"),
        ];
        let bytes: Vec<u8> = sent
            .iter()
            .flat_map(|(head, body)| [encode(head, body), b"\n".to_vec()].concat())
            .collect();
        for size in 1..bytes.len() {
            let mut decoder = Decoder::default();
            let mut got = Vec::new();
            for piece in bytes.chunks(size) {
                decoder.push(piece);
                while let Some(message) = decoder.next_message::<Event>().unwrap() {
                    got.push(message);
                }
            }
            let expected = sent.iter().map(|(head, body)| (head, *body));
            assert!(
                got.iter()
                    .map(|message| (&message.head, &*message.body))
                    .eq(expected),
                "in pieces of {size}: {got:?}"
            );
        }
    }

    #[test]
    fn another_reader_continues_anywhere() {
        let messages = [
            (Event::Output { process: 3 }, &b"hello"[..]),
            (Event::Done, b""),
        ];
        let bytes: Vec<u8> = messages
            .iter()
            .flat_map(|(head, body)| encode(head, body))
            .collect();
        for (cut, asked) in (0..=bytes.len()).flat_map(|cut| [(cut, false), (cut, true)]) {
            let mut first = Decoder::default();
            first.push(&bytes[..cut]);
            let mut got = Vec::new();
            if asked {
                got.extend(first.next_message::<Event>().unwrap());
            }
            let returned: usize = got
                .iter()
                .map(|message| encode(&message.head, &message.body).len())
                .sum();
            assert_eq!(first.rest(), &bytes[returned..cut], "{cut} {asked}");
            assert_eq!(first.waiting(), cut - returned, "{cut} {asked}");
            let mut second = Decoder::default();
            second.push(&first.rest());
            second.push(&bytes[cut..]);
            while let Some(message) = second.next_message::<Event>().unwrap() {
                got.push(message);
            }
            let got = got.iter().map(|message| (&message.head, &*message.body));
            let expected = messages.iter().map(|(head, body)| (head, *body));
            assert!(got.eq(expected), "{cut} {asked}");
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let refuse = |text: &[u8]| {
            let mut decoder = Decoder::default();
            decoder.push(text);
            decoder.next_message::<Event>().unwrap_err()
        };
        assert!(refuse(b"hello\n").contains("\"hello\" is not a message"));
        assert!(refuse(b"{\"event\":\"other\"}\n").contains("unknown variant"));
        assert!(
            refuse(b"{\"event\":\"done\",\"bytes\":99999999999}\n")
                .contains("a body of 99999999999 bytes")
        );
        assert!(refuse(&vec![b'x'; MAX_LINE + 1]).contains("a line of more than"));
    }
}
