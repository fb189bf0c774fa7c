//! What a Python reports about itself: its version, and which dgl and torch it would import.

use wire::probe::Interpreter;

/// The question, which is in a variable because csh takes no line end within quotes.
pub const QUESTION: &str = include_str!("python_facts.py");
/// The variable that holds the question.
pub const QUESTION_VARIABLE: &str = "DGL_TOOLS_QUESTION";
/// The variable with the script that the Python will run, empty if it is not known: the Python then
/// searches for modules where the script will.
pub const SCRIPT_VARIABLE: &str = "DGL_TOOLS_SCRIPT";
/// The argument of `-c` for a Python that is to answer. It contains no quote of the shells.
pub const ASK: &str = "import os; exec(os.environ[\"DGL_TOOLS_QUESTION\"])";
/// How many characters are shown of the line that tells why a Python does not run.
const WHY_SHOWN: usize = 300;

/// An answer.
#[derive(Debug, Default, PartialEq)]
pub struct Facts {
    /// The facts about the interpreter.
    pub interpreter: Interpreter,
    /// Which of dgl and torch the script imports whenever it runs, if that is known.
    pub imports: Option<Vec<String>>,
}

/// Parses the answer. A setup may write too: only marked lines count, and the last other line tells
/// why there are none.
pub fn facts_of(said: &str) -> Result<Facts, String> {
    let mut facts = Facts::default();
    let (mut marked, mut last) = (false, "");
    for line in said.lines() {
        let Some(fact) = line.strip_prefix("dgl-tools-fact ") else {
            if !line.trim().is_empty() {
                last = line;
            }
            continue;
        };
        marked = true;
        let (name, value) = fact.split_once(' ').unwrap_or((fact, ""));
        if name == "imports" {
            facts.imports = Some(value.split_whitespace().map(str::to_owned).collect());
            continue;
        }
        let value = Some(value.to_owned()).filter(|value| !value.is_empty());
        let interpreter = &mut facts.interpreter;
        match name {
            "python" => interpreter.version = value,
            "executable" => interpreter.executable = value,
            "dgl" => interpreter.dgl = value,
            "torch" => interpreter.torch = value,
            _ => {}
        }
    }
    if marked {
        Ok(facts)
    } else {
        Err(last.chars().take(WHY_SHOWN).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_python_tells_facts_or_why_it_does_not_run() {
        let whole = "Loading dgl/1.0\ndgl-tools-fact python 3.10.1\ndgl-tools-fact executable \
            /v/bin/python 3\n\
                     dgl-tools-fact dgl 2.1.0\ndgl-tools-fact imports dgl torch\nbye\n";
        let Facts {
            interpreter,
            imports,
        } = facts_of(whole).unwrap();
        assert_eq!(interpreter.version.as_deref(), Some("3.10.1"));
        assert_eq!(interpreter.executable.as_deref(), Some("/v/bin/python 3"));
        assert_eq!(
            (interpreter.dgl.as_deref(), interpreter.torch),
            (Some("2.1.0"), None)
        );
        assert_eq!(imports, Some(vec!["dgl".to_owned(), "torch".to_owned()]));
        assert_eq!(
            facts_of("hello\nsh: python9: not found\n \n").unwrap_err(),
            "sh: python9: not found"
        );
        assert_eq!(facts_of("").unwrap_err(), "");
    }
}
