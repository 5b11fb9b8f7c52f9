//! `cargo xtask bench checksums`: sequential write and read beside a stere that was built to compute and verify no checksums.
//!
//! The other build is the same but for one function that gives 0 (`stere-format`, feature `unchecked`), so data and metadata go
//! without. The builds take turns, and who is first changes every round. Beside the rates stands the processor time of
//! the daemon, which scatters much less.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::time::Instant;

use super::BenchArguments;
use super::cases::{CaseBar, Cases};
use super::redundancy::{Arena, images_word, memory_if_wanted};
use super::report::save_value;
use crate::cleanup::Place;
use crate::error::{At, Result, XtaskError};
use crate::subject::{Binaries, Kind, Shape, Subject, build_unchecked, processor_time_of};

const CHECKED: &str = "crc32c";
const UNCHECKED: &str = "none";
const FILE_BYTES: u64 = 2 << 30;
const DEVICE_MEBIBYTES: u64 = 4096;
const PIECE_BYTES: usize = 1 << 20;
const PIECES_UNLIKE: usize = 64;

const BARS: &[CaseBar] = &[
    CaseBar { what: "write with / without", metric: "write", case: CHECKED, beside: UNCHECKED, ratio_min: 0.98 },
    CaseBar { what: "read with / without", metric: "read", case: CHECKED, beside: UNCHECKED, ratio_min: 0.98 },
];

pub fn run(root: &Path, arguments: &BenchArguments) -> Result<()> {
    let (place, checked) = (Place::new(root)?, Binaries::build(root, false)?);
    let unchecked = Binaries { stere: build_unchecked(root)?, ..checked.clone() };
    let _memory = memory_if_wanted(&place, arguments.images)?;
    let arena = Arena::new(&place, arguments.images, 1, DEVICE_MEBIBYTES)?;
    let mut cases = Cases::default();
    // A turn that does not count: the machine's memory, clocks and caches are then as in the others.
    measure(&place, &checked, arguments, &arena, CHECKED, &mut Cases::default())?;
    for round in 0..arguments.runs {
        let mut turns = [(CHECKED, &checked), (UNCHECKED, &unchecked)];
        turns.rotate_left(round % 2);
        for (case, binaries) in turns {
            println!("round {} of {}: {case}", round + 1, arguments.runs);
            measure(&place, binaries, arguments, &arena, case, &mut cases)?;
        }
    }
    cases.print(BARS);
    let mut value = cases.to_json(BARS);
    value["images"] = images_word(arguments.images).into();
    println!("written to {}", save_value(root, arguments, value)?.display());
    Ok(())
}

fn measure(
    place: &Place,
    binaries: &Binaries,
    arguments: &BenchArguments,
    arena: &Arena,
    case: &'static str,
    cases: &mut Cases,
) -> Result<()> {
    let shape = Shape {
        options: arguments.options.clone(),
        device_size: format!("{DEVICE_MEBIBYTES}M"),
        images: arena.images.clone(),
        ..Shape::default()
    };
    let subject = Subject::new(Kind::Stere, &place.directory, &shape, binaries)?;
    let path = subject.mount_point.join("large");
    let pieces = if arguments.quick { FILE_BYTES / 8 } else { FILE_BYTES } / PIECE_BYTES as u64;
    let contents = contents();
    let mut timed = |metric: &str, work: &dyn Fn() -> Result<()>| {
        let process = subject.daemon_process()?;
        let (processor, start) = (processor_time_of(process)?, Instant::now());
        work()?;
        let (elapsed, used) = (start.elapsed(), processor_time_of(process)? - processor);
        let gibibytes = (pieces * PIECE_BYTES as u64) as f64 / f64::from(1 << 30);
        cases.add(case, metric, "GiB/s", gibibytes / elapsed.as_secs_f64());
        cases.add(case, &format!("{metric} processor"), "s/GiB", used.as_secs_f64() / gibibytes);
        Ok(())
    };
    timed("write", &|| write_file(&path, pieces, &contents))?;
    subject.unmount()?;
    subject.mount()?;
    fs::write("/proc/sys/vm/drop_caches", "3\n").at("write", Path::new("/proc/sys/vm/drop_caches"))?;
    timed("read", &|| read_file(&path, pieces, &contents))
}

/// Pieces of noise, so that nothing between here and the medium can make less of them.
fn contents() -> Vec<Vec<u8>> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    };
    (0..PIECES_UNLIKE).map(|_| (0..PIECE_BYTES / 4).flat_map(|_| next().to_le_bytes()).collect()).collect()
}

fn write_file(path: &Path, pieces: u64, contents: &[Vec<u8>]) -> Result<()> {
    let mut file = File::create(path).at("create", path)?;
    for piece in 0..pieces {
        file.write_all(&contents[piece as usize % PIECES_UNLIKE]).at("write", path)?;
    }
    file.sync_all().at("fsync", path)
}

fn read_file(path: &Path, pieces: u64, contents: &[Vec<u8>]) -> Result<()> {
    let (mut file, mut out) = (File::open(path).at("open", path)?, vec![0; PIECE_BYTES]);
    for piece in 0..pieces {
        file.read_exact(&mut out).at("read", path)?;
        if out[..64] != contents[piece as usize % PIECES_UNLIKE][..64] {
            return Err(XtaskError::found(format!("{}: piece {piece} is not as it was written", path.display())));
        }
    }
    Ok(())
}
