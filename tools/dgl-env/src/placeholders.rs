//! Texts with placeholders that differ from process to process, such as `{rank}`.

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::os::unix::ffi::OsStringExt;

/// The values of the placeholders for one process.
#[derive(Clone, Copy)]
pub struct ProcessPlace {
    /// The number of the process among those of its role on its host.
    pub local_rank: u32,
    /// The number of the process among those of its role, on all hosts.
    pub rank: u32,
    /// The number of its host.
    pub host: u32,
    /// The number of trainers, or workers.
    pub world_size: u32,
    /// The address of torch's rendezvous.
    pub master_addr: Ipv4Addr,
    /// The port of torch's rendezvous.
    pub master_port: u16,
}

impl Default for ProcessPlace {
    fn default() -> ProcessPlace {
        ProcessPlace {
            local_rank: 0,
            rank: 0,
            host: 0,
            world_size: 1,
            master_addr: Ipv4Addr::LOCALHOST,
            master_port: 0,
        }
    }
}

/// A text with placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(Vec<u8>),
    Filled(Placeholder),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placeholder {
    LocalRank,
    Rank,
    Host,
    WorldSize,
    MasterAddr,
    MasterPort,
}

const NAMES: [(&[u8], Placeholder); 6] = [
    (b"local_rank", Placeholder::LocalRank),
    (b"rank", Placeholder::Rank),
    (b"host", Placeholder::Host),
    (b"world_size", Placeholder::WorldSize),
    (b"master_addr", Placeholder::MasterAddr),
    (b"master_port", Placeholder::MasterPort),
];

fn placeholder_named(name: &[u8]) -> Option<Placeholder> {
    let known = NAMES.iter().find(|(known, _)| *known == name)?;
    Some(known.1)
}

/// The placeholder at the beginning of a text whose opening brace was taken, and its length with
/// the closing one.
fn at_start(text: &[u8]) -> Option<(Placeholder, usize)> {
    let close = text.iter().position(|byte| *byte == b'}')?;
    Some((placeholder_named(&text[..close])?, close + 1))
}

impl Template {
    /// A text without placeholders.
    pub fn literal(text: &[u8]) -> Template {
        Template(vec![Piece::Text(text.to_vec())])
    }

    /// Parses the value of a variable. `{{` and `}}` are braces; any other brace that is not part
    /// of a placeholder is a fault.
    pub fn of_value(text: &[u8]) -> Result<Template, String> {
        let mut pieces = Vec::new();
        let mut plain = Vec::new();
        let mut rest = text;
        while let Some((&byte, behind)) = rest.split_first() {
            rest = behind;
            match byte {
                b'{' | b'}' if behind.first() == Some(&byte) => {
                    plain.push(byte);
                    rest = &behind[1..];
                }
                b'{' => {
                    let Some((placeholder, length)) = at_start(behind) else {
                        let end = behind.iter().position(|byte| *byte == b'}');
                        let shown = &behind[..end.map_or(behind.len(), |at| at + 1)];
                        return Err(format!(
                            "{{{} is not {{local_rank}}, {{rank}}, {{host}}, {{world_size}}, \
                             {{master_addr}} or {{master_port}}",
                            String::from_utf8_lossy(shown)
                        ));
                    };
                    pieces.push(Piece::Text(std::mem::take(&mut plain)));
                    pieces.push(Piece::Filled(placeholder));
                    rest = &behind[length..];
                }
                b'}' => return Err("a } stands alone".to_owned()),
                other => plain.push(other),
            }
        }
        pieces.push(Piece::Text(plain));
        Ok(Template(pieces))
    }

    /// Parses a word of a command. Braces are common there (JSON, awk, `${host}` of a shell), so
    /// everything but the placeholders stays unchanged; a placeholder in two braces becomes one in
    /// a single pair.
    pub fn of_word(text: &[u8]) -> Template {
        let mut pieces = Vec::new();
        let mut plain = Vec::new();
        let mut rest = text;
        while let Some((&byte, behind)) = rest.split_first() {
            let doubled = behind.strip_prefix(b"{").and_then(at_start);
            if let (b'{', Some((_, length))) = (byte, doubled)
                && behind.get(length + 1) == Some(&b'}')
            {
                plain.extend_from_slice(&behind[..=length]);
                rest = &behind[length + 2..];
            } else if let (b'{', Some((placeholder, length))) = (byte, at_start(behind))
                && plain.last() != Some(&b'$')
            {
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
                pieces.push(Piece::Filled(placeholder));
                rest = &behind[length..];
            } else {
                plain.push(byte);
                rest = behind;
            }
        }
        pieces.push(Piece::Text(plain));
        Template(pieces)
    }

    fn has(&self, wanted: &[Placeholder]) -> bool {
        self.0.iter().any(|piece| match piece {
            Piece::Filled(placeholder) => wanted.contains(placeholder),
            Piece::Text(_) => false,
        })
    }

    /// Whether the processes of a host would get different texts.
    pub fn differs_on_a_host(&self) -> bool {
        self.has(&[Placeholder::LocalRank, Placeholder::Rank])
    }

    /// Whether the port of torch's rendezvous is among the placeholders.
    pub fn has_master_port(&self) -> bool {
        self.has(&[Placeholder::MasterPort])
    }

    /// The text for one process.
    pub fn fill(&self, who: ProcessPlace) -> OsString {
        let mut text = Vec::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(plain) => text.extend_from_slice(plain),
                Piece::Filled(placeholder) => text.extend(who.shown(*placeholder).into_bytes()),
            }
        }
        OsString::from_vec(text)
    }
}

impl ProcessPlace {
    fn shown(&self, placeholder: Placeholder) -> String {
        match placeholder {
            Placeholder::LocalRank => self.local_rank.to_string(),
            Placeholder::Rank => self.rank.to_string(),
            Placeholder::Host => self.host.to_string(),
            Placeholder::WorldSize => self.world_size.to_string(),
            Placeholder::MasterAddr => self.master_addr.to_string(),
            Placeholder::MasterPort => self.master_port.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_a_word_all_but_placeholders_stays_as_it_is() {
        let who = ProcessPlace {
            local_rank: 1,
            rank: 5,
            host: 2,
            world_size: 8,
            master_addr: Ipv4Addr::new(10, 0, 0, 1),
            master_port: 29500,
        };
        let table = [
            ("--rank={rank}", "--rank=5"),
            ("{local_rank}{host}{world_size}", "128"),
            ("tcp://{master_addr}:{master_port}", "tcp://10.0.0.1:29500"),
            ("{\"rank\": 1}", "{\"rank\": 1}"),
            ("{print $1}", "{print $1}"),
            ("{", "{"),
            ("{}", "{}"),
            ("{{}}", "{{}}"),
            ("{rank", "{rank"),
            ("rank}", "rank}"),
            ("{Rank}", "{Rank}"),
            ("{{rank}}", "{rank}"),
            ("{{{rank}}}", "{{rank}}"),
            ("{{rank}", "{5"),
            ("{x{rank}", "{x5"),
            ("${rank}", "${rank}"),
        ];
        for (word, wanted) in table {
            let filled = Template::of_word(word.as_bytes()).fill(who);
            assert_eq!(filled.to_str(), Some(wanted), "{word}");
        }
    }
}
