//! The Python environment of a job on this host: a venv or a conda environment. No activation
//! script is run.

use host::command;
use host::home::at_home;
use nix::unistd::{AccessFlags, access};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use wire::Failure;
use wire::probe::Python;

/// `conda info --base` starts a Python.
const CONDA_LIMIT: Duration = Duration::from_secs(20);

pub struct Environment {
    pub prefix: String,
    pub interpreter: String,
    /// `None` for a venv.
    pub conda_env: Option<String>,
}

/// `None` if a command was named instead of an environment.
pub fn find(python: &Python) -> Result<Option<Environment>, Failure> {
    let prefix = match python {
        Python::Command(_) => return Ok(None),
        Python::Venv(folder) => given_folder(folder, false)?,
        Python::Conda(name) if name.contains('/') || name == "~" => given_folder(name, true)?,
        Python::Conda(name) => conda_named(name)?,
    };
    let interpreters = ["bin/python3", "bin/python"].map(|name| prefix.join(name));
    let is_executable = |file: &&PathBuf| access(*file, AccessFlags::X_OK).is_ok();
    let Some(interpreter) = interpreters.iter().find(is_executable) else {
        return Err(Failure::new(format!("no bin/python3 in {}", text(&prefix))));
    };
    let conda_env = matches!(python, Python::Conda(_)).then(|| name_in_conda(&prefix));
    Ok(Some(Environment {
        prefix: text(&prefix),
        interpreter: text(interpreter),
        conda_env,
    }))
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn is_conda(folder: &Path) -> bool {
    folder.join("conda-meta").is_dir()
}

fn given_folder(folder: &str, of_conda: bool) -> Result<PathBuf, Failure> {
    let prefix = at_home(folder);
    let shown = text(&prefix);
    let problem = match (prefix.is_dir(), is_conda(&prefix)) {
        (false, _) => format!("no such directory: {shown}"),
        (true, true) if !of_conda => format!("{shown} is a conda environment"),
        (true, false) if of_conda => {
            format!("{shown} is not a conda environment: it has no conda-meta")
        }
        (true, _) => return Ok(prefix),
    };
    Err(Failure::new(problem))
}

fn conda_named(name: &str) -> Result<PathBuf, Failure> {
    let mut roots = roots();
    let folders = environment_folders(&roots);
    // conda keeps a list of environments in other directories
    let noted = fs::read_to_string(at_home("~/.conda/environments.txt")).unwrap_or_default();
    let noted = noted.lines().map(PathBuf::from);
    let noted = noted.filter(|prefix| prefix.file_name().is_some_and(|last| last == name));
    let found = match name {
        "base" => roots.drain(..).find(|root| is_conda(root)),
        _ => folders
            .iter()
            .map(|folder| folder.join(name))
            .chain(noted)
            .find(|prefix| is_conda(prefix)),
    };
    found.ok_or_else(|| {
        let mut searched = Vec::new();
        for folder in folders.iter().filter(|folder| folder.is_dir()) {
            if !searched.contains(&text(folder)) {
                searched.push(text(folder));
            }
        }
        let searched = if searched.is_empty() {
            "the usual directories of conda".to_owned()
        } else {
            searched.join(", ")
        };
        Failure::new(format!("no conda environment {name} in {searched}"))
    })
}

/// Where conda may be: the directories of the login's environment, and those of its installers,
/// because a shell that is not a login shell usually does not set conda's variables.
fn roots() -> Vec<PathBuf> {
    let conda = match env::var_os("CONDA_EXE").filter(|exe| !exe.is_empty()) {
        Some(exe) => Path::new(&exe).ancestors().nth(2).map(Path::to_owned),
        None => conda_base(),
    };
    let mamba = env::var_os("MAMBA_ROOT_PREFIX").map(PathBuf::from);
    let usual = [
        "~/miniconda3",
        "~/anaconda3",
        "~/miniforge3",
        "~/mambaforge",
        "~/micromamba",
        "~/.local/share/mamba",
        "/opt/conda",
        "/opt/miniconda3",
        "/opt/anaconda3",
        "/opt/miniforge3",
        "/opt/mambaforge",
    ];
    let folders = conda.into_iter().chain(mamba).chain(usual.map(at_home));
    folders.filter(|folder| folder.is_dir()).collect()
}

/// `None` if there is no such program.
fn conda_base() -> Option<PathBuf> {
    let mut conda = Command::new("conda");
    conda.args(["info", "--base"]);
    let answer = command::ask(conda, CONDA_LIMIT, 64 << 10, || false)
        .ok()?
        .text();
    answer
        .lines()
        .find(|line| line.starts_with('/'))
        .map(PathBuf::from)
}

/// The directories that contain environments, in conda's order.
fn environment_folders(roots: &[PathBuf]) -> Vec<PathBuf> {
    let listed =
        ["CONDA_ENVS_DIRS", "CONDA_ENVS_PATH"].map(|name| env::var_os(name).unwrap_or_default());
    let mut folders: Vec<PathBuf> = listed
        .iter()
        .flat_map(env::split_paths)
        .filter(|path| path.is_absolute())
        .collect();
    let usual = [
        "~/.condarc",
        "~/.mambarc",
        "~/.conda/.condarc",
        "~/.conda/condarc",
        "~/.config/conda/.condarc",
        "~/.config/conda/condarc",
        "/etc/conda/.condarc",
        "/etc/conda/condarc",
    ];
    let named = env::var_os("CONDARC").map(PathBuf::from);
    let of_roots = roots.iter().map(|root| root.join(".condarc"));
    for file in named.into_iter().chain(usual.map(at_home)).chain(of_roots) {
        let text = fs::read_to_string(file).unwrap_or_default();
        folders.extend(folders_of_condarc(&text).iter().map(at_home));
    }
    folders.extend(roots.iter().map(|root| root.join("envs")));
    folders.push(at_home("~/.conda/envs"));
    folders
}

/// The absolute paths in the list `envs_dirs` of a condarc, as a block or in brackets; `~` is the
/// home. environments.txt would not do: it only lists environments that this user has made, and not
/// those in a directory that a lab shares. Asking conda would take a second on each host, and
/// micromamba is often not in PATH.
fn folders_of_condarc(text: &str) -> Vec<String> {
    let mut folders = Vec::new();
    let mut in_list = false;
    for line in text.lines() {
        let key = ["envs_dirs", "envs_path"]
            .iter()
            .find_map(|key| line.strip_prefix(key)?.trim_start().strip_prefix(':'));
        let items = match (key, line.trim_start().strip_prefix('-')) {
            (Some(items), _) => items,
            (None, Some(item)) if in_list => item,
            _ => {
                in_list &= line.is_empty() || line.starts_with([' ', '\t', '#']);
                continue;
            }
        };
        in_list = true;
        let items = items.split(" #").next().unwrap_or_default();
        for item in items.split(['[', ',', ']']) {
            let path = item.trim().trim_matches(['"', '\'']);
            let home = ["~", "$HOME", "${HOME}"]
                .iter()
                .find_map(|home| path.strip_prefix(home))
                .filter(|rest| rest.is_empty() || rest.starts_with('/'));
            match home {
                Some(below) => folders.push(format!("~{below}")),
                None if path.starts_with('/') => folders.push(path.to_owned()),
                None => {}
            }
        }
    }
    folders
}

/// `base`, the name of a directory in an `envs`, or else the path.
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
                &["/else", "~/d2"],
            ),
            (
                "envs_path:\n- $HOME/d3\n- ${HOME}\n- $HOMES/x\n",
                &["~/d3", "~"],
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
            assert_eq!(folders_of_condarc(text), expected, "{text}");
        }
    }
}
