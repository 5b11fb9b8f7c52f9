//! Numbers as policy spells them.

/// A plain decimal number; signs and blanks, which `parse` would take, are refused.
pub(crate) fn number(text: &str) -> Option<u8> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// The same of greater numbers.
pub(crate) fn number_of_versions(text: &str) -> Option<u32> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}
