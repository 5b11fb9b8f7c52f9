//! An etcd of one member for tests: `$STERE_ETCD`, one in the path, or the one that `cargo xtask test` unpacks.
//!
//! Read next: `process.rs`.

use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::process::{Process, becomes, server};
use super::{free_port, missing};

const START: Duration = Duration::from_secs(60);
const ATTEMPTS: u32 = 3;
/// From the folder of the crate.
const UNPACKED: &str = "../../target/tools/etcd-server/usr/bin/etcd";

pub struct Etcd {
    program: PathBuf,
    folder: tempfile::TempDir,
    port: u16,
    options: Vec<String>,
    process: Option<Process>,
}

fn program() -> Option<PathBuf> {
    let named = std::env::var_os("STERE_ETCD").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|folder| folder.join("etcd")).collect::<Vec<_>>();
    let unpacked = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(UNPACKED);
    named.into_iter().chain(in_path).chain([unpacked]).find(|path| path.is_file())
}

impl Etcd {
    /// The signal that ends it in order.
    const STOP: i32 = libc::SIGTERM;

    /// None if it is not there and tests with engines are to be skipped.
    pub fn start() -> Option<Etcd> {
        Etcd::start_with(&[])
    }

    /// With options such as `--quota-backend-bytes=1000000`.
    pub fn start_with(options: &[&str]) -> Option<Etcd> {
        let Some(program) = program() else { return missing("etcd", "put it into the path, or name it in STERE_ETCD") };
        let folder = tempfile::tempdir().expect("a temporary directory");
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let mut server = Etcd { program, folder, port: free_port(), options, process: None };
        server.launch();
        Some(server)
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn launch(&mut self) {
        let log = self.folder.path().join("log");
        for attempt in 1..=ATTEMPTS {
            let (client, peer) =
                (format!("http://127.0.0.1:{}", self.port), format!("http://127.0.0.1:{}", free_port()));
            let mut command = Command::new(&self.program);
            // Its first version refuses processors that it was not tried on, and says so.
            command.env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH.replace("aarch64", "arm64"));
            command.arg("--data-dir").arg(self.data()).args(["--name", "one", "--listen-client-urls", &client]);
            command.args(["--advertise-client-urls", &client, "--listen-peer-urls", &peer]);
            command.args(["--initial-advertise-peer-urls", &peer, "--initial-cluster", &format!("one={peer}")]);
            command.args(&self.options);
            let mut process = Process::start(command, &log, None).expect("etcd can be started");
            let mut has_ended = false;
            let is_up = becomes(START, || {
                has_ended = process.has_ended();
                has_ended || TcpStream::connect(("127.0.0.1", self.port)).is_ok()
            });
            if is_up && !has_ended {
                self.process = Some(process);
                return;
            }
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            assert!(attempt < ATTEMPTS, "etcd did not start: {said}");
            // Somebody may have taken the port.
            self.port = free_port();
        }
    }

    pub fn address(&self) -> String {
        format!("etcd://127.0.0.1:{}", self.port)
    }
}

server!(Etcd);
