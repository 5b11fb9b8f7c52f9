//! Makes the archive: file sizes like a source repository's (many small, few large), text made of a few hundred words.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use crate::error::{At, BenchError};
use crate::pattern::Random;

/// The word that grep looks for; a fixed share of the files holds it once.
pub const NEEDLE: &str = "zymurgy_cistern";
const FILES_PER_NEEDLE: u64 = 50;
const TAR_BLOCK: usize = 512;
const MEAN_SIZE: u64 = 10_180;

pub struct Contents {
    pub files: u64,
    pub bytes: u64,
    pub needles: u64,
}

pub fn write(path: &Path, seed: u64, files: u64) -> Result<Contents, BenchError> {
    let mut out = BufWriter::new(File::create(path).at("create", path)?);
    let mut random = Random::new(seed ^ 0x7EE5);
    let words = make_words(&mut random);
    let mut contents = Contents { files, bytes: 0, needles: 0 };
    let mut text = Vec::new();
    for number in 0..files {
        let size = pick_size(&mut random);
        let with_needle = number % FILES_PER_NEEDLE == 0;
        fill_text(&mut random, &words, size, with_needle, &mut text);
        write_member(&mut out, &name_of(number), &text).at("write", path)?;
        contents.bytes += text.len() as u64;
        contents.needles += u64::from(with_needle);
    }
    out.write_all(&[0; 2 * TAR_BLOCK]).at("write", path)?;
    out.flush().at("write", path)?;
    Ok(contents)
}

/// Folders nest three deep, like `module-07/part-3/source`.
fn name_of(number: u64) -> String {
    let (module, part, leaf) = (number / 220, number / 40 % 6, number / 13 % 3);
    let extension = ["rs", "c", "h", "md", "toml"][(number % 5) as usize];
    match leaf {
        0 => format!("module-{module:02}/part-{part}/file-{number:05}.{extension}"),
        1 => format!("module-{module:02}/part-{part}/source/file-{number:05}.{extension}"),
        _ => format!("module-{module:02}/file-{number:05}.{extension}"),
    }
}

/// Sizes double or halve around a small median, so that a few large files hold most of the bytes.
fn pick_size(random: &mut Random) -> u64 {
    let doublings = random.below(8);
    let base = MEAN_SIZE / 32;
    let low = base << doublings;
    low / 2 + random.below(low)
}

fn make_words(random: &mut Random) -> Vec<String> {
    let letters = b"etaoinshrdlucmfwypvbgk";
    let mut word = || {
        let length = 2 + random.below(9);
        (0..length).map(|_| char::from(letters[random.below(letters.len() as u64) as usize])).collect()
    };
    (0..700).map(|_| word()).collect()
}

fn fill_text(random: &mut Random, words: &[String], size: u64, with_needle: bool, text: &mut Vec<u8>) {
    text.clear();
    if with_needle {
        text.extend_from_slice(NEEDLE.as_bytes());
        text.push(b'\n');
    }
    while (text.len() as u64) < size {
        text.extend_from_slice(words[random.below(words.len() as u64) as usize].as_bytes());
        text.push(if random.below(9) == 0 { b'\n' } else { b' ' });
    }
}

/// One member of a ustar archive; folders are made by tar on the way.
fn write_member(out: &mut impl Write, name: &str, data: &[u8]) -> std::io::Result<()> {
    assert!(name.len() < 100, "the name must fit the ustar field");
    let mut header = [0; TAR_BLOCK];
    header[..name.len()].copy_from_slice(name.as_bytes());
    put_octal(&mut header[100..108], 0o644);
    put_octal(&mut header[108..116], 0);
    put_octal(&mut header[116..124], 0);
    put_octal(&mut header[124..136], data.len() as u64);
    put_octal(&mut header[136..148], 1_700_000_000);
    header[156] = b'0';
    header[257..265].copy_from_slice(b"ustar\x0000");
    header[148..156].fill(b' ');
    let sum: u64 = header.iter().map(|byte| u64::from(*byte)).sum();
    put_octal(&mut header[148..155], sum);
    out.write_all(&header)?;
    out.write_all(data)?;
    let padding = data.len().next_multiple_of(TAR_BLOCK) - data.len();
    out.write_all(&[0; TAR_BLOCK][..padding])
}

fn put_octal(field: &mut [u8], value: u64) {
    let width = field.len() - 1;
    let text = format!("{value:0width$o}");
    assert_eq!(text.len(), width, "the value must fit its field");
    field[..width].copy_from_slice(text.as_bytes());
    field[width] = 0;
}
