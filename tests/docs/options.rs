//! The options of each manual page, made from the declarations that make `--help`: args.rs of each
//! tool, and common/cli for all tools that reach hosts. `make manual` writes them into the pages.
//!
//! The first paragraph of a doc comment is the help of a flag. The page goes on with the other
//! paragraphs, and with what clap knows: the default, the values of an enum with their doc
//! comments, whether the flag is required or may be given several times. These marks become mdoc:
//!
//! | written | meaning |
//! |---|---|
//! | `` `--flag` ``, `` `--flag VALUE` `` | a flag of a tool; in the help without backticks |
//! | `` `VALUE` ``, `` `word` `` | the value of this flag, or a word that it can be |
//! | `` `VARIABLE` ``, `` `/a/path` ``, `` `function()` `` | what they look like |
//! | `` `other text` `` | what is typed or printed |
//! | `*host*` | a type of records or a field |
//! | `part-map(1)`, `[Large files]` | a page; a section of a page |
//! | `` - `word`: text `` | an item of a list, in a paragraph of its own |

use clap::{Arg, ArgAction, Command};
use std::fmt::Write;
use support::root;

const BEGIN: &str = ".\\\" The options, from args.rs: make manual\n";
const END: &str = ".\\\" The end of the options\n";

/// Stands before the options that all tools which reach hosts have. The page that it names
/// describes them, once.
const HOSTS: &str = ".Pp
See
.Xr dgl-tools-connect 7
for these options:
";
const PAGE_OF_HOSTS: &str = "dgl-tools-connect.7";

/// The same for the options of both tools that copy files.
const COPYING: &str = ".Pp
See
.Xr part-push 1
for these options:
";

/// A line of text is broken where it would be longer.
const WIDTH: usize = 90;

/// The command line of each tool, as `--help` has it.
fn commands() -> [Command; 12] {
    use cli::command as of;
    [
        of::<dgl_env::Args>(),
        of::<dgl_reap::Args>(),
        of::<dgl_report::Args>(),
        of::<dgl_spawn::Args>(),
        of::<dgl_stacks::Args>(),
        of::<dgl_why::Args>(),
        of::<host_probe::Args>(),
        of::<host_swap::Args>(),
        of::<ipconf_check::Args>(),
        of::<part_map::Args>(),
        of::<part_pull::Args>(),
        of::<part_push::Args>(),
    ]
}

/// All options of a tool, as its page has them. dgl-tools(7) has `--help` and `--version`.
fn options(command: &mut Command) -> String {
    command.build();
    let tool = command.get_name();
    let flags = command.get_arguments();
    let flags = flags.filter(|arg| !arg.is_positional() && !is_of_all_tools(arg));
    let (hosts, own): (Vec<&Arg>, Vec<&Arg>) = flags.partition(is_of_hosts);
    let mut pushing = cli::command::<part_push::Args>();
    pushing.build();
    let is_of_push = |arg: &&Arg| {
        let described = |arg: &Arg| (arg.get_help().cloned(), arg.get_long_help().cloned());
        let same = |other: &Arg| described(other) == described(arg);
        tool == "part-pull" && pushing.get_arguments().any(same)
    };
    let (copying, own): (Vec<&Arg>, Vec<&Arg>) = own.into_iter().partition(is_of_push);
    list(tool, &own) + &heads(tool, COPYING, &copying) + &heads(tool, HOSTS, &hosts)
}

/// Options that another page describes.
fn heads(tool: &str, introduction: &str, flags: &[&Arg]) -> String {
    if flags.is_empty() {
        return String::new();
    }
    let heads = flags.iter().map(|arg| Item::new(tool, arg).head());
    let items: String = heads.map(|head| format!(".It {head}\n")).collect();
    format!("{introduction}.Bl -tag -width Ds -compact\n{items}.El\n")
}

fn is_of_all_tools(arg: &Arg) -> bool {
    matches!(arg.get_long(), Some("help" | "version"))
}

fn is_of_hosts(arg: &&Arg) -> bool {
    arg.get_help_heading() == Some("Hosts")
}

/// The options of all tools that reach hosts, in full.
fn options_of_hosts() -> String {
    let mut command = cli::command::<dgl_reap::Args>();
    command.build();
    let hosts: Vec<&Arg> = command.get_arguments().filter(is_of_hosts).collect();
    list("dgl-tools-connect", &hosts)
}

fn list(tool: &str, flags: &[&Arg]) -> String {
    let items = flags.iter().map(|arg| Item::new(tool, arg).mdoc());
    format!(".Bl -tag -width Ds\n{}.El\n", items.collect::<String>())
}

/// A flag of a tool, with what its page says: sentences, paragraphs, and items of lists.
struct Item<'a> {
    tool: &'a str,
    arg: &'a Arg,
    paragraphs: Vec<String>,
}

impl Item<'_> {
    fn new<'a>(tool: &'a str, arg: &'a Arg) -> Item<'a> {
        let values = arg.get_possible_values();
        let values = values.iter().filter_map(|value| {
            let text = value.get_help()?;
            Some(format!("- `{}`: {text}.", value.get_name()))
        });
        let long = arg.get_long_help().unwrap_or_default().to_string();
        let paragraphs = long.split("\n\n").skip(1).map(str::to_owned);
        Item {
            tool,
            arg,
            paragraphs: values.chain(paragraphs).collect(),
        }
    }

    fn mdoc(&self) -> String {
        let mut page = format!(".It {}\n{}", self.head(), self.text(&self.first_sentence()));
        let mut list: Vec<(&str, &str)> = Vec::new();
        for (number, paragraph) in self.paragraphs.iter().enumerate() {
            if let Some(item) = tag(paragraph) {
                list.push(item);
                continue;
            }
            page += &self.tags(&std::mem::take(&mut list));
            // the first goes on with what the help says, and what follows a list is not set off
            let is_set_off = number > 0 && tag(&self.paragraphs[number - 1]).is_none();
            page += if is_set_off { ".Pp\n" } else { "" };
            page += &self.text(paragraph);
        }
        page += &self.tags(&list);
        if matches!(self.arg.get_action(), ArgAction::Append) {
            page += "May be repeated.\n";
        }
        page
    }

    /// The names of the flag and its value: `Fl -jobs Ar n`.
    fn head(&self) -> String {
        let short = self.arg.get_short().map(|short| format!("Fl {short}"));
        let aliases = self.arg.get_visible_aliases().unwrap_or_default();
        let long = self.arg.get_long().into_iter().chain(aliases);
        let long = long.map(|name| format!("Fl -{name}"));
        let names: Vec<String> = short.into_iter().chain(long).collect();
        let mut head = names.join(" , ");
        if self.arg.is_require_equals_set() {
            write!(head, " Ns Oo = Ns {} Oc", value(self.value_name())).unwrap();
        } else if !self.value_name().is_empty() {
            write!(head, " {}", value(self.value_name())).unwrap();
        }
        if let Some(variable) = self.arg.get_env() {
            write!(head, " Pq Ev {}", variable.display()).unwrap();
        }
        head
    }

    /// Empty if it takes none.
    fn value_name(&self) -> &str {
        let names = self.arg.get_value_names().unwrap_or_default();
        let takes_value = self.arg.get_action().takes_values();
        names
            .first()
            .filter(|_| takes_value)
            .map_or("", |name| name)
    }

    /// What the help says, and the default, as whole sentences.
    fn first_sentence(&self) -> String {
        let help = self.arg.get_help().unwrap_or_default().to_string();
        let noted = help
            .strip_suffix(']')
            .and_then(|help| help.rsplit_once(" ["));
        let (help, note) = noted.unwrap_or((&help, ""));
        let note = note.strip_prefix("default: ");
        // the help says in short what a list says
        let list = self.paragraphs.first().and_then(|first| tag(first));
        let summary = help.rsplit_once(": ").filter(|_| list.is_some());
        let help = summary.map_or(help, |(help, _)| help);
        let declared = self.arg.get_default_values().first();
        let declared = declared.filter(|_| !self.value_name().is_empty());
        let default = declared.map(|value| match value.to_string_lossy() {
            word if self.has_word(&word) => format!("`{word}`"),
            text => text.into_owned(),
        });
        let default = default.or(note.map(str::to_owned));
        let default = default.map(|default| format!(" Default: {default}."));
        let required = if self.arg.is_required_set() {
            " This option is required."
        } else {
            ""
        };
        format!("{help}.{}{required}", default.unwrap_or_default())
    }

    fn tags(&self, items: &[(&str, &str)]) -> String {
        let Some(longest) = items.iter().map(|(name, _)| name.len()).max() else {
            return String::new();
        };
        let mut page = format!(".Bl -tag -width {} -compact\n", "x".repeat(longest));
        for (name, text) in items {
            let words: Vec<String> = name.split(' ').map(value).collect();
            page += &format!(".It {}\n{}", words.join(" "), self.text(text));
        }
        page + ".El\n"
    }

    /// A paragraph: each sentence begins a line.
    fn text(&self, paragraph: &str) -> String {
        let mut page = String::new();
        let mut line = String::new();
        for word in &words(paragraph) {
            let (macros, tail) = self.word(word);
            if macros.is_some() || line.len() + word.len() > WIDTH {
                end_line(&mut page, &mut line);
            }
            match macros {
                Some(macros) => writeln!(page, ".{macros}").unwrap(),
                None if line.is_empty() => line = escaped(word),
                None => write!(line, " {}", escaped(word)).unwrap(),
            }
            if tail.ends_with(['.', ':', ';']) {
                end_line(&mut page, &mut line);
            }
        }
        end_line(&mut page, &mut line);
        page
    }

    /// The macro line of a word or a marked text, if it needs one, and the punctuation at its end.
    fn word<'w>(&self, word: &'w str) -> (Option<String>, &'w str) {
        let inner = word.trim_start_matches('(');
        let bare = inner.trim_end_matches(['.', ',', ';', ':', ')']);
        let marked = |open, close| inner.strip_prefix(open)?.rsplit_once(close);
        let page = inner.split_once('(').and_then(|(page, rest)| {
            let (section, tail) = rest.split_once(')')?;
            Some((format!("Xr {page} {}", section.parse::<u8>().ok()?), tail))
        });
        let (macros, tail) = if let Some((text, tail)) = marked('`', '`') {
            (self.code(text), tail)
        } else if let Some((text, tail)) = marked('*', '*').filter(|(text, _)| is_name(text)) {
            (format!("Va {text}"), tail)
        } else if let Some((text, tail)) = marked('[', ']') {
            (format!("Sx {text}"), tail)
        } else if let Some(page) = page {
            page
        } else {
            let tail = &inner[bare.len()..];
            match bare.strip_prefix("--") {
                Some(name) if is_name(name) => (format!("Fl -{name}"), tail),
                _ if bare == self.tool => ("Nm".to_owned(), tail),
                // the value, as the help names it
                _ if is_upper(bare) && self.has_word(bare) => (value(bare), tail),
                _ => return (None, tail),
            }
        };
        let is_closing = |c| ".,;:)".contains(c);
        assert!(tail.chars().all(is_closing), "{}: {word}", self.tool);
        let (name, text) = macros.split_once(' ').unwrap_or((&macros, ""));
        let opening = if word.starts_with('(') { " (" } else { "" };
        let mut line = format!("{name}{opening} {text}").trim_end().to_owned();
        line.extend(tail.chars().map(|c| format!(" {c}")));
        (Some(line), tail)
    }

    /// The macro for a text in backticks.
    fn code(&self, text: &str) -> String {
        let (first, of_flag) = text.split_once(' ').unwrap_or((text, ""));
        let flag = first.strip_prefix("--").filter(|name| is_name(name));
        let is_value = |c: char| c.is_ascii_alphabetic() || ":_".contains(c);
        let is_path = |text: &str| {
            let is_of_path = |c: char| c.is_ascii_alphanumeric() || "/._-~*".contains(c);
            let is_number = text.starts_with(|c: char| c.is_ascii_digit());
            text.contains(['/', '.']) && text.chars().all(is_of_path) && !is_number && text != ".."
        };
        match flag {
            Some(name) if of_flag.is_empty() => format!("Fl -{name}"),
            Some(name) if of_flag.chars().all(is_value) => format!("Fl -{name} {}", value(of_flag)),
            _ if self.has_word(text) => value(text),
            _ if is_upper(text) => format!("Ev {text}"),
            _ if text.ends_with("()") => format!("Fn {}", text.trim_end_matches("()")),
            _ if is_path(text) => format!("Pa {}", escaped(text)),
            _ => {
                let words: Vec<String> = text.split(' ').map(escaped).collect();
                format!("Ql {}", words.join(" "))
            }
        }
    }

    /// Whether it is a part of this flag's value, or stands in its list.
    fn has_word(&self, text: &str) -> bool {
        let mut listed = self.paragraphs.iter().filter_map(|text| tag(text));
        let is_sign = |c: char| !c.is_ascii_alphanumeric() && c != '_';
        let mut parts = self.value_name().split(is_sign);
        parts.any(|part| part == text) || listed.any(|(name, _)| name == text)
    }
}

/// A list's item: `` - `word`: text ``.
fn tag(paragraph: &str) -> Option<(&str, &str)> {
    paragraph.strip_prefix("- `")?.split_once("`: ")
}

fn is_upper(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_uppercase() || c == '_')
}

fn is_name(text: &str) -> bool {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    text.starts_with(|c: char| c.is_ascii_lowercase()) && text.chars().all(is_of_name)
}

/// A value as a head or a text shows it: `TIME[:end]` has a name, brackets and a word.
fn value(name: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphabetic() || c == '_';
    let mut parts: Vec<String> = Vec::new();
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let (part, after) = rest.split_at(end.max(first.len_utf8()));
        rest = after;
        parts.push(match first {
            '|' => "|".to_owned(),
            '[' => "Oo".to_owned(),
            ']' => "Oc".to_owned(),
            '…' => "...".to_owned(),
            _ if first.is_ascii_uppercase() => format!("Ar {}", part.to_lowercase()),
            _ if is_word(first) => format!("Cm {part}"),
            _ => format!("\\&{part}"),
        });
    }
    let line = parts.join(" Ns ");
    let line = line.replace(" Ns | Ns ", " | ");
    line.replace("Oo Ns ", "Oo ").replace(" Ns Oc", " Oc")
}

/// The words of a text; what is marked stays together.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut close = None;
    for letter in text.chars() {
        close = match (letter, close) {
            ('`', None) => Some('`'),
            ('[', None) => Some(']'),
            (letter, Some(end)) if letter == end => None,
            (_, close) => close,
        };
        match words.last_mut() {
            Some(word) if letter != ' ' || close.is_some() => word.push(letter),
            _ => words.push(String::new()),
        }
    }
    words
}

/// A word as mdoc prints it.
fn escaped(word: &str) -> String {
    let word = word.replace('\\', "\\e").replace('"', "\\(dq");
    let word = word.replace('~', "\\(ti").replace('…', "...");
    // what mdoc would take for punctuation of its own, or for a macro
    let is_alone = word.len() == 1 && !word.starts_with(|c: char| c.is_ascii_alphanumeric());
    if is_alone { format!("\\&{word}") } else { word }
}

fn end_line(page: &mut String, line: &mut String) {
    if line.starts_with(['.', '\'']) {
        line.insert_str(0, "\\&");
    }
    if !line.is_empty() {
        writeln!(page, "{line}").unwrap();
        line.clear();
    }
}

/// DGL_TOOLS_WRITE_MANUAL=1 writes the pages.
#[test]
fn pages_have_the_docs_of_every_flag() {
    let of_tool = |mut command: Command| {
        let name = format!("{}.1", command.get_name());
        (name, options(&mut command))
    };
    let mut made: Vec<(String, String)> = commands().into_iter().map(of_tool).collect();
    made.push((PAGE_OF_HOSTS.to_owned(), options_of_hosts()));
    let mut old = Vec::new();
    for (name, options) in made {
        let path = root().join(format!("man/{name}"));
        let page = std::fs::read_to_string(&path).unwrap();
        let (before, rest) = page.split_once(BEGIN).unwrap();
        let (_, after) = rest.split_once(END).unwrap();
        let made = format!("{before}{BEGIN}{options}{END}{after}");
        if std::env::var_os("DGL_TOOLS_WRITE_MANUAL").is_some() {
            std::fs::write(&path, &made).unwrap();
        } else if made != page {
            old.push(path);
        }
    }
    assert!(old.is_empty(), "not up to date: {old:?}: make manual");
}
