//! Finds arguments with the dashes, quotation marks and spaces of word processors and web pages.

use record::error::Fault;
use record::term;

const NO_BREAK_SPACE: char = '\u{a0}';

/// How much of an argument a message shows.
const SHOWN_CHARS: usize = 60;

fn is_dash(c: char) -> bool {
    matches!(c, '\u{2010}'..='\u{2015}' | '\u{2212}')
}

fn is_quote(c: char) -> bool {
    matches!(c, '\u{2018}'..='\u{201f}')
}

/// The fault of an argument with a typographic dash or quotation mark, or a no-break space, at its
/// beginning or wherever it can only stand for an option, a quotation mark or a blank. Elsewhere
/// they are part of a value.
pub fn fault(location: &str, argument: &str) -> Option<Fault> {
    let (mut option, mut value) = ("", argument);
    if argument.starts_with(|c| c == '-' || is_dash(c)) {
        (option, value) = argument.split_once('=').unwrap_or((argument, ""));
    }
    let straight = term::cut(&straight(option, argument), SHOWN_CHARS);
    if let Some(dash) = option.chars().find(|c| is_dash(*c)) {
        let mut fix = format!("type {straight}");
        if option.chars().all(|c| c == '-' || is_dash(c)) {
            fix = "type - or --".to_owned();
        }
        return Some(wrong(location, argument, dash, "is not a hyphen").fix(fix));
    }
    let mut chars = value.chars().take(1).chain(option.chars());
    if let Some(quote) = chars.find(|c| is_quote(*c)) {
        let problem = "is a curly quote, which the shell does not treat as a quote";
        let fault = wrong(location, argument, quote, problem);
        return Some(fault.fix(format!("type straight quotation marks: {straight}")));
    }
    let has_space = option.contains(NO_BREAK_SPACE)
        || argument.starts_with(NO_BREAK_SPACE)
        || argument.ends_with(NO_BREAK_SPACE)
        || joins_two_arguments(value);
    has_space.then(|| space_fault(location, argument))
}

/// For a word that names a program: there a no-break space is always wrong.
pub fn command_fault(location: &str, word: &str) -> Option<Fault> {
    let has_space = word.contains(NO_BREAK_SPACE);
    fault(location, word).or_else(|| has_space.then(|| space_fault(location, word)))
}

/// Whether an option or a quoted word follows a no-break space. An ordinary blank shows that the
/// argument was quoted, as text.
fn joins_two_arguments(value: &str) -> bool {
    let begins_an_argument = |rest: &str| {
        let mut chars = rest.chars();
        match chars.next() {
            Some('-') => chars.next().is_some_and(|c| c == '-' || c.is_alphabetic()),
            first => matches!(first, Some('"' | '\'')),
        }
    };
    let mut parts = value.split(NO_BREAK_SPACE).skip(1);
    !value.contains(' ') && parts.any(begins_an_argument)
}

fn wrong(location: &str, argument: &str, c: char, problem: &str) -> Fault {
    let argument = term::cut(argument, SHOWN_CHARS).replace(NO_BREAK_SPACE, "\\u{a0}");
    let problem = format!("{argument}: {c} (U+{:04X}) {problem}", u32::from(c));
    Fault::usage(location, problem)
}

fn space_fault(location: &str, argument: &str) -> Fault {
    let shown = term::cut(argument, SHOWN_CHARS).replace(NO_BREAK_SPACE, "\\u{a0}");
    let problem = format!("{shown} contains a no-break space (U+00A0)");
    let blanks = term::cut(&argument.replace(NO_BREAK_SPACE, " "), SHOWN_CHARS);
    Fault::usage(location, problem).fix(format!("type an ordinary space: {}", blanks.trim()))
}

/// The intended argument. Options of one letter and negative numbers have one hyphen.
fn straight(option: &str, argument: &str) -> String {
    let is_mark = |c: char| c == '-' || is_dash(c);
    let name = option.trim_start_matches(is_mark);
    let is_short = name.chars().count() == 1 || name.starts_with(|c: char| c.is_ascii_digit());
    let hyphens = if option.is_empty() {
        ""
    } else if is_short {
        "-"
    } else {
        "--"
    };
    let plain = |c: char| match c {
        c if is_dash(c) => '-',
        '\u{2018}'..='\u{201b}' => '\'',
        c if is_quote(c) => '"',
        NO_BREAK_SPACE => ' ',
        c => c,
    };
    let value = argument[option.len()..].chars();
    let name = name.chars().map(plain);
    let value = value.map(|c| if is_dash(c) { c } else { plain(c) });
    hyphens.chars().chain(name).chain(value).collect()
}
