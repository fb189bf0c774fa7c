//! Reads pickles that have only values, as torch writes its dumps: nothing in them is executed, and
//! an opcode that would need it is refused. The opcodes are described in Python's
//! Lib/pickletools.py; torch/csrc/jit/serialization/pickler.cpp has those that torch writes.

use std::borrow::Cow;
use std::collections::HashMap;

/// So that a wrong file cannot take all memory. 2000 operations with 19 frames each, as torch 2.9.1
/// wrote them, have 315,069 bytes and 36,011 lists, dicts and tuples.
pub const MAX_BYTES: usize = 64 << 20;
const MAX_VALUES: usize = 4 << 20;
/// torch nests its dicts and lists 6 deep.
const MAX_MARKS: usize = 64;
/// Opcodes that import names or call what they name.
const EXECUTING: [(u8, &str); 13] = [
    (b'c', "GLOBAL"),
    (b'R', "REDUCE"),
    (b'i', "INST"),
    (b'o', "OBJ"),
    (b'b', "BUILD"),
    (b'P', "PERSID"),
    (b'Q', "BINPERSID"),
    (0x81, "NEWOBJ"),
    (0x82, "EXT1"),
    (0x83, "EXT2"),
    (0x84, "EXT4"),
    (0x92, "NEWOBJ_EX"),
    (0x93, "STACK_GLOBAL"),
];

/// The place of a value in the arena. Values may share others, so that nobody may follow all of
/// them without a limit.
type Id = u32;

#[derive(Debug)]
enum Value<'a> {
    /// A float or None.
    Other,
    /// An integer; false and true are 0 and 1, as in Python.
    Int(i64),
    Text(&'a [u8]),
    /// A list or a tuple.
    List(Vec<Id>),
    Dict(Vec<(Id, Id)>),
}

/// A pickle that has been read.
#[derive(Debug)]
pub struct Pickle<'a> {
    values: Vec<Value<'a>>,
    root: Id,
}

impl Pickle<'_> {
    /// Reads a pickle. An error names the offset and the opcode.
    pub fn read(bytes: &[u8]) -> Result<Pickle<'_>, String> {
        let mut reader = Reader {
            rest: bytes,
            values: Vec::new(),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: HashMap::new(),
        };
        loop {
            let offset = bytes.len() - reader.rest.len();
            let cut = || format!("it breaks off at byte {offset}");
            let opcode = reader.number(1).map_err(|_| cut())? as u8;
            let step = match opcode {
                b'.' => reader.pop().map(Some),
                _ => reader.step(opcode).map(|()| None),
            };
            let root =
                step.map_err(|problem| format!("byte {offset}: opcode {opcode:#04x}: {problem}"))?;
            if let Some(root) = root {
                let values = reader.values;
                return Ok(Pickle { values, root });
            }
        }
    }

    pub fn root(&self) -> Node<'_> {
        Node {
            pickle: self,
            id: self.root,
        }
    }
}

struct Reader<'a> {
    rest: &'a [u8],
    values: Vec<Value<'a>>,
    stack: Vec<Id>,
    /// The heights of the stack at which the MARK opcode stood.
    marks: Vec<usize>,
    memo: HashMap<u64, Id>,
}

impl<'a> Reader<'a> {
    fn step(&mut self, opcode: u8) -> Result<(), String> {
        match opcode {
            0x80 => drop(self.number(1)?), // PROTO
            b'(' if self.marks.len() == MAX_MARKS => return Err("nested too deep".into()),
            b'(' => self.marks.push(self.stack.len()),
            b'q' | b'r' => {
                let key = self.number(if opcode == b'q' { 1 } else { 4 })?;
                let top = self.stack.last().ok_or("nothing is there to be noted")?;
                self.memo.insert(key, *top);
            }
            b'h' | b'j' => {
                let key = self.number(if opcode == b'h' { 1 } else { 4 })?;
                let id = self.memo.get(&key).ok_or("it names what was not noted")?;
                self.stack.push(*id);
            }
            // a single item without a mark is of Python's own pickle, not of torch
            b'a' | b'e' => {
                let items = match opcode {
                    b'a' => self.last(1)?,
                    _ => self.marked()?,
                };
                match self.top()? {
                    Value::List(list) => list.extend(items),
                    _ => return Err("it appends to what is no list".into()),
                }
            }
            b's' | b'u' => {
                let items = match opcode {
                    b's' => self.last(2)?,
                    _ => self.marked()?,
                };
                let Value::Dict(dict) = self.top()? else {
                    return Err("it sets items of what is no dict".into());
                };
                let (pairs, rest) = items.as_chunks();
                dict.extend(pairs.iter().map(|[key, value]| (*key, *value)));
                if !rest.is_empty() {
                    return Err("a key without a value".into());
                }
            }
            _ => self.push(opcode)?,
        }
        Ok(())
    }

    /// Pushes a new value.
    fn push(&mut self, opcode: u8) -> Result<(), String> {
        let value = match opcode {
            b'}' => Value::Dict(Vec::new()),
            b']' | b')' => Value::List(Vec::new()),
            b't' => Value::List(self.marked()?),
            0x85..=0x87 => Value::List(self.last(usize::from(opcode - 0x84))?),
            b'N' => Value::Other,
            b'G' => self.take(8).map(|_| Value::Other)?,
            0x88 => Value::Int(1),
            0x89 => Value::Int(0),
            b'K' => Value::Int(self.number(1)? as i64),
            b'M' => Value::Int(self.number(2)? as i64),
            b'J' => Value::Int(i64::from(self.number(4)? as i32)),
            // LONG1, of which torch writes only those of 8 bytes
            0x8a if self.number(1)? == 8 => Value::Int(self.number(8)? as i64),
            b'X' => {
                let length = self.number(4)?;
                Value::Text(self.take(length as usize)?)
            }
            _ => {
                let named = EXECUTING.iter().find(|(code, _)| *code == opcode);
                return Err(
                    named.map_or("torch writes none in a dump".to_owned(), |(_, name)| {
                        format!("{name} would run code, so it is refused")
                    }),
                );
            }
        };
        if self.values.len() == MAX_VALUES {
            return Err(format!("more than {MAX_VALUES} values"));
        }
        self.stack.push(self.values.len() as Id);
        self.values.push(value);
        Ok(())
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self
            .rest
            .split_at_checked(count)
            .ok_or("the file ends in it")?;
        self.rest = rest;
        Ok(taken)
    }

    /// A number without a sign, of up to 8 bytes.
    fn number(&mut self, bytes: usize) -> Result<u64, String> {
        let taken = self.take(bytes)?;
        Ok(taken
            .iter()
            .rfold(0, |all, byte| all << 8 | u64::from(*byte)))
    }

    fn pop(&mut self) -> Result<Id, String> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let id = if self.stack.len() > floor {
            self.stack.pop()
        } else {
            None
        };
        id.ok_or_else(|| "nothing is there to be taken".to_owned())
    }

    fn last(&mut self, count: usize) -> Result<Vec<Id>, String> {
        let mut ids: Vec<Id> = (0..count).map(|_| self.pop()).collect::<Result<_, _>>()?;
        ids.reverse();
        Ok(ids)
    }

    /// What has been pushed since the latest mark.
    fn marked(&mut self) -> Result<Vec<Id>, String> {
        let mark = self.marks.pop().ok_or("without a mark")?;
        Ok(self.stack.split_off(mark))
    }

    fn top(&mut self) -> Result<&mut Value<'a>, String> {
        let top = self.stack.last().ok_or("nothing is there to be filled")?;
        Ok(&mut self.values[*top as usize])
    }
}

/// A value of a pickle.
#[derive(Clone, Copy)]
pub struct Node<'p> {
    pickle: &'p Pickle<'p>,
    id: Id,
}

impl<'p> Node<'p> {
    fn value(self) -> &'p Value<'p> {
        &self.pickle.values[self.id as usize]
    }

    fn at(self, id: Id) -> Node<'p> {
        Node { id, ..self }
    }

    pub fn int(self) -> Option<i64> {
        match self.value() {
            Value::Int(number) => Some(*number),
            _ => None,
        }
    }

    /// A text, but no more than that many bytes of it.
    pub fn text(self, most: usize) -> Option<Cow<'p, str>> {
        match self.value() {
            Value::Text(bytes) => Some(String::from_utf8_lossy(&bytes[..bytes.len().min(most)])),
            _ => None,
        }
    }

    /// The items of a list or a tuple; nothing else has any.
    pub fn items(self) -> impl Iterator<Item = Node<'p>> {
        let ids = match self.value() {
            Value::List(ids) => ids.as_slice(),
            _ => &[],
        };
        ids.iter().map(move |id| self.at(*id))
    }

    /// The keys and values of a dict; nothing else has any.
    pub fn pairs(self) -> impl Iterator<Item = (Node<'p>, Node<'p>)> {
        let pairs = match self.value() {
            Value::Dict(pairs) => pairs.as_slice(),
            _ => &[],
        };
        pairs
            .iter()
            .map(move |(key, value)| (self.at(*key), self.at(*value)))
    }

    /// What a dict has for a key. A dict of torch's has at most 22 keys of its own.
    pub fn get(self, key: &str) -> Option<Node<'p>> {
        let is_key =
            |node: Node<'_>| matches!(node.value(), Value::Text(text) if *text == key.as_bytes());
        let mut pairs = self.pairs().take(64);
        pairs.find_map(|(name, value)| is_key(name).then_some(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What torch 2.9.1 has written.
    const REAL: &[u8] = include_bytes!("../../tests/flight_recorder/absent/nccl_trace_rank_0");

    #[test]
    fn values_are_those_that_python_wrote() {
        // pickle.dumps({"a": [-2, 7, 300, 70000, 1 << 40, True, None, 1.5, ("b", "é")]}, 2), the
        // long with the 8 bytes that torch gives it
        let bytes = b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01]q\x02(J\xfe\xff\xff\xffK\x07M,\x01\
            Jp\x11\x01\x00\x8a\x08\x00\x00\x00\x00\x00\x01\x00\x00\x88NG?\xf8\x00\x00\x00\x00\x00\
            \x00X\x01\x00\x00\x00bq\x03X\x02\x00\x00\x00\xc3\xa9q\x04\x86q\x05eK\x01auh\x03h\x01s.";
        let pickle = Pickle::read(bytes).unwrap();
        let list: Vec<Node> = pickle.root().get("a").unwrap().items().collect();
        let numbers: Vec<Option<i64>> = list.iter().map(|one| one.int()).collect();
        let wanted = [-2, 7, 300, 70000, 1 << 40, 1].map(Some);
        assert_eq!(numbers[..6], wanted);
        assert_eq!(numbers[6..], [None, None, None, Some(1)]);
        let texts: Vec<_> = list[8].items().map(|one| one.text(9)).collect();
        assert_eq!(texts, [Some("b".into()), Some("é".into())]);
        assert_eq!(pickle.root().pairs().count(), 2);
    }

    #[test]
    fn nothing_is_executed() {
        let table: [(&[u8], &str); 8] = [
            (
                b"\x80\x02cos\nsystem\n(X\x02\x00\x00\x00lstR.",
                "byte 2: opcode 0x63: GLOBAL would",
            ),
            (
                b"\x80\x02)R.",
                "byte 3: opcode 0x52: REDUCE would run code, so it is refused",
            ),
            (
                b"\x80\x04\x8c\x02os\x93.",
                "byte 2: opcode 0x8c: torch writes none in a dump",
            ),
            (
                b"\x80\x02]h\x07.",
                "byte 3: opcode 0x68: it names what was not noted",
            ),
            (
                b"\x80\x02](K\x01u.",
                "byte 6: opcode 0x75: it sets items of what is no dict",
            ),
            (
                b"\x80\x02(.",
                "byte 3: opcode 0x2e: nothing is there to be taken",
            ),
            (
                b"\x80\x02X\xff\xff\xff\xffa",
                "byte 2: opcode 0x58: the file ends in it",
            ),
            (&[b'('; 99], "byte 64: opcode 0x28: nested too deep"),
        ];
        for (bytes, wanted) in table {
            let problem = Pickle::read(bytes).unwrap_err();
            assert!(problem.starts_with(wanted), "{problem}");
        }
    }

    #[test]
    fn a_dump_that_breaks_off_anywhere_is_refused() {
        assert!(Pickle::read(REAL).is_ok());
        for length in 0..REAL.len() {
            let problem = Pickle::read(&REAL[..length]).unwrap_err();
            let is_named = problem.contains("breaks off") || problem.contains("the file ends");
            assert!(is_named, "{length}: {problem}");
        }
    }

    #[test]
    fn no_wrong_byte_does_harm() {
        for at in 0..REAL.len() {
            for wrong in *b"\xffehX" {
                let mut bytes = REAL.to_vec();
                bytes[at] = wrong;
                // whether it is refused depends on the byte; a panic fails the test
                let _ = crate::flight_recorder::dump::Dump::read(String::new(), &bytes);
            }
        }
    }

    #[test]
    fn lists_that_are_shared_take_no_memory() {
        // each list has the one before ten times; the last one has itself too
        let mut bytes = b"\x80\x02]q\x00".to_vec();
        for level in 0..200_u8 {
            bytes.extend([b']', b'q', level + 1, b'(']);
            bytes.extend([b'h', level].repeat(10));
            bytes.push(b'e');
        }
        bytes.extend(b"(h\xc8e.");
        let pickle = Pickle::read(&bytes).unwrap();
        assert_eq!(pickle.values.len(), 201);
        assert_eq!(pickle.root().items().count(), 11);
    }

    #[test]
    fn too_many_values_are_refused() {
        let problem = Pickle::read(&vec![b'N'; MAX_VALUES + 1]).unwrap_err();
        assert!(problem.ends_with("more than 4194304 values"), "{problem}");
    }
}
