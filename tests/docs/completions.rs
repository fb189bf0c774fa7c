//! Completions, in the shells themselves: every flag of every tool, and the values of those that
//! have a few.

use std::process::Command;
use support::{commands, flags_of_help, root, scratch, sh, write};

/// A shell that is not here cannot be asked.
fn is_here(shell: &str) -> bool {
    let here = Command::new(shell).arg("--version").output().is_ok();
    if !here {
        support::skipped!("no {shell} here");
    }
    here
}

/// `ask` is shell text that prints what a command line is completed to.
fn holds_every_flag(shell: &str, ask: impl Fn(&str, &str) -> String) {
    let folder = scratch();
    write(&folder, "some.file", "");
    let completed = |tool: &str, line: &str| {
        let got = sh(&folder, &ask(tool, line));
        got.out
            .lines()
            .map(|line| line.split('\t').next().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    for tool in commands() {
        let mut flags = completed(tool, "--");
        flags.sort();
        assert_eq!(
            flags,
            flags_of_help(tool)
                .iter()
                .map(|flag| format!("--{flag}"))
                .collect::<Vec<_>>(),
            "{shell} {tool}"
        );
    }
    assert_eq!(completed("dgl-env", "--bind c"), ["cores"], "{shell}");
    assert_eq!(
        completed("ipconf-check", "a/\\[b some"),
        ["some.file"],
        "{shell}"
    );
}

#[test]
fn slow_bash() {
    if is_here("bash") {
        // with no match of its own, bash takes file names: `complete -o default`
        let script = "source '{root}/completions/dgl-tools.bash'; COMP_WORDS=({tool} {line}); \
            COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
            [[ $(complete -p {tool}) == \"complete -o default -F _dgl_tools {tool}\" ]] && \
                _dgl_tools {tool}
            ((${#COMPREPLY[@]})) || mapfile -t COMPREPLY < <(compgen -f -- \
                \"${COMP_WORDS[COMP_CWORD]}\")
            printf '%s\\n' \"${COMPREPLY[@]}\"";
        let script = script.replace("{root}", &root().display().to_string());
        holds_every_flag("bash", |tool, line| {
            let script = script
                .replace("{tool}", tool)
                .replace("{line}", line)
                .replace('\'', "'\\''");
            format!("bash -c '{script}'")
        });
    }
}

#[test]
fn slow_fish() {
    if is_here("fish") {
        holds_every_flag("fish", |tool, line| {
            let file = root().join("completions/dgl-tools.fish");
            // it is installed under the name of each tool
            format!(
                "cp '{}' {tool}.fish; fish --private -c 'source ./{tool}.fish; complete -C \
                 \"{tool} {line}\"'",
                file.display()
            )
        });
    }
}

#[test]
fn zsh() {
    if is_here("zsh") {
        let folder = scratch();
        // keys are typed into a zsh; Ctrl-T prints the line as it stands
        let script = r#"zmodload zsh/zpty; zpty z zsh -f -i
            zpty -w z "fpath=('$1' \$fpath); autoload -Uz compinit; compinit -u -d dump; \
                 show() { print \"<\$BUFFER>\" }; zle -N show; bindkey '^T' show"
            zpty -w z 'print rea''dy'; zpty -r -m z seen $'*\nready*'
            shift
            for line; do
                zpty -n -w z "$line"$'\t\C-T'; zpty -r -m z seen '*<*>*'
                print -r -- ${${seen##*<}%%>*}; zpty -n -w z $'\C-U'
            done"#;
        write(&folder, "type.zsh", script);
        let mut table: Vec<(String, String)> = commands()
            .map(|tool| (format!("{tool} --versi"), format!("{tool} --version ")))
            .collect();
        table.push((
            "part-push --format h".to_owned(),
            "part-push --format human ".to_owned(),
        ));
        table.push((
            "ipconf-check a/b type.z".to_owned(),
            "ipconf-check a/b type.zsh ".to_owned(),
        ));
        let typed: Vec<String> = table
            .iter()
            .map(|(typed, _)| format!("'{typed}'"))
            .collect();
        let got = sh(
            &folder,
            &format!(
                "zsh -f type.zsh '{}/completions' {}",
                root().display(),
                typed.join(" ")
            ),
        );
        assert_eq!(
            got.out.lines().collect::<Vec<_>>(),
            table
                .iter()
                .map(|(_, line)| line.as_str())
                .collect::<Vec<_>>(),
            "{}",
            got.err
        );
    }
}
