//! Graceful degradation: figures 5 and 6 of the Loris paper (2010, section 6.2.2) with the real binary.
//!
//! Three devices, 12,000 files of 32 KiB in 100 directories, unreplicated and with two copies. Files are picked at random and
//! read whole (while nothing is lost they are then written again); a device is taken away, then another one. Told is how many
//! operations succeed, and how many files are intact when each is read once. Here a loss is a mount without the device's
//! image; mounts with losses are read-only, so that nothing written meanwhile adds to what survives.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::BenchArguments;
use super::plot::{Line, Panel, draw};
use super::report::save_value;
use crate::cleanup::{Guard, Place, mount_folder};
use crate::command::{MINUTE, capture, quoted, shell};
use crate::error::{At, Result, XtaskError};
use crate::subject::Binaries;

const FILES: u64 = 12_000;
const DIRECTORIES: u64 = 100;
const FILE_BYTES: usize = 32 << 10;
const DEVICES: usize = 3;
const SAMPLE: Duration = Duration::from_millis(500);
const PHASE: Duration = Duration::from_secs(10);

/// One way of storing the files, and what the paper found: percent of files after 0, 1 and 2 losses.
struct Layout {
    title: &'static str,
    class: &'static str,
    expected: [f64; DEVICES],
}

const LAYOUTS: [Layout; 2] = [
    Layout { title: "unreplicated files", class: "scratch", expected: [100.0, 67.0, 33.0] },
    Layout { title: "two copies of each file", class: "normal", expected: [100.0, 100.0, 66.0] },
];

/// What was seen with so many devices lost.
struct Phase {
    lost_devices: usize,
    /// Seconds since the first phase began, percent of operations that succeeded.
    samples: Vec<(f64, f64)>,
    operations: u64,
    intact_percent: f64,
}

/// A pool that is mounted and unmounted here.
struct Pool<'a> {
    place: &'a Place,
    binaries: &'a Binaries,
    mount_point: PathBuf,
    _guard: Guard,
}

pub fn run(root: &Path, arguments: &BenchArguments) -> Result<()> {
    let (place, binaries) = (Place::new(root)?, Binaries::build(root, false)?);
    let files = arguments.files.unwrap_or(if arguments.quick { FILES / 8 } else { FILES });
    let (mut panels, mut rows) = (Vec::new(), Vec::new());
    for layout in LAYOUTS {
        let phases = measure(&place, &binaries, &layout, files, if arguments.quick { PHASE / 8 } else { PHASE })?;
        for (phase, expected) in phases.iter().zip(layout.expected) {
            // The paper rounds; an uneven spread of the last segment is a percent.
            let word = if (phase.intact_percent - expected).abs() <= 2.0 { "met" } else { "MISSED" };
            println!(
                "{}, {} devices lost: {:.1} % of {files} files intact (Loris: {expected:.0} %): {word}; {} operations",
                layout.title, phase.lost_devices, phase.intact_percent, phase.operations
            );
            rows.push(json!({
                "layout": layout.title, "lost_devices": phase.lost_devices, "intact_percent": phase.intact_percent,
                "loris_percent": expected, "operations": phase.operations, "met": word == "met",
                "samples": phase.samples,
            }));
        }
        panels.push(panel(&layout, &phases));
    }
    finish(root, arguments, &panels, rows)
}

fn panel(layout: &Layout, phases: &[Phase]) -> Panel {
    let lines = phases
        .iter()
        .map(|phase| Line { points: phase.samples.clone(), label: format!("{:.1} % intact", phase.intact_percent) });
    Panel { title: layout.title.into(), lines: lines.collect() }
}

fn finish(root: &Path, arguments: &BenchArguments, panels: &[Panel], rows: Vec<Value>) -> Result<()> {
    let file = save_value(root, arguments, json!({ "isolation": rows }))?;
    println!("written to {}", file.display());
    let folder = if arguments.publish { root.join("docs/performance") } else { root.join("bench/results") };
    fs::create_dir_all(&folder).at("mkdir", &folder)?;
    let picture = folder.join("isolation.svg");
    let text = draw("seconds", "operations that succeed, percent", panels);
    fs::write(&picture, text).at("write", &picture)?;
    println!("drawn in {}", picture.display());
    Ok(())
}

fn measure(
    place: &Place,
    binaries: &Binaries,
    layout: &Layout,
    files: u64,
    phase_length: Duration,
) -> Result<Vec<Phase>> {
    let (mount_point, guard) = mount_folder()?;
    let pool = Pool { place, binaries, mount_point, _guard: guard };
    let images: Vec<String> = (0..DEVICES).map(|number| format!("{},size=1G", quoted(&pool.image(number)))).collect();
    pool.stere(&format!("create {} {} --default-class {} --force", layout.class, images.join(" "), layout.class))?;
    pool.mount(layout, "defaults")?;
    make_files(&pool.mount_point, files)?;
    pool.stere(&format!("flush {} --wait", quoted(&pool.mount_point)))?;
    let (mut phases, mut seconds, mut random) = (Vec::new(), 0.0, 1);
    for lost_devices in 0..DEVICES {
        if lost_devices > 0 {
            let image = pool.image(lost_devices - 1);
            fs::rename(&image, image.with_extension("lost")).at("rename", &image)?;
            pool.mount(layout, "ro,degraded=auto,wait=0s")?;
        }
        let mut phase = work(&pool.mount_point, files, lost_devices == 0, seconds, phase_length, &mut random)?;
        seconds += phase_length.as_secs_f64();
        phase.lost_devices = lost_devices;
        phase.intact_percent = 100.0 * count_intact(&pool.mount_point, files)? as f64 / files as f64;
        phases.push(phase);
        pool.stere(&format!("umount {}", quoted(&pool.mount_point)))?;
    }
    for number in 0..DEVICES {
        let image = pool.image(number);
        drop(fs::remove_file(image.with_extension("lost")));
        drop(fs::remove_file(image));
    }
    Ok(phases)
}

impl Pool<'_> {
    fn image(&self, number: usize) -> PathBuf {
        self.place.directory.join(format!("isolation-{number}.img"))
    }

    fn stere(&self, words: &str) -> Result<String> {
        let state = quoted(&self.place.directory.join("state"));
        let line = format!("STERE_STATE={state} {} {words}", quoted(&self.binaries.stere));
        capture(&mut shell(&line), 5 * MINUTE)
    }

    fn mount(&self, layout: &Layout, options: &str) -> Result<()> {
        // Degraded mounts answer with the exit code for that.
        let words = format!("mount {} {} -o {options} || [ $? = 3 ]", layout.class, quoted(&self.mount_point));
        self.stere(&words).map(drop)
    }
}

fn path_of(mount_point: &Path, file: u64) -> PathBuf {
    mount_point.join(format!("{:03}/{file:05}", file % DIRECTORIES))
}

/// What a file holds names it, so that another file's bytes are not taken for its own.
fn content(file: u64) -> Vec<u8> {
    (0..FILE_BYTES as u64).map(|at| (at / 256 * 31 + at * 7 + file * 131 + file / 256) as u8).collect()
}

fn make_files(mount_point: &Path, files: u64) -> Result<()> {
    for directory in 0..DIRECTORIES {
        let path = mount_point.join(format!("{directory:03}"));
        fs::create_dir(&path).at("mkdir", &path)?;
    }
    for file in 0..files {
        let path = path_of(mount_point, file);
        fs::write(&path, content(file)).at("write", &path)?;
    }
    Ok(())
}

/// Random files are read, and with `writes` written again, for so long.
fn work(
    mount_point: &Path,
    files: u64,
    writes: bool,
    seconds_before: f64,
    length: Duration,
    random: &mut u64,
) -> Result<Phase> {
    let mut phase = Phase { lost_devices: 0, samples: Vec::new(), operations: 0, intact_percent: 0.0 };
    let start = Instant::now();
    let (mut sample_start, mut tried, mut succeeded) = (Duration::ZERO, 0u64, 0u64);
    while start.elapsed() < length {
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let file = (*random >> 33) % files;
        let path = path_of(mount_point, file);
        tried += 1;
        phase.operations += 1;
        if is_intact(&path, file)? {
            succeeded += 1;
            if writes {
                fs::write(&path, content(file)).at("write", &path)?;
            }
        }
        let now = start.elapsed();
        if now - sample_start >= SAMPLE {
            let at = seconds_before + (sample_start + (now - sample_start) / 2).as_secs_f64();
            phase.samples.push((at, 100.0 * succeeded as f64 / tried as f64));
            (sample_start, tried, succeeded) = (now, 0, 0);
        }
    }
    Ok(phase)
}

/// Whether a file reads right. Anything but its own bytes or an I/O error ends the bench.
fn is_intact(path: &Path, file: u64) -> Result<bool> {
    match fs::read(path) {
        Ok(bytes) if bytes == content(file) => Ok(true),
        Ok(_) => Err(XtaskError::found(format!("{} has other bytes than were written", path.display()))),
        Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(false),
        Err(error) => Err(error).at("read", path),
    }
}

fn count_intact(mount_point: &Path, files: u64) -> Result<u64> {
    let mut intact = 0;
    for file in 0..files {
        intact += u64::from(is_intact(&path_of(mount_point, file), file)?);
    }
    Ok(intact)
}
