//! Whether the status of shell text is that of the program in it.

use regex::Regex;
use std::sync::LazyLock;

/// What divides commands, and what may contain the same characters: quotations, redirections,
/// comments.
static PARTS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let other = r#"'[^']*'|"(?:\\.|[^"\\])*"|\\.|[<>]&|&>|\s#[^\n]*"#;
    Regex::new(&format!(r"(?s){other}|(?P<operator>\|\||&&|\|&|[;|&\n])")).ok()
});

/// How many commands may write lines of their own after the program, if they can hide its status.
pub fn hiding_commands(text: &str) -> Option<usize> {
    // a shell that passes the status on
    if text.contains("exit $") {
        return None;
    }
    let commands = commands(text);
    let program = (commands.iter().position(Command::is_python))
        .or_else(|| commands.iter().position(|one| !one.is_preparation()))?;
    let (before, after) = commands.split_at(program + 1);
    if before[program].has_word("exec") {
        return None;
    }
    let stops = before.iter().any(Command::stops_at_failure);
    let hides = |command: &Command| match command.operator {
        "&&" => false,
        "|" | "|&" => !text.contains("pipefail"),
        ";" | "\n" => !stops,
        _ => true,
    };
    let is_in_pipe = |command: &&Command| ["|", "|&"].contains(&command.operator);
    (after.iter().any(hides)).then(|| after.iter().filter(|one| !is_in_pipe(one)).count())
}

struct Command<'a> {
    /// Before it, such as `;` or `&&`.
    operator: &'a str,
    text: &'a str,
}

impl Command<'_> {
    fn has_word(&self, wanted: &str) -> bool {
        self.text.split_whitespace().any(|word| word == wanted)
    }

    fn is_python(&self) -> bool {
        let names = self.text.split_whitespace();
        let mut names = names.filter_map(|word| word.rsplit('/').next());
        names.any(|name| name.starts_with("python") || name.ends_with(".py"))
    }

    /// Whether it only changes the shell that runs the program.
    fn is_preparation(&self) -> bool {
        const BUILTINS: [&str; 9] = [
            ".", "cd", "conda", "export", "module", "set", "source", "ulimit", "unset",
        ];
        let first = self.text.split_whitespace().next().unwrap_or_default();
        let is_assignment = || self.text.split_whitespace().all(|word| word.contains('='));
        BUILTINS.contains(&first) || is_assignment()
    }

    /// `set -e`
    fn stops_at_failure(&self) -> bool {
        let is_flag = |word: &str| word.starts_with('-') && word.contains('e') || word == "errexit";
        let mut words = self.text.split_whitespace();
        words.next() == Some("set") && words.any(is_flag)
    }
}

/// The commands of the text, without words that only close a block.
fn commands(text: &str) -> Vec<Command<'_>> {
    let parts = PARTS.iter().flat_map(|parts| parts.captures_iter(text));
    let mut begin = 0;
    let mut operator = "";
    let mut commands = Vec::new();
    for found in parts.filter_map(|part| part.name("operator")) {
        let text = text[begin..found.start()].trim();
        commands.push(Command { operator, text });
        (begin, operator) = (found.end(), found.as_str());
    }
    let text = text[begin..].trim();
    commands.push(Command { operator, text });
    const CLOSING: [&str; 6] = ["", "done", "fi", "esac", "}", ")"];
    commands.retain(|command| !CLOSING.contains(&command.text) && !command.text.starts_with('#'));
    commands
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hides_the_status_of_a_program() {
        let table = [
            ("python3 t.py", None),
            ("export A=1; python3 t.py", None),
            ("cd x\nA=1 python3 t.py\n", None),
            ("python3 t.py;", None),
            ("mkdir -p logs; python3 t.py", None),
            ("export A=1; train", None),
            ("python3 t.py && date", None),
            ("python3 -c 'a; b | c' 2>&1", None),
            ("python3 t.py \"a;b\" &>log", None),
            ("set -e; python3 t.py; date", None),
            ("set -euo pipefail; python3 t.py | tee log; date", None),
            ("set -o pipefail; python3 t.py | tee log", None),
            ("exec python3 t.py; date", None),
            ("python3 t.py; status=$?; date; exit $status", None),
            ("for i in 1; do python3 t.py; done", None),
            ("python3 t.py # a; b", None),
            ("python3 t.py; date", Some(1)),
            ("python3 t.py\ndate\n", Some(1)),
            ("train; date", Some(1)),
            ("python3 t.py || true", Some(1)),
            ("set -e; python3 t.py || true", Some(1)),
            ("python3 t.py & wait", Some(1)),
            ("python3 t.py 2>&1 | tee log", Some(0)),
            ("set -e; python3 t.py | tee log", Some(0)),
            ("set -o pipefail; python3 t.py | tee log; date", Some(1)),
            ("python3 t.py; python3 u.py && date", Some(2)),
        ];
        for (text, hiding) in table {
            assert_eq!(hiding_commands(text), hiding, "{text}");
        }
    }
}
