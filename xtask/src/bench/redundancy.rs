//! `cargo xtask bench redundancy`: what parity costs and what a lost device costs, with the real binary on five devices.
//!
//! 5+0 (striping) and 4+1 write the same; 4+1 is read with all devices and after one is lost, and is written with one lost
//! from the start. A loss is a mount without the device's image. Images lie on one disk, which then gives all devices
//! together what it gives one, or in memory (`--images memory`), where the processors are the limit. There they keep their
//! pages from turn to turn (`Arena`), because a virtual machine pays for each page that it touches anew. Who is first
//! changes every round, and a turn that does not count comes before all others.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use super::cases::{CaseBar, Cases};
use super::report::save_value;
use super::{BenchArguments, Images};
use crate::cleanup::{Guard, Place};
use crate::command::{MINUTE, capture, quoted, shell};
use crate::error::Result;
use crate::subject::{Binaries, Kind, Shape, Subject};

const STRIPED: &str = "5+0";
const HEALTHY: &str = "4+1";
const DEGRADED: &str = "4+1, one lost";
/// The device that is lost; not the first, which would be too special.
const LOST: usize = 2;
const DEVICE_MEBIBYTES: u64 = 1024;

const fn bar(
    what: &'static str,
    metric: &'static str,
    case: &'static str,
    beside: &'static str,
    least: f64,
) -> CaseBar {
    CaseBar { what, metric, case, beside, ratio_min: least }
}

const BARS: &[CaseBar] = &[
    bar("4+1 write / 5+0 write", "seqwrite", HEALTHY, STRIPED, 0.9),
    bar("one lost / healthy: sequential read", "seqread_cold", DEGRADED, HEALTHY, 0.8),
    bar("one lost / healthy: 4 KiB random read, depth 16", "randread4k_qd16", DEGRADED, HEALTHY, 0.5),
    bar("one lost / healthy: 4 KiB random read, depth 1", "randread4k_qd1", DEGRADED, HEALTHY, 0.5),
    bar("one lost / healthy: sequential write", "seqwrite", DEGRADED, HEALTHY, 0.95),
    bar("one lost / healthy: 4 KiB random write", "randwrite4k", DEGRADED, HEALTHY, 0.95),
    bar("one lost / healthy: 4 KiB random write, fsync/32", "randwrite4k_fs32", DEGRADED, HEALTHY, 0.95),
];

/// When the device is lost.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loss {
    Never,
    /// Before the first cold phase.
    BeforeReads,
    /// Before anything is written.
    FromTheStart,
}

/// A case, the file system it is taken on, when it loses a device, and which of its figures count.
type Turn = (&'static str, Kind, Loss, &'static [&'static str]);

/// Workloads, and the cases that take turns at them.
const WORKLOADS: &[(&str, &[Turn])] = &[
    (
        "sequential",
        &[
            (STRIPED, Kind::StereStripe5, Loss::Never, &["seqwrite", "seqread_cold"]),
            (HEALTHY, Kind::StereParity5, Loss::Never, &["seqwrite", "seqread_cold"]),
            (DEGRADED, Kind::StereParity5, Loss::BeforeReads, &["seqread_cold"]),
            (DEGRADED, Kind::StereParity5, Loss::FromTheStart, &["seqwrite"]),
        ],
    ),
    (
        "random-read",
        &[
            (HEALTHY, Kind::StereParity5, Loss::Never, &["randread4k_qd16", "randread4k_qd1"]),
            (DEGRADED, Kind::StereParity5, Loss::BeforeReads, &["randread4k_qd16", "randread4k_qd1"]),
        ],
    ),
    (
        "random-write",
        &[
            (HEALTHY, Kind::StereParity5, Loss::Never, &["randwrite4k", "randwrite4k_fs32"]),
            (DEGRADED, Kind::StereParity5, Loss::FromTheStart, &["randwrite4k", "randwrite4k_fs32"]),
        ],
    ),
];

pub fn run(root: &Path, arguments: &BenchArguments) -> Result<()> {
    let (place, binaries) = (Place::new(root)?, Binaries::build(root, false)?);
    let _memory = memory_if_wanted(&place, arguments.images)?;
    let arena = Arena::new(&place, arguments.images, 5, DEVICE_MEBIBYTES)?;
    let bench = Bench { place: &place, binaries: &binaries, arguments, arena: &arena };
    bench.turn("sequential", Kind::StereParity5, Loss::Never)?;
    let mut cases = Cases::default();
    let begun = Instant::now();
    for round in 0..arguments.runs {
        let spent = begun.elapsed();
        if round > 0 && spent + spent / round as u32 > MINUTE * arguments.minutes {
            println!("{round} rounds, more would take too long (--minutes)");
            break;
        }
        for (workload, turns) in WORKLOADS.iter().filter(|(workload, _)| arguments.wants(workload)) {
            for at in 0..turns.len() {
                let (case, kind, loss, metrics) = turns[(at + round) % turns.len()];
                println!("round {} of {}: {workload} on {case}", round + 1, arguments.runs);
                cases.add_printed(case, &bench.turn(workload, kind, loss)?, metrics);
            }
        }
    }
    cases.print(BARS);
    let mut value = cases.to_json(BARS);
    value["images"] = images_word(arguments.images).into();
    println!("written to {}", save_value(root, arguments, value)?.display());
    Ok(())
}

/// Image files whose pages are in memory already, for subjects to use one after the other.
pub struct Arena {
    pub images: Vec<PathBuf>,
}

impl Arena {
    /// None at all for images on a disk.
    pub fn new(place: &Place, images: Images, count: usize, mebibytes: u64) -> Result<Self> {
        let count = if images == Images::Memory { count } else { 0 };
        let images: Vec<PathBuf> =
            (0..count).map(|number| place.directory.join(format!("arena-{number}.img"))).collect();
        for image in &images {
            let line = format!("dd if=/dev/zero of={} bs=1M count={mebibytes} status=none", quoted(image));
            capture(&mut shell(&line), 5 * MINUTE)?;
        }
        Ok(Arena { images })
    }
}

pub fn images_word(images: Images) -> &'static str {
    match images {
        Images::Disk => "files on one disk",
        Images::Memory => "files in memory (tmpfs)",
    }
}

/// Images of this place lie in memory from now on, if that is wanted.
pub fn memory_if_wanted(place: &Place, images: Images) -> Result<Option<Guard>> {
    if images == Images::Disk {
        return Ok(None);
    }
    let point = quoted(&place.directory);
    capture(&mut shell(&format!("mount -t tmpfs -o size=75%,huge=always tmpfs {point}")), MINUTE)?;
    Ok(Some(Guard::new(format!("umount {point}"))))
}

struct Bench<'a> {
    place: &'a Place,
    binaries: &'a Binaries,
    arguments: &'a BenchArguments,
    arena: &'a Arena,
}

impl Bench<'_> {
    /// What the workload driver printed.
    fn turn(&self, workload: &str, kind: Kind, loss: Loss) -> Result<String> {
        let Bench { place, binaries, arguments, arena } = self;
        let shape = Shape {
            options: arguments.options.clone(),
            device_size: format!("{DEVICE_MEBIBYTES}M"),
            images: arena.images.clone(),
            ..Shape::default()
        };
        let subject = Subject::new(kind, &place.directory, &shape, binaries)?;
        let mut command = Command::new(&binaries.bench);
        command.args(["run", workload]).arg(&subject.mount_point).arg("--scratch").arg(&place.directory);
        let hook = match loss {
            Loss::Never => subject.remount_hook(),
            Loss::BeforeReads | Loss::FromTheStart => subject.loss_hook(LOST)?,
        };
        if loss == Loss::FromTheStart {
            capture(&mut shell(&hook), 5 * MINUTE)?;
        }
        command.args(["--cold-hook", &hook]);
        command.args(["--divide", &arguments.divisor().to_string()]);
        capture(&mut command, 30 * MINUTE)
    }
}
