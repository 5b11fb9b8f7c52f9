//! `cargo xtask bench library`: one file by four ways in turn, on the same image file: through the library and the daemon, directly on
//! the unmounted pool, through the mount, and the image itself past the kernel's cache, which is what there is to be had.
//!
//! Every way writes its file and makes it durable; then the pool is mounted anew (or opened anew), and it is read in order and
//! here and there. The image was written once before, so no way pays for its making. Who is first changes every round.

use std::path::{Path, PathBuf};

use super::BenchArguments;
use super::cases::{CaseBar, Cases};
use super::redundancy::{images_word, memory_if_wanted};
use super::report::save_value;
use crate::cleanup::Place;
use crate::command::{MINUTE, capture, quoted, run as run_command, shell};
use crate::error::Result;
use crate::subject::{Binaries, Kind, Shape, Subject, cargo};

const RAW: &str = "raw";
const DIRECT: &str = "direct";
const LIBRARY: &str = "library";
const MOUNT: &str = "mount";
const METRICS: &[&str] = &["write", "read", "random 1", "random 16"];
const FILE_MEBIBYTES: u64 = 1024;
const IMAGE_MEBIBYTES: u64 = 4096;

const fn bar(what: &'static str, metric: &'static str, beside: &'static str, least: f64) -> CaseBar {
    CaseBar { what, metric, case: LIBRARY, beside, ratio_min: least }
}

const BARS: &[CaseBar] = &[
    bar("library / mount: write", "write", MOUNT, 1.0),
    bar("library / mount: read", "read", MOUNT, 1.0),
    bar("library / raw: write", "write", RAW, 0.9),
    bar("library / raw: read", "read", RAW, 0.9),
    CaseBar { what: "mount / raw: write", metric: "write", case: MOUNT, beside: RAW, ratio_min: 0.9 },
    CaseBar { what: "mount / raw: read", metric: "read", case: MOUNT, beside: RAW, ratio_min: 0.9 },
    bar("library / mount: 4 KiB here and there, one at a time", "random 1", MOUNT, 1.0),
    bar("library / mount: 4 KiB here and there, 16 at a time", "random 16", MOUNT, 1.0),
];

struct Bench<'a> {
    place: &'a Place,
    binaries: &'a Binaries,
    arguments: &'a BenchArguments,
    rates: PathBuf,
    image: PathBuf,
}

pub fn run(root: &Path, arguments: &BenchArguments) -> Result<()> {
    let (place, binaries) = (Place::new(root)?, Binaries::build(root, false)?);
    let words = ["build", "--release", "--quiet", "-p", "libstere", "--example", "rates"];
    run_command(&mut cargo(root, &words), 10 * MINUTE)?;
    let rates = binaries.bench.with_file_name("examples").join("rates");
    let _memory = memory_if_wanted(&place, arguments.images)?;
    let image = place.directory.join("image");
    let fill = format!("dd if=/dev/zero of={} bs=1M count={IMAGE_MEBIBYTES} conv=fsync status=none", quoted(&image));
    capture(&mut shell(&fill), 5 * MINUTE)?;
    let bench = Bench { place: &place, binaries: &binaries, arguments, rates, image };
    let mut cases = Cases::default();
    for round in 0..arguments.runs {
        let mut ways = [LIBRARY, DIRECT, MOUNT, RAW];
        let first = round % ways.len();
        ways.rotate_left(first);
        for way in ways {
            println!("round {} of {}: {way}", round + 1, arguments.runs);
            bench.turn(way, &mut cases)?;
        }
    }
    cases.print(BARS);
    let mut value = cases.to_json(BARS);
    value["images"] = images_word(arguments.images).into();
    println!("written to {}", save_value(root, arguments, value)?.display());
    Ok(())
}

impl Bench<'_> {
    fn turn(&self, way: &'static str, cases: &mut Cases) -> Result<()> {
        if way == RAW {
            self.rates(way, "write", &self.image, cases)?;
            return self.rates(way, "read", &self.image, cases);
        }
        let shape = Shape {
            options: self.arguments.options.clone(),
            device_size: format!("{IMAGE_MEBIBYTES}M"),
            images: vec![self.image.clone()],
            ..Shape::default()
        };
        let subject = Subject::new(Kind::Stere, &self.place.directory, &shape, self.binaries)?;
        if way == DIRECT {
            subject.unmount()?;
            self.rates(way, "write", Path::new("/file"), cases)?;
            self.rates(way, "read", Path::new("/file"), cases)?;
            return subject.mount();
        }
        let path = subject.mount_point.join("file");
        self.rates(way, "write", &path, cases)?;
        subject.unmount()?;
        subject.mount()?;
        self.rates(way, "read", &path, cases)
    }

    fn rates(&self, way: &'static str, work: &str, path: &Path, cases: &mut Cases) -> Result<()> {
        let mebibytes = FILE_MEBIBYTES / self.arguments.divisor();
        let (rates, path, image) = (quoted(&self.rates), quoted(path), quoted(&self.image));
        let line = format!("{rates} {way} {work} {path} {mebibytes} {image}");
        let printed = capture(&mut shell(&line), 5 * MINUTE)?;
        cases.add_printed(way, printed.trim(), METRICS);
        Ok(())
    }
}
