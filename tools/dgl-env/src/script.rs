//! Reads arguments as Python's argparse does.

/// The last value of an option, with the option as it was written: `--ip_config X`,
/// `--ip-config=X`.
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
