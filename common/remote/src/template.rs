//! Commands of the user's with placeholders for hosts.

use super::fault::HostFault;

/// Fills in placeholders such as `{name}`. A value becomes part of the user's shell text, so it
/// must be a plain word, or several behind commas.
pub(crate) fn fill(template: &str, values: &[(&str, String)]) -> Result<String, HostFault> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-:@,".contains(c);
    let mut text = template.to_owned();
    for (placeholder, value) in values {
        let is_used = text.contains(placeholder);
        if is_used && (!value.chars().all(is_plain) || value.starts_with('-')) {
            let fault = HostFault::unreachable(format!(
                "{placeholder} is {value:?}, which a command line should not hold"
            ));
            return Err(fault.fix("name hosts by letters, digits, dots and dashes"));
        }
        text = text.replace(placeholder, value);
    }
    Ok(text)
}
