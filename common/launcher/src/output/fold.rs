//! Decides which lines a terminal omits, because they hide the informative ones. Records and logs
//! have all lines.

use evidence::syntax::EXTENSION_MODULES;

/// Whether a terminal omits a line: stderr of a process that is being ended, C++ frames below an
/// exception of torch or DGL, and Python's list of imported modules.
pub fn is_folded(line: &[u8], is_stderr: bool, while_ending: bool) -> bool {
    let text = String::from_utf8_lossy(line);
    (is_stderr && while_ending) || is_frame(&text) || text.starts_with(EXTENSION_MODULES)
}

/// Whether a line is a C++ frame: `frame #3: c10::Error::Error(...) + 0x3e (0x7f in libc10.so)` of
/// torch, or `  [bt] (3) libdgl.so(…)` of DGL.
fn is_frame(text: &str) -> bool {
    let text = text.trim_start();
    let number = text
        .strip_prefix("frame #")
        .or_else(|| text.strip_prefix("[bt] ("));
    number.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// The informative ones of a process's last lines, without empty ones at either end.
pub fn telling(lines: &[String]) -> Vec<&str> {
    let is_empty = |line: &&str| line.trim().is_empty();
    let shown = lines.iter().map(String::as_str);
    let shown = shown.filter(|line| !is_folded(line.as_bytes(), false, false));
    let mut shown: Vec<&str> = shown.skip_while(is_empty).collect();
    while shown.pop_if(|line| is_empty(&&**line)).is_some() {}
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hides_the_rest_is_folded() {
        let table = [
            ("epoch 3 loss 0.5", false, false, false),
            ("checkpoint saved", false, true, false),
            ("Fatal Python error: Aborted", true, true, true),
            ("Fatal Python error: Aborted", true, false, false),
            (
                "frame #3: c10::Error::Error() + 0x3e (0x7f in libc10.so)",
                true,
                false,
                true,
            ),
            ("  [bt] (3) /opt/libdgl.so(+0x1)", true, false, true),
            ("frame # of the film", false, false, false),
            ("Extension modules: numpy, torch", true, false, true),
        ];
        for (line, is_stderr, while_ending, folded) in table {
            assert_eq!(
                is_folded(line.as_bytes(), is_stderr, while_ending),
                folded,
                "{line}"
            );
        }
    }

    #[test]
    fn frames_and_empty_ends_are_left_out_of_the_last_lines() {
        let lines = [
            "",
            "RuntimeError: CUDA error",
            "frame #0: x + 1 (0x2 in y)",
            "",
        ]
        .map(str::to_owned);
        assert_eq!(telling(&lines), ["RuntimeError: CUDA error"]);
        assert_eq!(telling(&[]), [""; 0]);
    }
}
