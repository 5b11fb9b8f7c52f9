//! Real block devices, where this machine lets us make loop devices; elsewhere the test says that it did nothing.

use std::path::{Path, PathBuf};
use std::process::Command;
use stere_device::{Device, DeviceError, FileDevice, FileOptions, probe};

const SIZE_BYTES: u64 = 64 << 20;

/// A loop device over a file of zeros; goes away with the value.
struct Loop {
    path: PathBuf,
    _file: tempfile::NamedTempFile,
}

impl Loop {
    fn new() -> Option<Loop> {
        let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        file.as_file().set_len(SIZE_BYTES).unwrap();
        let output = Command::new("losetup").args(["--find", "--show"]).arg(file.path()).output().ok()?;
        let path = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim());
        output.status.success().then_some(Loop { path, _file: file })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        drop(Command::new("losetup").arg("--detach").arg(&self.path).status());
    }
}

fn open(path: &Path) -> Result<FileDevice, DeviceError> {
    FileDevice::open(path, &FileOptions::default())
}

#[test]
fn a_block_device_is_claimed_written_and_discarded() {
    let Some(device) = Loop::new() else {
        println!("skipped: no loop device can be made here");
        return;
    };
    let finding = probe(&device.path).unwrap();
    assert!(finding.is_block_device && finding.is_empty());
    assert_eq!(finding.size_bytes, SIZE_BYTES);
    let opened = open(&device.path).unwrap();
    assert_eq!(opened.size_bytes(), SIZE_BYTES);
    assert!(matches!(open(&device.path), Err(DeviceError::Busy { .. })), "claimed once");
    opened.write_bytes(4096, &[7; 8192]).unwrap();
    opened.flush().unwrap();
    let mut out = [0; 100];
    opened.read(4200, &mut out).unwrap();
    assert_eq!(out, [7; 100]);
    opened.discard(4096, 8192).unwrap();
    assert!(matches!(opened.write_bytes(SIZE_BYTES, &[0; 4096]), Err(DeviceError::OutOfRange { .. })));
    drop(opened);
    open(&device.path).unwrap();
}

#[test]
fn a_mounted_block_device_is_busy() {
    let Some(device) = Loop::new() else {
        println!("skipped: no loop device can be made here");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let made = Command::new("mke2fs").args(["-q", "-t", "ext4"]).arg(&device.path).status();
    let is_mounted = made.is_ok_and(|status| status.success())
        && Command::new("mount").arg(&device.path).arg(folder.path()).status().is_ok_and(|status| status.success());
    if !is_mounted {
        println!("skipped: nothing can be mounted here");
        return;
    }
    let refused = open(&device.path);
    let unmounted = Command::new("umount").arg(folder.path()).status().unwrap();
    assert!(matches!(refused, Err(DeviceError::Busy { .. })), "{refused:?}");
    assert!(unmounted.success());
    assert_eq!(probe(&device.path).unwrap().to_string(), "ext4 file system");
}
