use super::*;

fn sealed(text: &str) -> Vec<u8> {
    let mut line = text.as_bytes().to_vec();
    seal_catalogue_line(&mut line);
    line
}

#[test]
fn a_line_tells_its_checksum_in_its_last_field() {
    let line = sealed(r#"{"inode":12,"path":"/a/b"}"#);
    assert_eq!(line, br#"{"inode":12,"path":"/a/b","crc32c":"0e540553"}"#);
}

#[test]
fn no_damage_of_a_line_goes_unnoticed() {
    let (one, other) = (sealed(r#"{"inode":12,"path":"/a/b"}"#), sealed(r#"{"inode":13}"#));
    let catalogue = [one.as_slice(), &other, b""].join(&b'\n');
    let lines: Result<Vec<&[u8]>, DecodeError> = catalogue_lines(&catalogue).collect();
    assert_eq!(lines, Ok(vec![one.as_slice(), &other]));
    for at in 0..one.len() {
        for bit in 0..8 {
            let mut damaged = catalogue.clone();
            damaged[at] ^= 1 << bit;
            let lines: Vec<Result<&[u8], DecodeError>> = catalogue_lines(&damaged).collect();
            assert!(lines.iter().any(Result::is_err), "byte {at}, bit {bit}");
            assert_eq!(lines.last(), Some(&Ok(other.as_slice())), "byte {at}, bit {bit}: the other line is right");
        }
    }
    for end in 1..one.len() {
        let cut = [&other, &b"\n"[..], &one[..end]].concat();
        assert!(catalogue_lines(&cut).nth(1).is_some_and(|line| line.is_err()), "cut at {end}");
    }
}

/// As they were written before there were checksums.
#[test]
fn lines_without_checksums_are_believed_where_none_has_one() {
    let catalogue = b"{\"inode\":12}\n{\"inode\":13}\n";
    assert_eq!(catalogue_lines(catalogue).filter(Result::is_ok).count(), 2);
    let mixed = [&catalogue[..], &sealed("{\"inode\":14}")].concat();
    let right: Vec<bool> = catalogue_lines(&mixed).map(|line| line.is_ok()).collect();
    assert_eq!(right, [false, false, true]);
}
