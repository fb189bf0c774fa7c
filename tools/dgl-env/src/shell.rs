//! Splits shell text into words, as far as possible without running it: where each ends, and which
//! are literal.

/// A simple command: words between two operators, redirections left out.
pub type Simple = Vec<Word>;

/// A word of shell text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// The text without quotes; each expansion is replaced by a `$`.
    pub text: String,
    /// Whether no part of it is an expansion or a pattern.
    pub literal: bool,
    /// The position of its beginning: of a byte in shell text, of a word among words.
    pub start: usize,
    /// The position of what follows it: of a byte in shell text, of a word among words.
    pub end: usize,
}

/// How a simple command is joined to what follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joint {
    /// `|` or `|&`
    Pipe,
    /// `&&`
    And,
    /// `||`
    Or,
    /// `&`
    Background,
    /// `;` or a new line
    Next,
    /// A parenthesis is opened or closed.
    Parenthesis,
    /// The text ends.
    End,
}

/// The simple commands of a text; `None` if they cannot be recognised: a quote is not closed, or
/// there is a here-document.
pub fn commands(text: &str) -> Option<Vec<Simple>> {
    Some(
        list(text)?
            .into_iter()
            .map(|(command, _)| command)
            .collect(),
    )
}

/// The simple commands of a text like [`commands`], each with what follows it.
pub fn list(text: &str) -> Option<Vec<(Simple, Joint)>> {
    let mut reader = ShellReader {
        bytes: text.as_bytes(),
        position: 0,
    };
    let (mut list, mut command) = (Vec::new(), Simple::new());
    // the word behind < or > names a file, it is not an argument
    let mut target = false;
    while let Some(byte) = reader.peek() {
        match byte {
            b' ' | b'\t' => reader.position += 1,
            // a line that is continued
            b'\\' if reader.rest().starts_with(b"\\\n") => reader.position += 2,
            b'#' => reader.skip_comment(),
            b'&' if reader.rest().starts_with(b"&>") => reader.position += 1,
            b'\n' | b';' | b'&' | b'|' | b'(' | b')' => {
                let link = reader.link();
                target = false;
                if !command.is_empty() {
                    list.push((std::mem::take(&mut command), link));
                } else if link == Joint::Parenthesis {
                    // of several that follow a command this one makes it uncertain
                    if let Some((_, last)) = list.last_mut() {
                        *last = link;
                    }
                }
            }
            b'<' | b'>' => {
                if reader.rest().starts_with(b"<<") && !reader.rest().starts_with(b"<<<") {
                    return None;
                }
                while reader.peek().is_some_and(|byte| b"<>&|".contains(&byte)) {
                    reader.position += 1;
                }
                target = true;
            }
            _ => {
                let word = reader.word()?;
                let descriptor = reader.peek().is_some_and(|byte| b"<>".contains(&byte))
                    && word.text.bytes().all(|byte| byte.is_ascii_digit());
                if !target && !descriptor {
                    command.push(word);
                }
                target = false;
            }
        }
    }
    if !command.is_empty() {
        list.push((command, Joint::End));
    } else if let Some((_, last)) = list.last_mut()
        && *last == Joint::Next
    {
        *last = Joint::End;
    }
    Some(list)
}

struct ShellReader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl ShellReader<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.position).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.position += 1;
        Some(byte)
    }

    fn rest(&self) -> &[u8] {
        self.bytes.get(self.position..).unwrap_or_default()
    }

    /// The operator that stands here.
    fn link(&mut self) -> Joint {
        let operators: [(&[u8], Joint); 8] = [
            (b"&&", Joint::And),
            (b"||", Joint::Or),
            (b"|&", Joint::Pipe),
            (b"|", Joint::Pipe),
            (b"&", Joint::Background),
            (b"(", Joint::Parenthesis),
            (b")", Joint::Parenthesis),
            (b"", Joint::Next),
        ];
        let rest = self.rest();
        let mut found = operators.iter();
        let found = found.find(|(operator, _)| rest.starts_with(operator));
        let (operator, link) = found.unwrap_or(&operators[7]);
        self.position += operator.len().max(1);
        *link
    }

    fn skip_comment(&mut self) {
        while self.peek().is_some_and(|byte| byte != b'\n') {
            self.position += 1;
        }
    }

    fn word(&mut self) -> Option<Word> {
        let (mut text, mut literal, start) = (Vec::new(), true, self.position);
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b'(' | b')' | b'<' | b'>' => break,
                b'\'' => {
                    self.position += 1;
                    loop {
                        match self.next()? {
                            b'\'' => break,
                            other => text.push(other),
                        }
                    }
                }
                b'"' => {
                    self.position += 1;
                    self.double_quoted(&mut text, &mut literal)?;
                }
                b'\\' => {
                    self.position += 1;
                    match self.next()? {
                        b'\n' => {}
                        other => text.push(other),
                    }
                }
                b'$' | b'`' => self.expansion(&mut text, &mut literal)?,
                _ => {
                    literal &= !b"*?[~{".contains(&byte);
                    text.push(byte);
                    self.position += 1;
                }
            }
        }
        // bytes were taken from a text at ASCII positions only
        Some(Word {
            text: String::from_utf8(text).ok()?,
            literal,
            start,
            end: self.position,
        })
    }

    fn double_quoted(&mut self, text: &mut Vec<u8>, literal: &mut bool) -> Option<()> {
        loop {
            match self.peek()? {
                b'"' => {
                    self.position += 1;
                    return Some(());
                }
                b'$' | b'`' => self.expansion(text, literal)?,
                b'\\' => {
                    self.position += 1;
                    match self.next()? {
                        b'\n' => {}
                        other if b"$`\"\\".contains(&other) => text.push(other),
                        other => text.extend([b'\\', other]),
                    }
                }
                other => {
                    text.push(other);
                    self.position += 1;
                }
            }
        }
    }

    /// Skips `$NAME`, `${…}`, `$(…)`, `$((…))` or `` `…` `` and puts a `$` in its place.
    fn expansion(&mut self, text: &mut Vec<u8>, literal: &mut bool) -> Option<()> {
        *literal = false;
        text.push(b'$');
        let closing = match (self.next()?, self.peek()) {
            (b'`', _) => b'`',
            (_, Some(b'(')) => b')',
            (_, Some(b'{')) => b'}',
            _ => {
                while self
                    .peek()
                    .is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
                {
                    self.position += 1;
                }
                return Some(());
            }
        };
        let opening = if closing == b'`' { None } else { self.next() };
        let mut depth = 1u32;
        loop {
            let byte = self.next()?;
            match byte {
                b'\\' => drop(self.next()?),
                b'\'' if closing == b')' => while self.next()? != b'\'' {},
                b'"' if closing == b')' => while self.next()? != b'"' {},
                _ if byte == closing => depth -= 1,
                _ if Some(byte) == opening => depth += 1,
                _ => {}
            }
            if depth == 0 {
                return Some(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Option<String> {
        let word = |word: &Word| {
            if word.literal {
                word.text.clone()
            } else {
                format!("<{}>", word.text)
            }
        };
        let line = |command: &Simple| command.iter().map(word).collect::<Vec<_>>().join(",");
        Some(
            commands(text)?
                .iter()
                .map(line)
                .collect::<Vec<_>>()
                .join(" | "),
        )
    }

    #[test]
    fn words_as_a_shell_reads_them() {
        let table = [
            ("a b  c", Some("a,b,c")),
            ("a 'b  c' \"d'e\" f\\ g h'i'j", Some("a,b  c,d'e,f g,hij")),
            (
                "cd x && a; b | c & (d)\ne",
                Some("cd,x | a | b | c | d | e"),
            ),
            ("a >f 2>&1 <g >>h b &>i", Some("a,b")),
            ("a # no b\nc#d", Some("a | c#d")),
            (
                "$HOME/bin/a \"$B\" ${C:-x y} $(d 'e)' f) `g h` $((1<<2))z",
                Some("<$/bin/a>,<$>,<$>,<$>,<$>,<$z>"),
            ),
            ("x=$(a \"b)\" $(c)) d", Some("<x=$>,d")),
            ("a *.x ~/b \\$c \"\\$d\\e\"", Some("a,<*.x>,<~/b>,$c,$d\\e")),
            ("ä 'ö ü'", Some("ä,ö ü")),
            ("a \\\n  b\\\nc \\\n", Some("a,bc")),
            ("a 'b", None),
            ("a \"b", None),
            ("a $(b", None),
            ("a `b", None),
            ("a \\", None),
            ("a <<E\nb\nE", None),
            ("a <<<b c", Some("a,c")),
            ("", Some("")),
        ];
        for (text, words) in table {
            assert_eq!(shown(text).as_deref(), words, "{text}");
        }
    }

    #[test]
    fn any_text_is_read_to_its_end_or_not_at_all() {
        let alphabet: Vec<char> = " '\"\\$(){`;#<\nä".chars().collect();
        let mut texts = vec![String::new()];
        for _ in 0..4 {
            texts = texts
                .iter()
                .flat_map(|text| alphabet.iter().map(move |c| format!("{text}{c}")))
                .collect();
            for text in texts
                .iter()
                .filter_map(|text| Some((text, commands(text)?)))
            {
                let ends: Vec<usize> = text.1.iter().flatten().map(|word| word.end).collect();
                assert!(
                    ends.is_sorted() && ends.iter().all(|end| text.0.is_char_boundary(*end)),
                    "{:?}",
                    text.0
                );
            }
        }
    }

    #[test]
    fn sh_itself_reads_the_same_words() {
        let pieces = [" ", "'", "\"", "\\", "#", "a", "\\\n"];
        let mut texts = vec![String::new()];
        let (mut script, mut expected) = (String::new(), String::new());
        for _ in 0..5 {
            texts = texts
                .iter()
                .flat_map(|text| pieces.map(|piece| format!("{text}{piece}")))
                .collect();
            for (text, commands) in texts
                .iter()
                .filter_map(|text| Some((text, commands(text)?)))
            {
                // another command begins on the next line
                if commands.len() > 1 || (text.contains('#') && text.contains('\n')) {
                    continue;
                }
                script += &format!("set -- {text}\nprintf '<%s>' \"$@\"; echo .\n");
                let words: Vec<String> = commands
                    .iter()
                    .flatten()
                    .map(|word| format!("<{}>", word.text))
                    .collect();
                // printf writes its format once where there is no word
                expected += &format!(
                    "{}.\n",
                    if words.is_empty() {
                        "<>".to_owned()
                    } else {
                        words.concat()
                    }
                );
            }
        }
        let mut sh = std::process::Command::new("sh");
        sh.stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped());
        let mut sh = sh.spawn().unwrap();
        let mut stdin = sh.stdin.take().unwrap();
        let write =
            std::thread::spawn(move || std::io::Write::write_all(&mut stdin, script.as_bytes()));
        let out = String::from_utf8(sh.wait_with_output().unwrap().stdout).unwrap();
        write.join().unwrap().unwrap();
        assert!(expected.lines().count() > 5000);
        let differs = out
            .lines()
            .zip(expected.lines())
            .find(|(sh, ours)| sh != ours);
        assert!(out == expected, "{differs:?}");
    }

    #[test]
    fn a_word_ends_behind_its_last_byte() {
        let text = "cd 'x y' && python3 t.py";
        let found = commands(text).unwrap();
        assert_eq!(&text[..found[1][0].end], "cd 'x y' && python3");
    }
}
