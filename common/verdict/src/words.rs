//! Compares messages with lists of words.

/// Whether a text in lower case has these words, and not only as parts of longer words. Underscores
/// end words too. A star joins parts that must all occur; where a part has `…`, its word may be
/// longer.
pub fn has(text: &str, words: &str) -> bool {
    words.split('*').all(|part| has_part(text, part))
}

pub fn has_any(text: &str, list: &[&str]) -> bool {
    list.iter().any(|words| has(text, words))
}

fn has_part(text: &str, part: &str) -> bool {
    let whole = part.trim_matches('…');
    let is_letter = |c: char| c.is_ascii_alphanumeric();
    // neither holds at `…`
    let (begins_word, ends_word) = (part.starts_with(is_letter), part.ends_with(is_letter));
    text.match_indices(whole).any(|(offset, _)| {
        let (before, after) = (&text[..offset], &text[offset + whole.len()..]);
        !(begins_word && before.ends_with(is_letter) || ends_word && after.starts_with(is_letter))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_whole() {
        for (text, words, expected) in [
            ("a broken pipe", "broken pipe", true),
            ("[errno 32] broken pipe: 'x'", "broken pipe", true),
            ("broken pipeline", "broken pipe", false),
            ("unbroken pipe", "broken pipe", false),
            ("errno 1160", "errno 116", false),
            ("unbroken, a broken pipe", "broken", true),
            ("nccl_debug", "nccl", true),
            ("ncclremoteerror", "nccl", false),
            ("ncclremoteerror", "nccl…", true),
            ("libnccl", "nccl…", false),
            ("tcpstore failed", "…store", true),
            ("tcpstores", "…store", false),
            (
                "timed out after 5 s waiting",
                "timed out after*waiting",
                true,
            ),
            ("timed out after 5 s", "timed out after*waiting", false),
            ("store->get", "store->", true),
        ] {
            assert_eq!(has(text, words), expected, "{text}: {words}");
        }
    }
}
