//! Names of C++ functions as people write them.

use cpp_demangle::{BorrowedSymbol, DemangleOptions};
use std::fmt::{self, Write};

/// A name is shown up to here. What a host says may stand for one of any length.
const MAX_NAME: usize = 160;

/// A frame `_ZN4gloo3runEv (libtorch_cpu.so)` as `gloo::run (libtorch_cpu.so)`; any other as it is.
pub fn named(frame: &str) -> String {
    let (name, file) = frame
        .rfind(" (")
        .map_or((frame, ""), |at| frame.split_at(at));
    let Ok(symbol) = BorrowedSymbol::new(name.as_bytes()) else {
        return frame.to_owned();
    };
    let mut short = Short::default();
    let options = DemangleOptions::new().no_params().no_return_type();
    match symbol.structured_demangle(&mut short, &options) {
        Ok(()) => short.text + file,
        // it is longer than is shown
        Err(_) if short.is_full => format!("{}…{file}", short.text),
        Err(_) => frame.to_owned(),
    }
}

/// Takes as much as is shown.
#[derive(Default)]
struct Short {
    text: String,
    is_full: bool,
}

impl Write for Short {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut room = MAX_NAME - self.text.len();
        if text.len() <= room {
            self.text += text;
            return Ok(());
        }
        while !text.is_char_boundary(room) {
            room -= 1;
        }
        self.text += &text[..room];
        self.is_full = true;
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpp_functions_are_named_as_in_their_source() {
        let table = [
            (
                "_ZN4gloo9transport3tcp4Pair4readEv (libtorch_cpu.so)",
                "gloo::transport::tcp::Pair::read (libtorch_cpu.so)",
            ),
            (
                "_ZNSt6thread4joinEv (libstdc++.so.6)",
                "std::thread::join (libstdc++.so.6)",
            ),
            ("_Z3fooi", "foo"),
            ("futex_wait (libc.so.6)", "futex_wait (libc.so.6)"),
            ("_Zwrong (x.so)", "_Zwrong (x.so)"),
            ("? (x.so)", "? (x.so)"),
            ("", ""),
        ];
        for (frame, expected) in table {
            assert_eq!(named(frame), expected, "{frame}");
        }
    }

    #[test]
    fn a_name_that_stands_for_a_long_one_is_cut() {
        // each part is twice the one before
        let mut name = String::from("_Z1fI1aE");
        name.insert_str(6, &"St4pairI1aS_E".repeat(12));
        let long = format!("_ZN{}1fEv (x.so)", "9abcdefghi".repeat(40));
        let short = named(&long);
        assert!(short.starts_with("abcdefghi::abcdefghi"), "{short}");
        assert!(short.ends_with("… (x.so)") && short.len() < 200, "{short}");
        assert!(named(&name).len() <= name.len().max(MAX_NAME));
    }
}
