//! Asks a Python for its version, and for the versions of dgl and torch that it would import.

use agent_supervise::shell::{self, ASK_LIMIT, Invocation};
use record::quote::quoted;
use record::term;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;
use wire::Text;
use wire::preflight::Module;

/// Passed in a variable, because csh allows no newline within quotes.
const QUESTION: &str = include_str!("python_facts.py");
const QUESTION_VARIABLE: &str = "DGL_TOOLS_QUESTION";
/// The script that the Python will run.
const SCRIPT_VARIABLE: &str = "DGL_TOOLS_SCRIPT";
/// The argument of `-c` with which a Python answers. Before anything but `sys`, which is built in,
/// is imported, it removes the working directory from the path, where others may have put modules.
/// Python's own option for that, `-I`, would ignore PYTHONPATH, too. The text contains no quotes
/// that a shell would need to escape.
pub const ASK: &str = "import sys; sys.path[:] = [path for path in sys.path if path]; \
    import os; exec(os.environ[\"DGL_TOOLS_QUESTION\"])";
/// How many characters of the line are shown that explains why a Python does not run.
const WHY_SHOWN: usize = 300;

/// The facts about a Python; it would import dgl and torch in these versions.
#[derive(Debug, Default, PartialEq)]
pub struct PythonFacts {
    pub version: Option<String>,
    pub executable: Option<String>,
    /// Whether it reported which modules it finds. A Python older than 3.4 cannot.
    pub knows_modules: bool,
    pub dgl: Option<String>,
    pub torch: Option<String>,
    /// What the script imports whenever it runs, if known.
    pub imports: Option<Vec<Module>>,
}

/// Shell text that asks an interpreter after the setup.
pub fn asked_in_shell(
    interpreter: &OsStr,
    env: &[(String, Text)],
    setup: Option<&str>,
) -> Invocation {
    let interpreter = quoted(interpreter.as_bytes());
    let text = [b"exec ", &*interpreter, b" -c '", ASK.as_bytes(), b"'"].concat();
    shell::in_shell(env, setup, &text)
}

/// The error is why the interpreter does not run. With the script that it will run (empty if
/// unknown), it searches for modules where the script would.
pub fn ask(
    mut invocation: Invocation,
    folder: &Path,
    script: Option<&Text>,
    until: Instant,
) -> Result<PythonFacts, String> {
    let script = script.map(|script| (SCRIPT_VARIABLE.to_owned(), script.clone()));
    let question = (QUESTION_VARIABLE.to_owned(), QUESTION.into());
    invocation.env.extend(script.into_iter().chain([question]));
    let answer = invocation
        .ask(folder, until)
        .map_err(|error| error.to_string())?;
    match answer.status {
        Some(_) => parse(&answer.text()),
        None => Err(format!("no answer within {} s", ASK_LIMIT.as_secs())),
    }
}

/// Only marked lines count, because the setup may write, too; if there are none, the last line is
/// the reason.
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
        return Err(term::cut(last, WHY_SHOWN));
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
        knows_modules: facts.contains_key("modules"),
        dgl: fact("dgl"),
        torch: fact("torch"),
        imports: facts.get("imports").map(modules),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Others may write to the working directory, and users have scripts with names of Python's
    /// own modules there.
    #[test]
    fn a_python_runs_no_file_of_the_working_directory() {
        let folder = std::env::temp_dir().join(format!("dgl-tools-python-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let names = [
            "os", "ast", "platform", "types", "re", "email", "csv", "json", "zipfile",
        ];
        for name in names {
            let text = "open('was-run', 'w').close(); raise ImportError('not this one')";
            std::fs::write(folder.join(format!("{name}.py")), text).unwrap();
        }
        // a module that is asked for is found beside the script, and is not run either
        let script = folder.join("train.py");
        std::fs::write(&script, "import dgl").unwrap();
        std::fs::write(folder.join("dgl.py"), "open('was-run', 'w')").unwrap();
        let script = Text::from(&*script);
        for script in [None, Some(&script), Some(&Text::from(""))] {
            let invocation = Invocation {
                words: ["python3", "-c", ASK].map(Into::into).to_vec(),
                env: Vec::new(),
            };
            let facts = ask(invocation, &folder, script, Instant::now() + ASK_LIMIT).unwrap();
            assert!(facts.version.is_some(), "{facts:?}");
            assert_eq!(facts.dgl.is_some(), script.is_some(), "{facts:?}");
        }
        assert!(!folder.join("was-run").exists());
        std::fs::remove_dir_all(folder).unwrap();
    }

    /// The versions of this machine, from 2.7 on.
    #[test]
    fn a_python_of_any_version_runs() {
        let home = std::env::var_os("HOME").unwrap_or_default();
        let root = std::env::var_os("PYENV_ROOT");
        let root = root.map_or(Path::new(&home).join(".pyenv"), Into::into);
        let versions = std::fs::read_dir(root.join("versions"));
        let versions = versions.into_iter().flatten().flatten();
        let mut pythons: Vec<_> = versions
            .map(|version| version.path().join("bin/python").into_os_string())
            .collect();
        pythons.push("python3".into());
        let folder = std::env::temp_dir().join(format!("dgl-tools-pythons-{}", std::process::id()));
        // a folder of that name is no module
        std::fs::create_dir_all(folder.join("torch")).unwrap();
        std::fs::write(folder.join("dgl.py"), "").unwrap();
        for python in pythons {
            let invocation = Invocation {
                words: vec![python.clone(), "-c".into(), ASK.into()],
                env: Vec::new(),
            };
            let until = Instant::now() + ASK_LIMIT;
            let facts = ask(invocation, &folder, Some(&Text::from("")), until).unwrap();
            let is_old = facts.version.as_ref().unwrap().starts_with("2.");
            assert!(facts.executable.is_some(), "{python:?}: {facts:?}");
            assert_eq!(facts.knows_modules, !is_old, "{python:?}: {facts:?}");
            assert_eq!(facts.dgl.is_some(), !is_old, "{python:?}: {facts:?}");
            let is_folder = facts.torch.as_deref() == Some("unknown");
            assert!(!is_folder, "{python:?}: {facts:?}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

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
