//! The Python environment of a job on this host: a venv, or what conda made. No activation script
//! is run.

use crate::command;
use nix::unistd::{AccessFlags, access};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use wire::probe::{Environment, EnvironmentFailure, Python};

/// `conda info --base` starts a Python; if that takes longer, it hangs.
const CONDA_LIMIT: Duration = Duration::from_secs(20);

/// Finds the environment that is asked for; `None` if a command was named instead.
pub fn find(python: &Python) -> Result<Option<Environment>, EnvironmentFailure> {
    let prefix = match python {
        Python::Command(_) => return Ok(None),
        Python::Venv(folder) => venv(folder)?,
        Python::Conda(name) if name.contains('/') || name == "~" => conda_folder(name)?,
        Python::Conda(name) => conda_named(name)?,
    };
    let interpreters = ["python3", "python"].map(|name| prefix.join("bin").join(name));
    let Some(interpreter) = interpreters.iter().find(|file| is_executable(file)) else {
        return Err(EnvironmentFailure::NoInterpreter {
            prefix: text(&prefix),
        });
    };
    let conda_env = matches!(python, Python::Conda(_)).then(|| name_in_conda(&prefix));
    Ok(Some(Environment {
        prefix: text(&prefix),
        interpreter: text(interpreter),
        conda_env,
        path: env::var("PATH").unwrap_or_default(),
    }))
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn is_executable(file: &Path) -> bool {
    access(file, AccessFlags::X_OK).is_ok()
}

fn is_conda(folder: &Path) -> bool {
    folder.join("conda-meta").is_dir()
}

fn home() -> PathBuf {
    env::var_os("HOME").map(PathBuf::from).unwrap_or_default()
}

/// A path in which a leading `~` is this user's home.
fn at_home(path: &str) -> PathBuf {
    match path.strip_prefix('~') {
        Some("") => home(),
        Some(rest) if rest.starts_with('/') => home().join(rest.trim_start_matches('/')),
        _ => PathBuf::from(path),
    }
}

fn venv(folder: &str) -> Result<PathBuf, EnvironmentFailure> {
    let prefix = at_home(folder);
    match prefix.is_dir() {
        false => Err(EnvironmentFailure::NoSuchFolder {
            prefix: text(&prefix),
        }),
        true if is_conda(&prefix) => Err(EnvironmentFailure::IsConda {
            prefix: text(&prefix),
        }),
        true => Ok(prefix),
    }
}

fn conda_folder(folder: &str) -> Result<PathBuf, EnvironmentFailure> {
    let prefix = at_home(folder);
    match prefix.is_dir() {
        false => Err(EnvironmentFailure::NoSuchFolder {
            prefix: text(&prefix),
        }),
        true if !is_conda(&prefix) => Err(EnvironmentFailure::NotConda {
            prefix: text(&prefix),
        }),
        true => Ok(prefix),
    }
}

fn conda_named(name: &str) -> Result<PathBuf, EnvironmentFailure> {
    let roots = roots();
    if name == "base"
        && let Some(root) = roots.iter().find(|root| is_conda(root))
    {
        return Ok(root.clone());
    }
    let folders = environment_folders(&roots);
    let listed = || {
        written_down()
            .into_iter()
            .find(|prefix| prefix.file_name().is_some_and(|own| own == name) && is_conda(prefix))
    };
    let below = || {
        folders
            .iter()
            .map(|folder| folder.join(name))
            .find(|prefix| is_conda(prefix))
    };
    if name != "base"
        && let Some(prefix) = below().or_else(listed)
    {
        return Ok(prefix);
    }
    let mut looked_in: Vec<String> = folders
        .iter()
        .filter(|folder| folder.is_dir())
        .map(|folder| text(folder))
        .collect();
    let mut seen = std::collections::HashSet::new();
    looked_in.retain(|folder| seen.insert(folder.clone()));
    Err(EnvironmentFailure::NoSuchName { looked_in })
}

/// The environments that conda has noted because it made them elsewhere.
fn written_down() -> Vec<PathBuf> {
    let text = fs::read_to_string(home().join(".conda/environments.txt")).unwrap_or_default();
    text.lines()
        .filter(|line| line.starts_with('/'))
        .map(PathBuf::from)
        .collect()
}

/// The folders in which conda may be: as the login's environment tells, or where its installers put
/// it. A shell that is not a login shell usually knows nothing of conda.
fn roots() -> Vec<PathBuf> {
    let mut roots = Vec::new();
    match env::var_os("CONDA_EXE").filter(|exe| !exe.is_empty()) {
        Some(exe) => roots.extend(Path::new(&exe).ancestors().nth(2).map(Path::to_owned)),
        None => roots.extend(conda_says()),
    }
    let usual = [
        "miniconda3",
        "anaconda3",
        "miniforge3",
        "mambaforge",
        "micromamba",
        ".local/share/mamba",
    ];
    let everybodys = [
        "conda",
        "miniconda3",
        "anaconda3",
        "miniforge3",
        "mambaforge",
    ];
    let mamba = env::var_os("MAMBA_ROOT_PREFIX").map(PathBuf::from);
    let own = usual.iter().map(|name| home().join(name));
    let all = mamba
        .into_iter()
        .chain(own)
        .chain(everybodys.iter().map(|name| Path::new("/opt").join(name)));
    roots.extend(all.filter(|folder| folder.is_dir()));
    roots
}

/// The answer of `conda info --base`, if there is such a program.
fn conda_says() -> Option<PathBuf> {
    let mut conda = Command::new("conda");
    conda.args(["info", "--base"]);
    let said = command::ask(conda, CONDA_LIMIT, 64 << 10).ok()?.text();
    said.lines()
        .find(|line| line.starts_with('/'))
        .map(PathBuf::from)
}

/// The folders that hold environments, in conda's order.
fn environment_folders(roots: &[PathBuf]) -> Vec<PathBuf> {
    let listed = ["CONDA_ENVS_DIRS", "CONDA_ENVS_PATH"]
        .map(|name| env::var(name).unwrap_or_default())
        .join(":");
    let mut folders: Vec<PathBuf> = listed
        .split(':')
        .filter(|path| path.starts_with('/'))
        .map(PathBuf::from)
        .collect();
    let below = [
        ".condarc",
        ".mambarc",
        ".conda/.condarc",
        ".conda/condarc",
        ".config/conda/.condarc",
        ".config/conda/condarc",
    ];
    let of_user = below.iter().map(|name| home().join(name));
    let of_machine = ["/etc/conda/.condarc", "/etc/conda/condarc"]
        .iter()
        .map(PathBuf::from);
    let of_roots = roots.iter().map(|root| root.join(".condarc"));
    let named = env::var_os("CONDARC").map(PathBuf::from);
    for file in named
        .into_iter()
        .chain(of_user)
        .chain(of_machine)
        .chain(of_roots)
    {
        let text = fs::read_to_string(file).unwrap_or_default();
        folders.extend(folders_of_condarc(&text, &home()));
    }
    folders.extend(roots.iter().map(|root| root.join("envs")));
    folders.push(home().join(".conda/envs"));
    folders
}

/// The list `envs_dirs` of a condarc, as a block or in brackets, with `~` and `$HOME` written out.
fn folders_of_condarc(text: &str, home: &Path) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    let mut in_list = false;
    for line in text.lines() {
        let trimmed = line.trim_start();
        if let Some(value) = list_of_environments(line) {
            in_list = true;
            if let Some((_, brackets)) = value.split_once('[') {
                in_list = false;
                let inner = brackets.split(']').next().unwrap_or_default();
                folders.extend(
                    inner
                        .split(',')
                        .filter_map(|item| folder_of_item(item, home)),
                );
            }
        } else if let Some(item) = trimmed.strip_prefix('-').filter(|_| in_list) {
            folders.extend(folder_of_item(item, home));
        } else if !line.starts_with([' ', '\t', '#']) && !line.is_empty() {
            in_list = false;
        }
    }
    folders
}

/// The text behind the key, if this line has it.
fn list_of_environments(line: &str) -> Option<&str> {
    let rest = line
        .strip_prefix("envs_dirs")
        .or_else(|| line.strip_prefix("envs_path"))?;
    rest.trim_start().strip_prefix(':')
}

fn folder_of_item(item: &str, home: &Path) -> Option<PathBuf> {
    let comment = item
        .find(" #")
        .or_else(|| item.find("\t#"))
        .unwrap_or(item.len());
    let item = item[..comment].trim_matches([' ', '\t', '"', '\'', '\r']);
    let in_home = |name: &str| {
        item.strip_prefix(name)
            .filter(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    match in_home("~")
        .or_else(|| in_home("$HOME"))
        .or_else(|| in_home("${HOME}"))
    {
        Some(rest) => Some(home.join(rest.trim_start_matches('/'))),
        None => item.starts_with('/').then(|| PathBuf::from(item)),
    }
}

/// The name of an environment in conda: `base`, the name of a folder in an `envs`, or else its
/// path.
fn name_in_conda(prefix: &Path) -> String {
    if prefix.join("condabin").is_dir() {
        return "base".to_owned();
    }
    match (
        prefix.parent().and_then(Path::file_name),
        prefix.file_name(),
    ) {
        (Some(parent), Some(name)) if parent == "envs" => name.to_string_lossy().into_owned(),
        _ => text(prefix),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_condarc() {
        let table: [(&str, &[&str]); 7] = [
            (
                "channels:\n  - x\nenvs_dirs: # mine\n  - \"/d  1\"\n  - /else # its\n",
                &["/d  1", "/else"],
            ),
            (
                "envs_dirs: [/else, ~/d2]\nother: [/no]\n",
                &["/else", "/h/d2"],
            ),
            (
                "envs_path:\n- $HOME/d3\n- ${HOME}\n- $HOMES/x\n",
                &["/h/d3", "/h"],
            ),
            ("envs_dirs:\n  - relative\nothers:\n  - /no\n", &[]),
            (
                "envs_dirs:\n# a comment\n  - /a\n\n  - /b\r\n",
                &["/a", "/b"],
            ),
            ("envs_dirs_x:\n  - /no\n", &[]),
            ("", &[]),
        ];
        for (text, expected) in table {
            let expected: Vec<PathBuf> = expected.iter().map(PathBuf::from).collect();
            assert_eq!(
                folders_of_condarc(text, Path::new("/h")),
                expected,
                "{text}"
            );
        }
    }
}
