//! Texts with placeholders that differ from process to process, such as `{rank}`.

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::os::unix::ffi::OsStringExt;

/// The values of the placeholders for one process.
#[derive(Clone, Copy)]
pub struct PlaceholderValues {
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

impl PlaceholderValues {
    fn of(&self, placeholder: &str) -> String {
        match placeholder {
            "local_rank" => self.local_rank.to_string(),
            "rank" => self.rank.to_string(),
            "host" => self.host.to_string(),
            "world_size" => self.world_size.to_string(),
            "master_addr" => self.master_addr.to_string(),
            _ => self.master_port.to_string(),
        }
    }
}

const NAMES: [&str; 6] = [
    "local_rank",
    "rank",
    "host",
    "world_size",
    "master_addr",
    "master_port",
];

/// A text with placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(Vec<u8>),
    Placeholder(&'static str),
}

/// The placeholder at the beginning of a text, and what follows it.
fn placeholder(text: &[u8]) -> Option<(&'static str, &[u8])> {
    NAMES.iter().find_map(|name| {
        let rest = text.strip_prefix(b"{")?.strip_prefix(name.as_bytes())?;
        Some((*name, rest.strip_prefix(b"}")?))
    })
}

impl Template {
    /// A text without placeholders.
    pub fn literal(text: &[u8]) -> Template {
        Template(vec![Piece::Text(text.to_vec())])
    }

    /// Parses the value of a variable. `{{` and `}}` are braces; any other brace that is not part
    /// of a placeholder is a fault.
    pub fn of_value(text: &[u8]) -> Result<Template, String> {
        let mut template = Template(Vec::new());
        let mut rest = text;
        while let Some((byte, behind)) = rest.split_first() {
            let is_brace = b"{}".contains(byte);
            if is_brace && behind.first() == Some(byte) {
                template.push(*byte);
                rest = &behind[1..];
            } else if let Some((name, behind)) = placeholder(rest) {
                template.0.push(Piece::Placeholder(name));
                rest = behind;
            } else if *byte == b'{' {
                let end = rest.iter().position(|byte| *byte == b'}');
                let shown = &rest[..end.map_or(rest.len(), |end| end + 1)];
                return Err(format!(
                    "{} is not {{local_rank}}, {{rank}}, {{host}}, {{world_size}}, \
                     {{master_addr}} or {{master_port}}",
                    String::from_utf8_lossy(shown)
                ));
            } else if is_brace {
                return Err("a } stands alone".to_owned());
            } else {
                template.push(*byte);
                rest = behind;
            }
        }
        Ok(template)
    }

    /// Parses a word of a command. Braces are common there (JSON, awk, `${host}` of a shell), so
    /// everything but the placeholders stays unchanged; a placeholder in two braces becomes one in
    /// a single pair.
    pub fn of_word(text: &[u8]) -> Template {
        let mut template = Template(Vec::new());
        let mut rest = text;
        while let Some((byte, behind)) = rest.split_first() {
            let is_of_shell = template.ends_with(b'$');
            match (placeholder(rest), placeholder(behind)) {
                (_, Some((name, [b'}', behind @ ..]))) if *byte == b'{' => {
                    let text = format!("{{{name}}}");
                    text.bytes().for_each(|byte| template.push(byte));
                    rest = behind;
                }
                (Some((name, behind)), _) if !is_of_shell => {
                    template.0.push(Piece::Placeholder(name));
                    rest = behind;
                }
                _ => {
                    template.push(*byte);
                    rest = behind;
                }
            }
        }
        template
    }

    fn push(&mut self, byte: u8) {
        match self.0.last_mut() {
            Some(Piece::Text(text)) => text.push(byte),
            _ => self.0.push(Piece::Text(vec![byte])),
        }
    }

    fn ends_with(&self, byte: u8) -> bool {
        matches!(self.0.last(), Some(Piece::Text(text)) if text.last() == Some(&byte))
    }

    fn has(&self, name: &str) -> bool {
        let is_it = |piece: &Piece| matches!(piece, Piece::Placeholder(other) if *other == name);
        self.0.iter().any(is_it)
    }

    /// Whether the processes of a host would get different texts.
    pub fn differs_on_a_host(&self) -> bool {
        self.has("local_rank") || self.has("rank")
    }

    /// Whether the port of torch's rendezvous is among the placeholders.
    pub fn has_master_port(&self) -> bool {
        self.has("master_port")
    }

    /// The text for one process.
    pub fn fill(&self, values: PlaceholderValues) -> OsString {
        let bytes = self.0.iter().flat_map(|piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Placeholder(name) => values.of(name).into_bytes(),
        });
        OsString::from_vec(bytes.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_a_word_all_but_placeholders_stays_as_it_is() {
        let values = PlaceholderValues {
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
            let filled = Template::of_word(word.as_bytes()).fill(values);
            assert_eq!(filled.to_str(), Some(wanted), "{word}");
        }
    }
}
