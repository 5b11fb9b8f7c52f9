//! Rust text with comments, strings and characters blanked out, line for line: enough to count braces and find words.

/// Every character inside a comment, string or character literal becomes a space; line ends stay.
pub fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut position = 0;
    while position < bytes.len() {
        let length = match literal_length(&bytes[position..], out.last().copied()) {
            0 => {
                out.push(bytes[position]);
                position += 1;
                continue;
            }
            length => length.min(bytes.len() - position),
        };
        let hidden = &bytes[position..position + length];
        out.extend(hidden.iter().map(|byte| if *byte == b'\n' { b'\n' } else { b' ' }));
        position += length;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// What stands in strings and characters, one a line, without what stands in comments.
pub fn literals(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut said, mut before, mut position) = (Vec::new(), None, 0);
    while position < bytes.len() {
        let length = literal_length(&bytes[position..], before).clamp(0, bytes.len() - position);
        if length > 0 && bytes[position] != b'/' {
            said.extend_from_slice(&bytes[position..position + length]);
            said.push(b'\n');
        }
        before = Some(if length == 0 { bytes[position] } else { b' ' });
        position += length.max(1);
    }
    String::from_utf8_lossy(&said).into_owned()
}

/// The length of the comment or literal that starts here; 0 if none does.
fn literal_length(rest: &[u8], before: Option<u8>) -> usize {
    let follows_word = before.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    match rest {
        [b'/', b'/', ..] => rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()),
        [b'/', b'*', ..] => block_comment_length(rest),
        [b'"', ..] => string_length(rest),
        [b'b' | b'c', b'"', ..] if !follows_word => 1 + string_length(&rest[1..]),
        [b'r', b'"' | b'#', ..] if !follows_word => raw_string_length(rest, 1),
        [b'b' | b'c', b'r', b'"' | b'#', ..] if !follows_word => raw_string_length(rest, 2),
        [b'\'', b'\\', ..] => 2 + rest[2..].iter().skip(1).position(|byte| *byte == b'\'').map_or(1, |end| end + 2),
        [b'\'', ..] => character_length(rest),
        _ => 0,
    }
}

fn block_comment_length(rest: &[u8]) -> usize {
    let (mut depth, mut position) = (0, 0);
    while position < rest.len() {
        match &rest[position..] {
            [b'/', b'*', ..] => (depth, position) = (depth + 1, position + 2),
            [b'*', b'/', ..] if depth == 1 => return position + 2,
            [b'*', b'/', ..] => (depth, position) = (depth - 1, position + 2),
            _ => position += 1,
        }
    }
    rest.len()
}

fn string_length(rest: &[u8]) -> usize {
    let mut position = 1;
    while position < rest.len() {
        match rest[position] {
            b'\\' => position += 2,
            b'"' => return position + 1,
            _ => position += 1,
        }
    }
    rest.len()
}

/// `r#"..."#`; the same letters before a raw identifier are no string.
fn raw_string_length(rest: &[u8], prefix: usize) -> usize {
    let hashes = rest[prefix..].iter().take_while(|byte| **byte == b'#').count();
    if rest.get(prefix + hashes) != Some(&b'"') {
        return 0;
    }
    let end: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    let body = prefix + hashes + 1;
    let found = rest[body..].windows(end.len()).position(|window| window == end);
    found.map_or(rest.len(), |start| body + start + end.len())
}

/// A character literal of one character; a lifetime is none.
fn character_length(rest: &[u8]) -> usize {
    let text = String::from_utf8_lossy(&rest[1..rest.len().min(6)]).into_owned();
    match text.chars().next() {
        Some(character) if rest.get(1 + character.len_utf8()) == Some(&b'\'') => 2 + character.len_utf8(),
        _ => 0,
    }
}
