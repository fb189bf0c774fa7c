//! The last lines that a process wrote, which explain its failure.

use std::collections::VecDeque;

/// How many lines are kept.
const KEPT: usize = 20;

/// The last lines of one process.
#[derive(Clone, Debug, Default)]
pub struct LastLines(VecDeque<Vec<u8>>);

impl LastLines {
    /// The process wrote these lines; the last of them may still be without its end.
    pub fn push(&mut self, text: &[u8]) {
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        let new: Vec<&[u8]> = text.rsplit(|byte| *byte == b'\n').take(KEPT).collect();
        for line in new.into_iter().rev() {
            if self.0.len() == KEPT {
                self.0.pop_front();
            }
            self.0.push_back(line.to_vec());
        }
    }

    /// The lines as text, the oldest first.
    pub fn text(&self) -> Vec<String> {
        self.0
            .iter()
            .map(|line| String::from_utf8_lossy(line).into_owned())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_twenty_lines_are_kept() {
        let mut lines = LastLines::default();
        (0..30).for_each(|n| lines.push(format!("line {n}\n").as_bytes()));
        lines.push(b"one more\nits very last");
        assert_eq!(lines.text().len(), 20);
        assert_eq!(lines.text()[17..], ["line 29", "one more", "its very last"]);
    }

    #[test]
    fn of_a_large_piece_only_its_end_is_kept() {
        let mut lines = LastLines::default();
        lines.push(
            (0..1000)
                .map(|n| format!("{n}\n"))
                .collect::<String>()
                .as_bytes(),
        );
        assert_eq!(lines.text()[..2], ["980", "981"]);
    }
}
