//! Golden images: what every structure of format version 1 looks like, byte by byte. If this test fails, media written
//! by an older stere can no longer be read: raise the version of the structure instead. While a version was never
//! released, `STERE_GOLDEN_WRITE=1 cargo test -p stere-format --test all golden` writes the images anew.

use crate::samples;

use std::path::PathBuf;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden/v1").join(format!("{name}.hex"))
}

/// Sixteen bytes a line with their offset; lines of zeros are left out, the last line is the length.
fn to_hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (line, chunk) in bytes.chunks(16).enumerate() {
        if chunk.iter().all(|byte| *byte == 0) {
            continue;
        }
        text.push_str(&format!("{:06x}:", line * 16));
        chunk.iter().for_each(|byte| text.push_str(&format!(" {byte:02x}")));
        text.push('\n');
    }
    text.push_str(&format!("{:06x}\n", bytes.len()));
    text
}

fn from_hex(text: &str) -> Vec<u8> {
    let number = |digits: &str| usize::from_str_radix(digits, 16).expect("hexadecimal digits");
    let length = text.lines().last().map(number).expect("a last line");
    let mut bytes = vec![0; length];
    for (offset, line) in text.lines().filter_map(|line| line.split_once(':')) {
        for (at, byte) in line.split_whitespace().enumerate() {
            bytes[number(offset) + at] = number(byte) as u8;
        }
    }
    bytes
}

/// P-12: what is on media stays readable.
#[test]
fn every_structure_is_as_it_was() {
    let write = std::env::var_os("STERE_GOLDEN_WRITE").is_some();
    for (name, target, bytes) in samples::samples() {
        if write {
            std::fs::write(path(name), to_hex(&bytes)).expect("the image is written");
        }
        let text = std::fs::read_to_string(path(name)).unwrap_or_else(|_| panic!("no golden image of {name}"));
        let golden = from_hex(&text);
        assert_eq!(to_hex(&bytes), text, "{name} is no longer encoded as in format version 1");
        assert_eq!(samples::target(target)(&golden), Ok(()), "{name} of format version 1 is no longer decoded");
    }
}

#[test]
fn no_golden_image_is_forgotten() {
    let names: Vec<_> = samples::samples().iter().map(|(name, ..)| path(name)).collect();
    for entry in std::fs::read_dir(path("x").parent().expect("a directory")).expect("the golden images") {
        let path = entry.expect("a directory entry").path();
        assert!(names.contains(&path), "{} has no sample any more", path.display());
    }
}
