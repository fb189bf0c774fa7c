//! What a Python reports about itself: its version, and which dgl and torch it would import.

use crate::shell::{self, ASK_LIMIT, Invocation};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use wire::Text;
use wire::preflight::Module;

/// The question, which is in a variable because csh takes no line end within quotes.
const QUESTION: &str = include_str!("python_facts.py");
/// The variable that holds the question.
const QUESTION_VARIABLE: &str = "DGL_TOOLS_QUESTION";
/// The variable with the script that the Python will run.
const SCRIPT_VARIABLE: &str = "DGL_TOOLS_SCRIPT";
/// The argument of `-c` for a Python that is to answer. It contains no quote of the shells.
pub const ASK: &str = "import os; exec(os.environ[\"DGL_TOOLS_QUESTION\"])";
/// How many characters are shown of the line that tells why a Python does not run.
const WHY_SHOWN: usize = 300;

/// The facts about an interpreter; the versions are those of the packages that it would import.
#[derive(Debug, Default, PartialEq)]
pub struct PythonFacts {
    pub version: Option<String>,
    /// The path of the interpreter itself.
    pub executable: Option<String>,
    pub dgl: Option<String>,
    pub torch: Option<String>,
    /// Which of dgl and torch the script imports whenever it runs, if that is known.
    pub imports: Option<Vec<Module>>,
}

/// How a shell of the user's asks an interpreter, after the setup.
pub fn asked_in_shell(
    interpreter: &OsStr,
    env: &[(String, Text)],
    setup: Option<&str>,
) -> Invocation {
    let interpreter = shell::quoted(interpreter);
    let text = [b"exec ", &*interpreter, b" -c '", ASK.as_bytes(), b"'"].concat();
    shell::in_shell(env, setup, &text)
}

/// Asks an interpreter that runs in a directory; tells why it does not run otherwise. With the
/// script that it will run, empty if that is not known, it searches for modules where the script
/// will.
pub fn ask(
    mut invocation: Invocation,
    folder: &Path,
    script: Option<&Text>,
) -> Result<PythonFacts, String> {
    let script = script.map(|script| (SCRIPT_VARIABLE.to_owned(), script.clone()));
    let question = (QUESTION_VARIABLE.to_owned(), QUESTION.into());
    invocation.env.extend(script.into_iter().chain([question]));
    let answer = invocation.ask(folder).map_err(|error| error.to_string())?;
    match answer.status {
        Some(_) => parse(&answer.text()),
        None => Err(format!("no answer within {} s", ASK_LIMIT.as_secs())),
    }
}

/// Parses an answer. A setup may write too: only marked lines count, and the last other line tells
/// why there are none.
fn parse(answer: &str) -> Result<PythonFacts, String> {
    let mut facts = BTreeMap::new();
    let mut last = "";
    for line in answer.lines() {
        if let Some(fact) = line.strip_prefix("dgl-tools-fact ") {
            let (name, value) = fact.split_once(' ').unwrap_or((fact, ""));
            facts.insert(name, value);
        } else if !line.trim().is_empty() {
            last = line;
        }
    }
    if facts.is_empty() {
        return Err(last.chars().take(WHY_SHOWN).collect());
    }
    let fact = |name| {
        let value = facts.get(name).copied();
        value
            .filter(|value: &&str| !value.is_empty())
            .map(str::to_owned)
    };
    let modules = |names: &&str| {
        let is_named = |module: &Module| names.split(' ').any(|name| name == module.name());
        Module::ALL.into_iter().filter(is_named).collect()
    };
    Ok(PythonFacts {
        version: fact("python"),
        executable: fact("executable"),
        dgl: fact("dgl"),
        torch: fact("torch"),
        imports: facts.get("imports").map(modules),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_python_tells_facts_or_why_it_does_not_run() {
        let whole = "Loading dgl/1.0\ndgl-tools-fact python 3.10.1\ndgl-tools-fact executable \
            /v/bin/python 3\n\
                     dgl-tools-fact dgl 2.1.0\ndgl-tools-fact imports dgl torch\nbye\n";
        let facts = parse(whole).unwrap();
        assert_eq!(facts.version.as_deref(), Some("3.10.1"));
        assert_eq!(facts.executable.as_deref(), Some("/v/bin/python 3"));
        assert_eq!((facts.dgl.as_deref(), facts.torch), (Some("2.1.0"), None));
        assert_eq!(facts.imports, Some(vec![Module::Dgl, Module::Torch]));
        assert_eq!(
            parse("hello\nsh: python9: not found\n \n").unwrap_err(),
            "sh: python9: not found"
        );
        assert_eq!(parse("").unwrap_err(), "");
    }
}
