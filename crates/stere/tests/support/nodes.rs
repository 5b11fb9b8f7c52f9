//! Servers of devices by NBD, each with an image of its own: nbdkit, `nbd-server`, `qemu-nbd`, and stere itself. `cargo xtask test` brings the
//! others; none where one is not installed.

#![allow(dead_code, reason = "nbd-server is tried by hand: see docs/design/nodes.md")]

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::network::within;
use crate::remote::net_of;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Nbdkit,
    /// With certificates in the folder `tls`.
    NbdkitTls,
    NbdServer,
    QemuNbd,
    /// `stere node serve`: its image is made by `size=`.
    Stere,
}

impl Kind {
    fn program(self) -> &'static str {
        match self {
            Kind::Nbdkit | Kind::NbdkitTls => "nbdkit",
            Kind::NbdServer => "nbd-server",
            Kind::QemuNbd => "qemu-nbd",
            Kind::Stere => env!("CARGO_BIN_EXE_stere"),
        }
    }
}

pub struct Node {
    kind: Kind,
    folder: PathBuf,
    name: String,
    size_bytes: u64,
    address: String,
    pub port: u16,
    /// A network namespace, where it is not in the test's.
    namespace: Option<String>,
    process: Option<Child>,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

pub fn is_installed(test: &str, program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    if !is_there {
        eprintln!("SKIPPED: {test} needs {program}, which is not installed");
    }
    is_there
}

impl Node {
    /// A node with a new image of so many bytes.
    pub fn start(test: &str, kind: Kind, folder: &Path, name: &str, size_bytes: u64) -> Option<Node> {
        Node::start_at(test, kind, folder, (name, size_bytes), ("127.0.0.1", None))
    }

    pub fn start_at(
        test: &str,
        kind: Kind,
        folder: &Path,
        (name, size_bytes): (&str, u64),
        (address, namespace): (&str, Option<&str>),
    ) -> Option<Node> {
        if kind != Kind::Stere && !is_installed(test, kind.program()) {
            return None;
        }
        let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let (folder, name, address) = (folder.to_owned(), name.to_owned(), address.to_owned());
        let namespace = namespace.map(str::to_owned);
        let mut node = Node { kind, folder, name, size_bytes, address, port, namespace, process: None };
        match kind {
            Kind::Stere => fs::create_dir_all(node.directory()).unwrap(),
            _ => fs::File::create(node.image()).unwrap().set_len(size_bytes).unwrap(),
        }
        node.start_again();
        Some(node)
    }

    /// What a stere node serves.
    pub fn directory(&self) -> PathBuf {
        self.folder.join(&self.name)
    }

    /// What it said since it was started last.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join(format!("{}.log", self.name))).unwrap_or_default()
    }

    pub fn image(&self) -> PathBuf {
        if self.kind == Kind::Stere {
            return self.directory().join("disk");
        }
        self.folder.join(format!("{}.raw", self.name))
    }

    /// As it is named on a command line.
    pub fn place(&self) -> String {
        let scheme = match self.kind {
            Kind::NbdkitTls => "nbds",
            Kind::Stere => "stere",
            _ => "nbd",
        };
        format!("{scheme}://{}:{}/disk", self.address, self.port)
    }

    /// The same, of a pool's own.
    pub fn device(&self) -> String {
        let size = if self.kind == Kind::Stere { format!(",size={}", self.size_bytes) } else { String::new() };
        format!("{}{size},host={},name={}", self.place(), self.name, self.name)
    }

    fn command(&self) -> Command {
        let (program, image, port) = (self.kind.program(), self.image(), self.port.to_string());
        let mut command = match &self.namespace {
            Some(namespace) => {
                let mut command = Command::new("nsenter");
                command.arg(net_of(namespace)).arg(program);
                command
            }
            None => Command::new(program),
        };
        match self.kind {
            Kind::Nbdkit => drop(command.args(["-f", "-i", &self.address, "-p", &port, "file"]).arg(image)),
            Kind::NbdkitTls => {
                let certificates = format!("--tls-certificates={}", self.folder.join("tls").display());
                command
                    .args(["-f", "-i", &self.address, "-p", &port, "--tls=require", &certificates, "file"])
                    .arg(image);
            }
            Kind::NbdServer => {
                let config = self.folder.join(format!("{}.conf", self.name));
                let text = format!(
                    "[generic]\nlistenaddr = {}\nport = {port}\n[disk]\nexportname = {}\nflush = true\ntrim = true\n",
                    self.address,
                    image.display()
                );
                fs::write(&config, text).unwrap();
                // It forks for each who comes, and so becomes a daemon.
                command.arg("-C").arg(config).arg("-p").arg(self.pid_file());
            }
            Kind::Stere => {
                let listen = format!("{}:{port}", self.address);
                command.args(["node", "serve"]).arg(self.directory()).args(["--listen", &listen]);
            }
            Kind::QemuNbd => {
                let words =
                    ["-t", "-e", "16", "-f", "raw", "-x", "disk", "--discard=unmap", "-b", &self.address, "-p", &port];
                command.args(words).arg(image);
            }
        }
        command
    }

    /// Starts it, and waits until it can be reached.
    pub fn start_again(&mut self) {
        assert!(self.process.is_none(), "it runs already");
        let log = fs::File::create(self.folder.join(format!("{}.log", self.name))).unwrap();
        let started = self.command().stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        self.process = Some(started);
        let begun = Instant::now();
        while !self.is_reached() || (self.kind == Kind::NbdServer && !self.pid_file().exists()) {
            let said = fs::read_to_string(self.folder.join(format!("{}.log", self.name))).unwrap_or_default();
            assert!(begun.elapsed() < Duration::from_secs(20), "{} does not start: {said}", self.name);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn is_reached(&self) -> bool {
        let namespace = self.namespace.as_ref().map(|name| Path::new("/run/netns").join(name));
        within(namespace.as_deref(), || TcpStream::connect((self.address.as_str(), self.port)).is_ok())
    }

    fn pid_file(&self) -> PathBuf {
        self.folder.join(format!("{}.pid", self.name))
    }

    /// Asks it to end; how it ended.
    pub fn end(&mut self) -> Option<i32> {
        let mut process = self.process.take().unwrap();
        self.signal_to(&process, libc::SIGTERM);
        process.wait().unwrap().code()
    }

    /// Its disk is another one of the same size, with nothing on it.
    pub fn change_disk(&mut self) {
        self.kill();
        if self.kind == Kind::Stere {
            fs::remove_dir_all(self.directory()).unwrap();
            fs::create_dir(self.directory()).unwrap();
        } else {
            fs::remove_file(self.image()).unwrap();
            fs::File::create(self.image()).unwrap().set_len(self.size_bytes).unwrap();
        }
        self.start_again();
    }

    /// Makes what it has in these bytes wrong.
    pub fn spoil(&self, range: std::ops::Range<u64>) {
        let file = std::fs::File::options().write(true).open(self.image()).unwrap();
        let wrong = vec![0x55; (range.end - range.start) as usize];
        std::os::unix::fs::FileExt::write_all_at(&file, &wrong, range.start).unwrap();
        file.sync_all().unwrap();
    }

    pub fn kill(&mut self) {
        let daemon = fs::read_to_string(self.pid_file()).ok().and_then(|text| text.trim().parse::<i32>().ok());
        if let Some(daemon) = daemon {
            // SAFETY: signals to a session of our own making: the server, and those who serve.
            let _told = unsafe { libc::kill(-daemon, libc::SIGKILL) };
            drop(fs::remove_file(self.pid_file()));
        }
        if let Some(mut process) = self.process.take() {
            self.signal_to(&process, libc::SIGCONT);
            drop(process.kill());
            drop(process.wait());
        }
    }

    fn signal_to(&self, process: &Child, signal: i32) {
        // SAFETY: a signal to a child that was not waited for.
        let _told = unsafe { libc::kill(process.id() as i32, signal) };
    }

    /// It stands still, as a machine does that hangs.
    pub fn pause(&self, is_paused: bool) {
        let process = self.process.as_ref().unwrap();
        self.signal_to(process, if is_paused { libc::SIGSTOP } else { libc::SIGCONT });
    }
}
