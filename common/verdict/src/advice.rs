//! Finds what to do: the first paragraph of advice.txt that fits the evidence. The messages in
//! dgl-tools-trouble(7) are made from that file too.

use crate::account;
use crate::findings::{JobFinding, LED_TO};
use crate::job::{JobHistory, ProcessHistory};
use crate::words;
use record::{Host, Process};
use regex::{Captures, Regex};
use std::sync::LazyLock;

const TEXT: &str = include_str!("advice.txt");
static ALL: LazyLock<Vec<Advice>> =
    LazyLock::new(|| paragraphs().filter_map(Advice::parse).collect());

fn paragraphs() -> impl Iterator<Item = &'static str> {
    TEXT.split("\n\n")
}

fn field(paragraph: &'static str, name: &str) -> Option<&'static str> {
    paragraph
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

#[derive(Clone)]
struct Advice {
    id: &'static str,
    words: Vec<&'static str>,
    when: &'static str,
    text: String,
    /// For a job that another launcher started.
    foreign: String,
}

/// The facts that conditions test.
#[derive(Default)]
struct Scene<'a> {
    process: Option<&'a Process>,
    host: Option<&'a Host>,
    /// In lower case.
    text: String,
    module: String,
    /// Whether the job ended because of an exception, as dgl-spawn --fail-on-exception has it.
    ended_by_exception: bool,
}

/// Adds to a failure the first advice that fits its text, or else the rest of what its process
/// wrote at its end.
pub fn add(job: &JobHistory, finding: &mut JobFinding) {
    if finding.fix.is_some() {
        return;
    }
    let id = finding.culprit.as_ref().and_then(|culprit| culprit.id);
    let process = id.and_then(|id| job.history(id));
    let host = finding
        .culprit
        .as_ref()
        .and_then(|culprit| job.host(culprit.host));
    // what others wrote about lost connections has a remedy only if nobody is to blame
    let cause = finding.text.split(LED_TO).next().unwrap_or_default();
    let mut texts = vec![cause.to_owned()];
    // in a log that several processes share, other lines may be about others
    if let Some(process) = process.filter(|process| !process.evidence.is_mixed()) {
        texts.extend(other_texts(process, cause));
    }
    for text in texts {
        let scene = Scene {
            process: process.map(|history| &history.process),
            host,
            module: missing_module(&text).unwrap_or_default(),
            text: text.to_lowercase(),
            ended_by_exception: job.has_ended_by_exception(),
        };
        let text = |advice: &Advice| {
            let text = if job.is_foreign() {
                &advice.foreign
            } else {
                &advice.text
            };
            Some((advice.id, scene.not_followed(text)?))
        };
        let mut fitting = ALL.iter().filter(|advice| advice.fits(&scene));
        if let Some((id, text)) = fitting.find_map(text) {
            let package = scene.module.split('.').next().unwrap_or_default();
            let text = text.replace("MODULE", &scene.module);
            finding.fix = Some(text.replace("PACKAGE", package));
            finding.advice = Some(id);
            return;
        }
    }
}

/// What else the process wrote at its end: its statements, and its last lines.
fn other_texts(process: &ProcessHistory, cause: &str) -> Vec<String> {
    let own = exception_of_script(cause);
    let lines: Vec<&str> = process
        .evidence
        .statements()
        .iter()
        .filter(|statement| !statement.first.while_ending)
        .filter(|statement| own.is_none_or(|own| statement.head().starts_with(own)))
        .flat_map(|statement| {
            let frames = statement.frames.iter().map(String::as_str);
            statement.lines().chain(frames)
        })
        .collect();
    let last: Vec<&str> = process
        .evidence
        .last_lines()
        .filter(|line| !line.while_ending)
        .map(|line| line.text.as_str())
        .collect();
    let last = own.is_none().then(|| last.join("\n"));
    [lines.join("\n")].into_iter().chain(last).collect()
}

/// The class of the exception that a failure names, if Python raises it about the script itself.
/// What else the process wrote has nothing to do with it then.
fn exception_of_script(cause: &str) -> Option<&str> {
    const CLASSES: [&str; 11] = [
        "AssertionError",
        "AttributeError",
        "IndexError",
        "KeyError",
        "NameError",
        "NotImplementedError",
        "RecursionError",
        "TypeError",
        "UnboundLocalError",
        "ValueError",
        "ZeroDivisionError",
    ];
    let (_, raised) = cause.split_once(" raised ")?;
    let class = raised.split([':', ' ', '.']).next()?;
    CLASSES.contains(&class).then_some(class)
}

fn missing_module(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("No module named ")?;
    let end = |c: char| !(c.is_alphanumeric() || "._-".contains(c));
    let name = rest.trim_start_matches(['\'', '"']).split(end).next()?;
    Some(name.trim_end_matches('.').to_owned())
}

/// `dgl-env --env A=1 --env B=2` as `A=1 and B=2 in the environment`.
fn without_dgl_env(text: &str) -> String {
    static COMMAND: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"dgl-env --env ([^ ,;)]*(?: --env [^ ,;)]*)*)").ok());
    let in_words = |words: &Captures<'_>| {
        let variables = words[1].replace(" --env ", " and ");
        format!("{variables} in the environment")
    };
    let command = COMMAND.as_ref();
    command.map_or(text.into(), |command| {
        command.replace_all(text, in_words).into_owned()
    })
}

impl Advice {
    fn parse(paragraph: &'static str) -> Option<Advice> {
        let text = field(paragraph, "do")?.replace('`', "");
        let foreign = field(paragraph, "foreign").map(|text| text.replace('`', ""));
        Some(Advice {
            id: field(paragraph, "id")?,
            words: field(paragraph, "words")?.split(" | ").collect(),
            when: field(paragraph, "when").unwrap_or_default(),
            foreign: foreign.unwrap_or_else(|| without_dgl_env(&text)),
            text,
        })
    }

    fn fits(&self, scene: &Scene<'_>) -> bool {
        let is_met = || match self.when {
            "container" => {
                let limit = scene.host.and_then(|host| host.facts.mem_limit_bytes);
                limit.is_some() || scene.text.contains("limit of a container")
            }
            "shares GPUs" => !scene.has_variable("CUDA_VISIBLE_DEVICES"),
            "module of a package" => scene.is_package() && scene.module.contains('.'),
            "package, no environment" => scene.is_package() && !scene.has_environment(),
            "package" => scene.is_package(),
            "launcher" => scene.runs_launcher(),
            "other address" => scene.has_other_address(),
            "not ended by it" => !scene.ended_by_exception,
            "file of the script" => scene.names_own_file(),
            _ => true,
        };
        words::has_any(&scene.text, &self.words) && is_met()
    }
}

impl Scene<'_> {
    /// The part of an advice that the run did not follow: the clauses, except those that set
    /// variables which the process already had.
    fn not_followed(&self, text: &str) -> Option<String> {
        let env = self.process.map(|process| &process.env);
        let is_set = |word: &str| {
            let (name, value) = word
                .trim_matches(|c: char| !c.is_ascii_alphanumeric())
                .split_once('=')?;
            let is_name = !name.is_empty() && !name.contains(|c: char| c.is_ascii_lowercase());
            is_name.then(|| {
                env.and_then(|env| env.get(name))
                    .is_some_and(|set| set == value)
            })
        };
        let is_followed = |clause: &&str| {
            let mut variables = clause.split(' ').filter_map(is_set).peekable();
            variables.peek().is_some() && variables.all(|is_set| is_set)
        };
        let left: Vec<&str> = text
            .split("; ")
            .filter(|clause| !is_followed(clause))
            .collect();
        (!left.is_empty()).then(|| left.join("; "))
    }

    fn has_variable(&self, name: &str) -> bool {
        self.process
            .is_some_and(|process| process.env.contains_key(name))
    }

    /// Whether the process runs in a venv, a conda environment or an activated one.
    fn has_environment(&self) -> bool {
        self.host.is_some_and(|host| host.facts.prefix.is_some())
            || self.has_variable("VIRTUAL_ENV")
            || self.has_variable("CONDA_PREFIX")
            || self.process.is_some_and(|process| {
                let mut python = process.python.iter();
                process.setup.is_some() || python.any(|python| python.contains('/'))
            })
    }

    fn is_package(&self) -> bool {
        let name = self.module.split('.').next();
        paragraphs()
            .find_map(|head| field(head, "packages"))
            .into_iter()
            .any(|names| names.split(' ').any(|package| Some(package) == name))
    }

    /// Whether the message has another rendezvous address or port than the process was given: the
    /// script sets it itself.
    fn has_other_address(&self) -> bool {
        let Some(process) = self.process else {
            return false;
        };
        let ports: Vec<&str> = self
            .text
            .split(|c: char| !c.is_ascii_digit())
            .filter(|number| number.len() > 3)
            .collect();
        let is_elsewhere = process.env.get("MASTER_PORT").is_some_and(|port| {
            !ports.is_empty() && !ports.contains(&port.as_str()) && self.text.contains("in use")
        });
        is_elsewhere || account::names_other_address(process, &self.text)
    }

    /// Whether the last file in brackets is none of an installed package.
    fn names_own_file(&self) -> bool {
        let file = self.text.rsplit('(').find(|text| text.contains(".py)"));
        let installed = ["-packages/", "/lib/python", "<frozen"];
        file.is_some_and(|file| installed.iter().all(|part| !file.contains(part)))
    }

    fn runs_launcher(&self) -> bool {
        const LAUNCHERS: [&str; 6] = [
            "mpirun",
            "mpiexec",
            "accelerate",
            "torchrun",
            "deepspeed",
            "horovodrun",
        ];
        self.process
            .into_iter()
            .flat_map(|process| process.argv.iter().flatten().chain(&process.shell))
            .flat_map(|words| words.split([' ', '/']))
            .any(|word| LAUNCHERS.contains(&word))
    }
}

#[cfg(test)]
pub mod near {
    /// The texts of near.txt that must not be taken for `id`.
    pub fn texts(id: &str) -> Vec<&'static str> {
        let lines = include_str!("near.txt").lines();
        let of_id = lines.filter_map(|line| line.strip_prefix(id)?.strip_prefix(": "));
        of_id.collect()
    }

    /// Whether one of the texts has the longest word of an entry.
    pub fn has_word_of(entry: &str, texts: &[&str]) -> bool {
        let words = entry.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let longest = words.max_by_key(|word| word.len()).unwrap_or_default();
        let mut texts = texts.iter().map(|text| text.to_lowercase());
        texts.any(|text| text.contains(longest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fmt::Write as _;
    use std::path::Path;

    const PAGE: &str = "man/dgl-tools-trouble.7";

    #[test]
    fn every_paragraph_is_complete() {
        let (mut ids, mut conditions) = (BTreeSet::new(), BTreeSet::new());
        for paragraph in paragraphs().skip(1) {
            for name in ["id", "messages", "words", "do"] {
                assert!(field(paragraph, name).is_some(), "{name}: {paragraph}");
            }
            let names = [
                "group", "id", "messages", "words", "when", "do", "foreign", "why",
            ];
            for line in paragraph.lines() {
                let name = line.split(": ").next().unwrap();
                assert!(names.contains(&name), "{line}");
            }
            let words = field(paragraph, "words").unwrap();
            assert_eq!(words, words.to_lowercase());
            assert!(ids.insert(field(paragraph, "id").unwrap()), "{paragraph}");
            conditions.extend(field(paragraph, "when"));
        }
        let source = include_str!("advice.rs");
        for condition in conditions {
            assert!(source.contains(&format!("{condition:?} =>")), "{condition}");
        }
    }

    #[test]
    fn jobs_of_other_launchers_get_advice_without_these_tools() {
        const TOOLS: [&str; 6] = ["dgl-", "part-", "host-", "--num-", "--setup", "dgl_"];
        for advice in ALL.iter() {
            let text = advice.foreign.replace("dgl-stacks --any", "");
            let named = TOOLS.iter().find(|tool| text.contains(*tool));
            assert_eq!(named, None, "{}: {text}", advice.id);
        }
        let two =
            without_dgl_env("set one (dgl-env --env A=1, B=2) or dgl-env --env C=3 --env D=4");
        assert_eq!(
            two,
            "set one (A=1 in the environment, B=2) or C=3 and D=4 in the environment"
        );
    }

    #[expect(clippy::too_many_lines, reason = "it is a table of cases")]
    #[test]
    fn an_advice_is_for_its_own_messages() {
        let table: [(&str, &[&str], &[&str]); 5] = [
            (
                "kvstore-index",
                &[
                    "rpc.cc:395: Check failed: l_id < local_data_shape[0] (7 vs. 3) : ",
                    "rpc.cc:400: Check failed: p_id < machine_count (2 vs. 2) : Invalid partition \
                     ID.",
                ],
                &["rpc.cc:387: Check failed: row_size * local_data_shape[0] == size (8 vs. 4)"],
            ),
            (
                "line-ends",
                &[
                    "run.sh: line 2: $'\\r': command not found",
                    "run.sh: line 3: cd: $'code\\r': No such file or directory",
                    "env: ‘python3\\r’: No such file or directory",
                    "bash: ./run.sh: /bin/bash^M: bad interpreter: No such file or directory",
                    "sh: bad interpreter: /bin/bash^M",
                    "host-agent: code/run.sh has Windows line ends (CR LF), which",
                ],
                &[
                    "env: ‘python4’: No such file or directory",
                    "bash: ./run.sh: /opt/python: bad interpreter: No such file or directory",
                ],
            ),
            (
                "noexec",
                &[
                    "ImportError: /srv/_umath.so: failed to map segment from shared object",
                    "host-agent: code/run.sh cannot be executed, because its file system is \
                     mounted with noexec",
                ],
                &[
                    "failed to map segment from shared object: Cannot allocate memory",
                    "ImportError: libx.so: cannot open shared object file",
                ],
            ),
            (
                "execute-permission",
                &["host-agent: code/run.sh is there, but has no permission to be executed"],
                &["sh: 1: ./run.sh: Permission denied"],
            ),
            (
                "git",
                &[
                    "fatal: not a git repository (or any of the parent directories): .git",
                    "git.exc.InvalidGitRepositoryError: /srv/job/code",
                ],
                &[
                    "fatal: repository 'x' not found",
                    "GitCommandError: exit code(128)",
                ],
            ),
        ];
        let found = |text: &str| {
            let scene = Scene {
                text: text.to_lowercase(),
                ..Scene::default()
            };
            ALL.iter()
                .find(|advice| advice.fits(&scene))
                .map(|advice| advice.id)
        };
        for (id, own, others) in table {
            for text in own {
                assert_eq!(found(text), Some(id), "{text}");
            }
            for text in others {
                assert_ne!(found(text), Some(id), "{text}");
            }
        }
    }

    #[test]
    fn no_single_word_brings_an_advice() {
        for advice in ALL.iter() {
            let near = near::texts(advice.id);
            for words in &advice.words {
                let id = advice.id;
                assert!(
                    near::has_word_of(words, &near),
                    "near.txt has no text for {id}: {words}"
                );
            }
            for text in near {
                let scene = Scene {
                    text: text.to_lowercase(),
                    ..Scene::default()
                };
                let unconditional = Advice {
                    when: "",
                    ..advice.clone()
                };
                assert!(!unconditional.fits(&scene), "{}: {}", advice.id, scene.text);
            }
        }
    }

    /// The section of the manual about the messages, in mdoc.
    fn section() -> String {
        let mut text = String::new();
        for paragraph in paragraphs().skip(1) {
            if let Some(group) = field(paragraph, "group") {
                let end = if text.is_empty() { "" } else { ".El\n" };
                write!(text, "{end}.Ss {group}\n.Bl -tag -width Ds\n").unwrap();
            }
            let messages = field(paragraph, "messages").unwrap();
            let messages = messages.replace('"', "\\(dq");
            writeln!(text, ".It Li \"{messages}\"").unwrap();
            let advice = field(paragraph, "do").unwrap();
            let mut letters = advice.chars();
            let first = letters.next().unwrap().to_uppercase();
            let advice = format!("{first}{}.", letters.as_str());
            for sentence in field(paragraph, "why").into_iter().chain([advice.as_str()]) {
                words(sentence, &mut text);
            }
        }
        text
    }

    /// Writes text with links to other pages, and with code where it has backticks.
    fn words(sentences: &str, text: &mut String) {
        let mut line = String::new();
        let mut is_code = false;
        let is_end = |letter| {
            is_code ^= letter == '`';
            letter == ' ' && !is_code
        };
        for word in sentences.split(is_end) {
            let marked = link(word).or_else(|| code(word));
            let is_full = line.len() + word.len() > 95;
            if (marked.is_some() || is_full) && !line.is_empty() {
                writeln!(text, "{}", std::mem::take(&mut line)).unwrap();
            }
            match marked {
                Some(marked) => writeln!(text, "{}", marked.trim_end()).unwrap(),
                None if line.is_empty() => line = word.replace('\\', "\\e"),
                None => line += &format!(" {word}"),
            }
            if line.starts_with(['\'', '.']) {
                line.insert_str(0, "\\&");
            }
            if word.ends_with(['.', ';']) && !line.is_empty() {
                writeln!(text, "{}", std::mem::take(&mut line)).unwrap();
            }
        }
        if !line.is_empty() {
            writeln!(text, "{line}").unwrap();
        }
    }

    fn link(word: &str) -> Option<String> {
        let (page, rest) = word.split_once('(')?;
        let (section, end) = rest.split_once(')')?;
        let is_page = matches!(section, "1" | "5" | "7");
        is_page.then(|| format!(".Xr {page} {section} {end}"))
    }

    /// `` (`ls -l`), `` is `.Ql ( ls -l ) ,`: mdoc sets the punctuation around code apart.
    fn code(word: &str) -> Option<String> {
        let (before, rest) = word.split_once('`')?;
        let (code, after) = rest.rsplit_once('`')?;
        let code = code.replace('\\', "\\e").replace('"', "\\(dq");
        let escaped = |word: &str| match word {
            "|" | "." => format!("\\&{word}"),
            _ => word.to_owned(),
        };
        let before = before.chars().map(|letter| letter.to_string());
        let after = after.chars().map(|letter| letter.to_string());
        let parts = before.chain(code.split(' ').map(escaped)).chain(after);
        Some(format!(".Ql {}", parts.collect::<Vec<_>>().join(" ")))
    }

    /// DGL_TOOLS_WRITE_MANUAL=1 writes the section.
    #[expect(clippy::disallowed_methods, reason = "a page of this repository")]
    #[test]
    fn the_manual_has_the_messages() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(PAGE);
        let page = std::fs::read_to_string(&path).unwrap();
        let (before, rest) = page.split_once(".Sh MESSAGES\n").unwrap();
        let (head, rest) = rest.split_once(".Ss ").unwrap();
        let (_, after) = rest.split_once(".El\n.Sh SEE ALSO\n").unwrap();
        // for readers whose locale is not UTF-8
        let marks = [('–', "\\(en"), ('“', "\\(lq"), ('”', "\\(rq")];
        let list = marks
            .into_iter()
            .fold(section(), |text, (mark, escape)| text.replace(mark, escape));
        let made = format!("{before}.Sh MESSAGES\n{head}{list}.El\n.Sh SEE ALSO\n{after}");
        if std::env::var_os("DGL_TOOLS_WRITE_MANUAL").is_some() {
            std::fs::write(&path, &made).unwrap();
        }
        assert!(page == made, "{PAGE} is not up to date: make manual");
    }
}
