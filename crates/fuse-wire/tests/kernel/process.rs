//! Sessions in processes of their own: what is left when one is killed, and mounting without being root.
//!
//! The test program starts itself again with `FUSE_WIRE_SERVE` set, which makes `serve` mount and wait.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fuse_wire::{BlockDevice, Session, TransportChoice};

use crate::support::{NullFilesystem, TestMount, eventually, mount_point, options, say, transports};

const SERVE: &str = "FUSE_WIRE_SERVE";
const NOBODY: u32 = 65_534;

/// Not a test: the other process. Without the variable it has nothing to do.
#[test]
fn serve() {
    let Ok(what) = std::env::var(SERVE) else { return };
    let (transport, path) = what.split_once(':').expect("TRANSPORT:MOUNTPOINT");
    let mut options = options(match transport {
        "ring" => TransportChoice::IoUring,
        "device" => TransportChoice::Device,
        _ => TransportChoice::Auto,
    });
    options.mount.block_device = BlockDevice::Preferred;
    match Session::mount(NullFilesystem::new(true, false), Path::new(path), &options) {
        Ok(session) => {
            println!("SERVING {:?}", session.negotiated().transport);
            session.join().expect("the session ends by being unmounted");
        }
        Err(error) => println!("FAILED {error}"),
    }
}

struct Server {
    child: Child,
    path: PathBuf,
    said: String,
}

impl Server {
    fn start(transport: &str, user: Option<u32>) -> Self {
        let path = mount_point();
        let mut program = std::env::current_exe().unwrap();
        if user.is_some() {
            // The build folder may be closed to other users.
            let copy = path.with_extension("program");
            fs::copy(&program, &copy).unwrap();
            fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
            program = copy;
        }
        let mut command = Command::new(&program);
        command
            .args(["process::serve", "--exact", "--nocapture", "--test-threads=1"])
            .env(SERVE, format!("{transport}:{}", path.display()))
            .stdout(Stdio::piped());
        command.current_dir("/");
        if let Some(user) = user {
            std::os::unix::fs::chown(&path, Some(user), Some(user)).unwrap();
            command.uid(user).gid(user);
        }
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let said = lines.by_ref().map(Result::unwrap).find_map(|line| {
            let at = line.find("SERVING").or_else(|| line.find("FAILED"))?;
            Some(line[at..].to_owned())
        });
        let said = said.expect("the server says how it went");
        // Its output must go somewhere, or it would end when it prints.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, path, said }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = Command::new("umount").arg("-l").arg(&self.path).stderr(Stdio::null()).status();
        let _ = fs::remove_dir(&self.path);
        let _ = fs::remove_file(self.path.with_extension("program"));
    }
}

/// Clients of a killed server get errors at once, and the mount point is free after one umount.
#[test]
fn kill_9_leaves_nobody_hanging() {
    for choice in transports("kill_9_leaves_nobody_hanging") {
        let transport = if choice == TransportChoice::IoUring { "ring" } else { "device" };
        let mut server = Server::start(transport, None);
        assert!(server.said.starts_with("SERVING"), "{}", server.said);
        let loaded = Arc::new(AtomicBool::new(false));
        let clients: Vec<_> = (0..4)
            .map(|client| {
                let (root, loaded) = (server.path.clone(), Arc::clone(&loaded));
                std::thread::spawn(move || {
                    for number in 0.. {
                        let path = root.join(format!("{client}-{number}"));
                        if let Err(error) = fs::write(&path, [7; 10_000]) {
                            return error;
                        }
                        if number == 50 {
                            loaded.store(true, Ordering::SeqCst);
                        }
                    }
                    unreachable!("the loop has no end")
                })
            })
            .collect();
        assert!(eventually(|| loaded.load(Ordering::SeqCst)));
        server.child.kill().unwrap();
        assert!(eventually(|| clients.iter().all(std::thread::JoinHandle::is_finished)), "clients hang");
        for client in clients {
            let error = client.join().unwrap();
            assert!(
                matches!(error.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED | libc::ECANCELED)),
                "{error}"
            );
        }
        server.child.wait().unwrap();
        dead_mount_is_told_and_cleared(&server.path, choice);
    }
}

fn dead_mount_is_told_and_cleared(path: &Path, choice: TransportChoice) {
    let again = Session::mount(NullFilesystem::new(false, false), path, &options(choice));
    let message = again.unwrap_err().to_string();
    assert!(message.contains("dead FUSE mount") && message.contains("umount"), "{message}");
    let cleared = Command::new("umount").arg(path).status().unwrap();
    assert!(cleared.success());
    let session = Session::mount(NullFilesystem::new(false, false), path, &options(choice)).unwrap();
    fs::write(path.join("again"), b"x").unwrap();
    drop(session);
}

/// An ordinary user mounts through fusermount3.
#[test]
fn ordinary_users_mount_through_fusermount() {
    const TEST: &str = "ordinary_users_mount_through_fusermount";
    if transports(TEST).is_empty() {
        return;
    }
    if Command::new("fusermount3").arg("-V").stdout(Stdio::null()).status().is_err() {
        say(&format!("SKIPPED: {TEST}: fusermount3 is not installed"));
        return;
    }
    if fs::metadata("/dev/fuse").unwrap().permissions().mode() & 0o006 != 0o006 {
        return say(&format!("SKIPPED: {TEST}: /dev/fuse is closed to ordinary users"));
    }
    for transport in ["auto", "device"] {
        let mut server = Server::start(transport, Some(NOBODY));
        assert!(server.said.starts_with("SERVING"), "{}", server.said);
        as_nobody("echo hello > \"$0\"/file && grep -q hello \"$0\"/file && rm \"$0\"/file", &server.path);
        // Without allow_other nobody else may look, root neither.
        assert_eq!(fs::read_dir(&server.path).unwrap_err().raw_os_error(), Some(libc::EACCES));
        as_nobody("fusermount3 -u \"$0\"", &server.path);
        assert!(eventually(|| server.child.try_wait().unwrap().is_some()), "the server did not end");
    }
}

fn as_nobody(script: &str, path: &Path) {
    let status = Command::new("sh").arg("-c").arg(script).arg(path).uid(NOBODY).gid(NOBODY).status().unwrap();
    assert!(status.success(), "{script}");
}

/// Two sessions in one process do not disturb each other.
#[test]
fn two_sessions_live_side_by_side() {
    for choice in transports("two_sessions_live_side_by_side") {
        let (mut first, mut second) = (TestMount::new(choice), TestMount::new(choice));
        fs::write(first.path.join("a"), b"1").unwrap();
        fs::write(second.path.join("b"), b"2").unwrap();
        assert!(!first.session().has_ended());
        first.finish().unwrap();
        assert_eq!(fs::read(second.path.join("b")).unwrap(), b"2");
        second.finish().unwrap();
    }
}
