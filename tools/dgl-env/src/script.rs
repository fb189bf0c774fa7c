//! Finds the script of a Python command, and reads its arguments as Python's argparse does.

/// The last value of an option, and the option as written: `--ip_config X`, `--ip-config=X`.
pub fn option<'a>(args: &'a [String], wanted: &str) -> Option<(&'a str, &'a str)> {
    let is_wanted = |word: &str| {
        word.strip_prefix("--")
            .is_some_and(|name| name.replace('-', "_") == wanted)
    };
    let mut found = None;
    for (index, word) in args.iter().enumerate() {
        match word.split_once('=') {
            Some((name, value)) if is_wanted(name) => found = Some((name, value)),
            None if is_wanted(word) => {
                found = args.get(index + 1).map(|value| (&word[..], &value[..]));
            }
            _ => {}
        }
    }
    found
}

/// Finds `python3 SCRIPT` after any wrapper (`numactl -N0`, `env A=B`, `conda run -n e`). Returns
/// the index of the script, or of the module after `-m`.
pub fn script_index(words: &[String]) -> Option<usize> {
    let text = |index: usize| words.get(index).map(String::as_str);
    let script_of = |python: usize| {
        let options = words[python + 1..].iter();
        let behind = python + options.take_while(|word| *word == "-u").count();
        match (text(behind + 1)?, text(behind + 2)) {
            ("-m", Some(module)) if !module.starts_with('-') => Some(behind + 2),
            (option, _) if option.starts_with('-') => None,
            // the environment of `conda run -n python3 python3 train.py`
            (script, _) if is_interpreter(script) => None,
            _ => Some(behind + 1),
        }
    };
    let mut interpreters = (0..words.len()).filter(|index| is_interpreter(&words[*index]));
    interpreters.find_map(script_of)
}

pub fn is_version(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.')
}

/// `python`, `python3`, `/opt/env/bin/python3.11`, `python3.13t`, `python3-dbg`; not an option or
/// an assignment.
pub fn is_interpreter(word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or_default();
    let version = name
        .strip_prefix("python")
        .map(|rest| rest.trim_end_matches("-dbg").trim_end_matches(['d', 't']));
    !word.starts_with('-') && !word.contains('=') && version.is_some_and(is_version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_of_an_option_counts() {
        let table = [
            ("--ip_config a", Some(("--ip_config", "a"))),
            ("--ip-config=a", Some(("--ip-config", "a"))),
            (
                "--ip_config a --x --ip-config b",
                Some(("--ip-config", "b")),
            ),
            ("--ip_config", None),
            ("--ip_configuration a", None),
            ("ip_config a", None),
        ];
        for (line, expected) in table {
            let args: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(option(&args, "ip_config"), expected, "{line}");
        }
    }
}
