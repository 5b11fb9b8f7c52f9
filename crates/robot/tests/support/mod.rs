//! A tape library that `tgt` emulates, started here and ended when it is dropped.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

pub struct TgtLibrary {
    daemon: i32,
    pub port: u16,
}

impl Drop for TgtLibrary {
    fn drop(&mut self) {
        // SAFETY: a plain system call on a process that this test started. A gentle end is refused while there are targets.
        unsafe { libc::kill(self.daemon, libc::SIGKILL) };
    }
}

/// With cartridges of so many mebibytes in an empty folder. None, loudly, where what it takes is not there.
pub fn start(test: &str, folder: &Path, mebibytes: u32) -> Option<TgtLibrary> {
    let is_there = |name: &str| ["/usr/sbin", "/usr/bin"].iter().any(|folder| Path::new(folder).join(name).exists());
    // SAFETY: geteuid only returns a number.
    let is_root = unsafe { libc::geteuid() } == 0;
    // SAFETY: loading a library that does nothing when it is loaded.
    let has_client = !unsafe { libc::dlopen(c"libiscsi.so.7".as_ptr(), libc::RTLD_NOW) }.is_null();
    if !is_root || !has_client || !is_there("tgtd") || !is_there("tgtimg") {
        println!("SKIPPED: {test} needs root and the Debian packages tgt and libiscsi7");
        return None;
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    drop(listener);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../robot/tests/tgt-library.sh");
    let words = [port.to_string(), (port % 32_000).to_string(), mebibytes.to_string()];
    let output = Command::new(script).arg(folder).args(words).output().expect("the script runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said} {}", String::from_utf8_lossy(&output.stderr));
    let daemon = said.trim().parse().expect("the script tells the process");
    Some(TgtLibrary { daemon, port })
}

impl TgtLibrary {
    pub fn device(&self, lun: u8) -> String {
        format!("iscsi://127.0.0.1:{}/iqn.2026-11.test:library/{lun}", self.port)
    }
}
