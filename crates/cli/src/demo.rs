//! `stere demo`: the main job in front of your eyes, on files in a temporary folder.
//!
//! Everything is done with the command itself, each call shown as it could be typed; what it proves, it proves from outside:
//! checksums of the source are compared with what the mount gives back after its process was killed in the middle of writing.

pub mod tree;
pub mod writer;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::arguments::DemoArguments;
use stere_control::connection;
use stere_control::status::StatusReport;
use stere_machine::error::{At, DONE, ERROR, Error, Result, refused};
use stere_machine::registry::Registry;
use stere_machine::{mountinfo, size};

const POOL: &str = "demo";
const DEVICES: [(&str, &str); 4] = [("ssd-a", "512M"), ("ssd-b", "768M"), ("disk-c", "1G"), ("disk-d", "384M")];

/// How long the writers run before the process is killed.
const WRITING: Duration = Duration::from_secs(3);

struct Demo {
    folder: PathBuf,
    mountpoint: PathBuf,
    keep: bool,
}

impl Drop for Demo {
    fn drop(&mut self) {
        if mountinfo::find(&self.mountpoint).is_some()
            && let Err(error) = mountinfo::unmount(&self.mountpoint, true)
        {
            eprintln!("stere: {error}");
            return;
        }
        if self.keep {
            println!("the folder is kept: {}", self.folder.display());
        } else if let Err(error) = std::fs::remove_dir_all(&self.folder) {
            eprintln!("stere: {} could not be removed: {error}", self.folder.display());
        }
    }
}

pub fn run(arguments: &DemoArguments) -> Result<u8> {
    let demo = Demo::new(arguments)?;
    println!("This makes a pool on four files, kills it in the middle of writing, and looks at what is left.");
    println!("Everything is in {} and goes away at the end.\n", demo.folder.display());
    demo.create()?;
    if let Err(why) = fuse_is_usable() {
        demo.stere(&["status", POOL])?;
        demo.stere(&["check", POOL])?;
        eprintln!("\nstere: the pool was made and checked, but it cannot be mounted here: {why}");
        return Ok(ERROR);
    }
    demo.mount()?;
    let sums = demo.fill()?;
    let acknowledged = demo.kill_while_writing()?;
    demo.recover()?;
    demo.verify(&sums, &acknowledged)?;
    demo.stere(&["status", POOL])?;
    demo.finish()?;
    println!(
        "\nDone: {} files of the tree and {} synced files came through the kill, every byte verified.",
        sums.len(),
        acknowledged.len()
    );
    Ok(DONE)
}

/// Why nothing can be mounted here, if so.
fn fuse_is_usable() -> std::result::Result<(), String> {
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    match device {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err("there is no /dev/fuse; load it with `modprobe fuse`, or pass it into the container with --device /dev/fuse".into())
        }
        Err(error) => Err(format!("/dev/fuse may not be opened ({error}); run the demo as root, or give this user access to it")),
        Ok(_) if rustix::process::geteuid().is_root() => Ok(()),
        Ok(_) => match Command::new("fusermount3").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status() {
            Ok(_) => Ok(()),
            Err(_) => Err("ordinary users mount with fusermount3, which is not installed; install the package fuse3, or run the demo as root".into()),
        },
    }
}

impl Demo {
    fn new(arguments: &DemoArguments) -> Result<Demo> {
        let base = arguments.directory.clone().unwrap_or_else(std::env::temp_dir);
        let folder = base.join(format!("stere-demo-{}", std::process::id()));
        std::fs::create_dir(&folder).at("create", &folder)?;
        let folder = std::fs::canonicalize(&folder).at("find", &folder)?;
        let mountpoint = folder.join("mount");
        std::fs::create_dir(&mountpoint).at("create", &mountpoint)?;
        Ok(Demo { folder, mountpoint, keep: arguments.keep })
    }

    fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    fn registry(&self) -> Registry {
        Registry::at(self.state())
    }

    fn command(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = Command::new(std::env::current_exe().map_err(Error::System)?);
        command.args(arguments).env("STERE_STATE", self.state()).current_dir(&self.folder);
        Ok(command)
    }

    /// Runs the command as a user would, and shows it.
    fn stere(&self, arguments: &[&str]) -> Result<()> {
        println!("$ stere {}", arguments.join(" "));
        let status = self.command(arguments)?.stdin(Stdio::null()).status().map_err(Error::System)?;
        println!();
        match status.success() {
            true => Ok(()),
            false => refused(format!("`stere {}` failed ({status}); what it said is above", arguments.join(" "))),
        }
    }

    fn create(&self) -> Result<()> {
        println!("1. A pool on four files of unlike sizes. Files of it have two copies, on different devices.");
        let devices: Vec<String> = DEVICES.iter().map(|(name, size)| format!("{name}.img,size={size}")).collect();
        let mut arguments = vec!["create", POOL];
        arguments.extend(devices.iter().map(String::as_str));
        self.stere(&arguments)
    }

    fn mount(&self) -> Result<()> {
        self.stere(&["mount", POOL, "mount", "-o", "memory=256M"])
    }

    /// Copies a real tree in and makes it durable.
    fn fill(&self) -> Result<tree::Sums> {
        let source = tree::choose()?;
        println!("2. A real tree is copied in: {}", source.display());
        let start = Instant::now();
        let (sums, bytes) = tree::copy(&source, &self.mountpoint.join("tree"))?;
        println!("   {} files, {}, in {:.1} s", sums.len(), size::show(bytes), start.elapsed().as_secs_f64());
        self.stere(&["flush", "mount", "--wait"])?;
        Ok(sums)
    }

    fn kill_while_writing(&self) -> Result<Vec<writer::Acknowledged>> {
        println!(
            "3. Four writers write, sync and rename files. After {} s the mount's process is killed with",
            WRITING.as_secs()
        );
        println!("   SIGKILL, in the middle of it.");
        let writers = writer::start(&self.mountpoint.join("work"))?;
        std::thread::sleep(WRITING);
        let Some(about) = connection::about(&self.registry(), POOL) else {
            return refused("the mount's process does not answer; see its log with --keep");
        };
        let process = i32::try_from(about.process).ok().and_then(rustix::process::Pid::from_raw);
        let Some(process) = process else { return refused("the mount's process has no number") };
        rustix::process::kill_process(process, rustix::process::Signal::KILL)
            .map_err(|error| Error::System(error.into()))?;
        let (acknowledged, attempts) = writer::collect(writers);
        println!(
            "   killed process {}: {attempts} writes begun, {} acknowledged as durable\n",
            about.process,
            acknowledged.len()
        );
        match acknowledged.is_empty() {
            true => {
                refused("no write was acknowledged before the kill, so nothing would be proved; run the demo again")
            }
            false => Ok(acknowledged),
        }
    }

    fn recover(&self) -> Result<()> {
        println!("4. Mounted again: the journal is replayed, what was not synced is cut off cleanly.");
        let start = Instant::now();
        self.mount()?;
        let elapsed = start.elapsed();
        let report = self.report()?;
        let recovery = &report.recovery;
        println!(
            "   recovery took {} ms (mounting in all {} ms): {} groups with {} changes replayed, {} cut\n",
            recovery.duration_ms,
            elapsed.as_millis(),
            recovery.groups_replayed,
            recovery.changes_replayed,
            recovery.groups_cut
        );
        Ok(())
    }

    fn report(&self) -> Result<StatusReport> {
        let output = self.command(&["status", POOL, "--json"])?.output().map_err(Error::System)?;
        serde_json::from_slice(&output.stdout)
            .map_err(|error| Error::Refused(format!("status --json is not readable: {error}")))
    }

    fn verify(&self, sums: &tree::Sums, acknowledged: &[writer::Acknowledged]) -> Result<()> {
        println!("5. Every file is read back and compared with the checksum of what was written.");
        let start = Instant::now();
        let bytes = tree::verify(sums, &self.mountpoint.join("tree"))?;
        println!(
            "   tree: {} files, {} are right ({:.1} s)",
            sums.len(),
            size::show(bytes),
            start.elapsed().as_secs_f64()
        );
        writer::verify(acknowledged)?;
        println!("   synced files: {} are there with the right bytes\n", acknowledged.len());
        Ok(())
    }

    fn finish(&self) -> Result<()> {
        println!("6. Unmounted, and the whole format proved from the devices.");
        self.stere(&["umount", "mount"])?;
        self.stere(&["check", POOL])
    }
}

/// The checksum of a file's bytes.
pub fn checksum(path: &Path) -> Result<(u32, u64)> {
    let bytes = std::fs::read(path).at("read", path)?;
    Ok((crc_fast::crc32_iscsi(&bytes), bytes.len() as u64))
}
