//! Texts with placeholders that differ from process to process, such as `{rank}`.

use record::Role;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::{self, Display, Formatter};
use std::net::Ipv4Addr;
use std::os::unix::ffi::OsStringExt;

/// Facts of a program, for its own placeholders and those of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramFacts {
    pub num_hosts: u32,
    /// The processes that torch counts: trainers, or workers.
    pub world_size: u32,
    /// The address of the first process's host, on which torch's rendezvous listens.
    pub master_addr: Ipv4Addr,
    /// Of torch's rendezvous; `None` if not known yet.
    pub master_port: Option<u16>,
    /// Free ports of that host, by their names in placeholders.
    pub ports: BTreeMap<String, u16>,
}

pub type Programs = BTreeMap<Role, ProgramFacts>;

#[derive(Clone, Copy)]
pub struct PlaceholderValues<'a> {
    /// Among the processes of its role on its host.
    pub local_rank: u32,
    /// Among the processes of its role, on all hosts.
    pub rank: u32,
    pub host: u32,
    pub own: &'a ProgramFacts,
    /// Of the programs before it in the stream.
    pub others: &'a Programs,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Placeholder {
    LocalRank,
    Rank,
    Host,
    /// `{attempt}`, how often the job was started again; dgl-spawn replaces it.
    Attempt,
    /// `{world_size}`, of the process's own program.
    Own(Fact),
    /// `{store.world_size}`, of another program.
    Of(Role, Fact),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fact {
    NumHosts,
    WorldSize,
    MasterAddr,
    MasterPort,
    /// `port:NAME`
    Port(String),
}

const KNOWN: &str = "{local_rank}, {rank}, {host}, {num_hosts}, {world_size}, {master_addr}, \
     {master_port}, {port:NAME}, {attempt}, or PROGRAM and a dot before one from {num_hosts} to \
     {port:NAME}";

impl Display for Fact {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Fact::NumHosts => f.write_str("num_hosts"),
            Fact::WorldSize => f.write_str("world_size"),
            Fact::MasterAddr => f.write_str("master_addr"),
            Fact::MasterPort => f.write_str("master_port"),
            Fact::Port(name) => write!(f, "port:{name}"),
        }
    }
}

impl Fact {
    fn parse(text: &str) -> Option<Fact> {
        Some(match text {
            "num_hosts" => Fact::NumHosts,
            "world_size" => Fact::WorldSize,
            "master_addr" => Fact::MasterAddr,
            "master_port" => Fact::MasterPort,
            port => {
                let name = port.strip_prefix("port:")?;
                let is_name = !name.is_empty()
                    && name
                        .bytes()
                        .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
                Fact::Port(is_name.then(|| name.to_owned())?)
            }
        })
    }

    pub fn value_in(&self, program: &ProgramFacts) -> Option<String> {
        Some(match self {
            Fact::NumHosts => program.num_hosts.to_string(),
            Fact::WorldSize => program.world_size.to_string(),
            Fact::MasterAddr => program.master_addr.to_string(),
            Fact::MasterPort => program.master_port?.to_string(),
            Fact::Port(name) => program.ports.get(name)?.to_string(),
        })
    }
}

impl Placeholder {
    fn parse(text: &str) -> Option<Placeholder> {
        Some(match text {
            "local_rank" => Placeholder::LocalRank,
            "rank" => Placeholder::Rank,
            "host" => Placeholder::Host,
            "attempt" => Placeholder::Attempt,
            text => match text.split_once('.') {
                Some((program, fact)) => Placeholder::Of(program.parse().ok()?, Fact::parse(fact)?),
                None => Placeholder::Own(Fact::parse(text)?),
            },
        })
    }

    /// Its value for one process; empty if the plan has none, which is checked before.
    fn value(&self, values: PlaceholderValues<'_>) -> String {
        match self {
            Placeholder::LocalRank => values.local_rank.to_string(),
            Placeholder::Rank => values.rank.to_string(),
            Placeholder::Host => values.host.to_string(),
            Placeholder::Attempt => record::ATTEMPT.to_owned(),
            Placeholder::Own(fact) => fact.value_in(values.own).unwrap_or_default(),
            Placeholder::Of(role, fact) => {
                let other = values.others.get(role);
                other
                    .and_then(|other| fact.value_in(other))
                    .unwrap_or_default()
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<TemplatePiece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePiece {
    Text(Vec<u8>),
    Placeholder(Placeholder),
}

/// The placeholder at the beginning of a text, as it is written there, and the rest.
fn placeholder(text: &[u8]) -> Option<(Placeholder, &str, &[u8])> {
    let inner = text.strip_prefix(b"{")?;
    let end = inner.iter().position(|byte| *byte == b'}')?;
    let written = std::str::from_utf8(&inner[..end]).ok()?;
    Some((Placeholder::parse(written)?, written, &inner[end + 1..]))
}

impl Template {
    pub fn literal(text: &[u8]) -> Template {
        Template(vec![TemplatePiece::Text(text.to_vec())])
    }

    /// Parses a variable's value. `{{` and `}}` are braces; any other brace outside a placeholder
    /// is a fault.
    pub fn of_value(text: &[u8]) -> Result<Template, String> {
        let mut template = Template(Vec::new());
        let mut rest = text;
        while let Some((byte, behind)) = rest.split_first() {
            let is_brace = b"{}".contains(byte);
            if is_brace && behind.first() == Some(byte) {
                template.push(*byte);
                rest = &behind[1..];
            } else if let Some((placeholder, _, behind)) = placeholder(rest) {
                template.0.push(TemplatePiece::Placeholder(placeholder));
                rest = behind;
            } else if *byte == b'{' {
                let end = rest.iter().position(|byte| *byte == b'}');
                let shown = &rest[..end.map_or(rest.len(), |end| end + 1)];
                return Err(format!("{} is not {KNOWN}", String::from_utf8_lossy(shown)));
            } else if is_brace {
                return Err("a } without a {".to_owned());
            } else {
                template.push(*byte);
                rest = behind;
            }
        }
        Ok(template)
    }

    /// Parses a word of a command. Braces are common there (JSON, awk, `${host}` of a shell), so
    /// everything but placeholders stays unchanged; a placeholder in two braces becomes one in a
    /// single pair.
    pub fn of_word(text: &[u8]) -> Template {
        let mut template = Template(Vec::new());
        let mut rest = text;
        while let Some((byte, behind)) = rest.split_first() {
            let is_of_shell = template.ends_with(b'$');
            match (placeholder(rest), placeholder(behind)) {
                (_, Some((_, written, [b'}', behind @ ..]))) if *byte == b'{' => {
                    format!("{{{written}}}")
                        .bytes()
                        .for_each(|byte| template.push(byte));
                    rest = behind;
                }
                (Some((placeholder, _, behind)), _) if !is_of_shell => {
                    template.0.push(TemplatePiece::Placeholder(placeholder));
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
            Some(TemplatePiece::Text(text)) => text.push(byte),
            _ => self.0.push(TemplatePiece::Text(vec![byte])),
        }
    }

    fn ends_with(&self, byte: u8) -> bool {
        matches!(self.0.last(), Some(TemplatePiece::Text(text)) if text.last() == Some(&byte))
    }

    pub fn placeholders(&self) -> impl Iterator<Item = &Placeholder> {
        self.0.iter().filter_map(|piece| match piece {
            TemplatePiece::Text(_) => None,
            TemplatePiece::Placeholder(placeholder) => Some(placeholder),
        })
    }

    /// Whether its text, without placeholders, contains this.
    pub fn has_text(&self, what: &str) -> bool {
        self.0.iter().any(|piece| match piece {
            TemplatePiece::Text(text) => {
                text.windows(what.len()).any(|part| part == what.as_bytes())
            }
            TemplatePiece::Placeholder(_) => false,
        })
    }

    pub fn fill(&self, values: PlaceholderValues<'_>) -> OsString {
        let bytes = self.0.iter().flat_map(|piece| match piece {
            TemplatePiece::Text(text) => text.clone(),
            TemplatePiece::Placeholder(placeholder) => placeholder.value(values).into_bytes(),
        });
        OsString::from_vec(bytes.collect())
    }
}

/// Values for tests: process 5 of 8, the second of host 2.
#[cfg(test)]
pub fn with_values<T>(check: impl FnOnce(PlaceholderValues<'_>) -> T) -> T {
    let own = ProgramFacts {
        num_hosts: 4,
        world_size: 8,
        master_addr: Ipv4Addr::new(10, 0, 0, 1),
        master_port: Some(29500),
        ports: BTreeMap::from([("rpc".to_owned(), 29501)]),
    };
    let others = "store".parse().map(|store| (store, own.clone()));
    check(PlaceholderValues {
        local_rank: 1,
        rank: 5,
        host: 2,
        own: &own,
        others: &others.into_iter().collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_a_word_all_but_placeholders_stays_as_it_is() {
        let table = [
            ("--rank={rank}", "--rank=5"),
            ("{local_rank}{host}{world_size}", "128"),
            ("tcp://{master_addr}:{master_port}", "tcp://10.0.0.1:29500"),
            ("{num_hosts}x{port:rpc}", "4x29501"),
            ("{store.master_addr}:{store.port:rpc}", "10.0.0.1:29501"),
            ("epoch-{attempt}", "epoch-{attempt}"),
            (
                "{port:}{port:a b}{.rank}{store.rank}",
                "{port:}{port:a b}{.rank}{store.rank}",
            ),
            ("{{port:rpc}}", "{port:rpc}"),
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
            let filled = with_values(|values| Template::of_word(word.as_bytes()).fill(values));
            assert_eq!(filled.to_str(), Some(wanted), "{word}");
        }
    }
}
