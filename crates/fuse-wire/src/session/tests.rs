//! What can go wrong between the two transports, and options that make no sense.

use std::io::Write;
use std::path::PathBuf;

use super::*;
use crate::request::Request;

/// Knows its root, nothing else.
struct Bare;

impl Filesystem for Bare {
    fn handle(&self, request: Request) {
        let attributes = crate::Attributes { inode: 1, mode: libc::S_IFDIR | 0o755, links: 2, ..Default::default() };
        match request.operation() {
            crate::Operation::Getattr { .. } => request.reply_attributes(&attributes, std::time::Duration::ZERO),
            crate::Operation::Forget { .. } | crate::Operation::BatchForget { .. } => request.reply_none(),
            crate::Operation::Lookup { .. } => request.reply_error(libc::ENOENT),
            _ => request.reply_error(libc::ENOSYS),
        }
    }
}

fn mount_point(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("fuse-wire-unit-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// Rings whose entries are too small for the session are refused by the kernel, which then uses /dev/fuse.
#[test]
fn a_refused_ring_falls_back_to_the_device() {
    // SAFETY: takes nothing, cannot fail.
    if unsafe { libc::geteuid() } != 0 || !Path::new("/dev/fuse").exists() || !enable_io_uring() {
        let _ = writeln!(
            std::io::stderr(),
            "fuse-wire: SKIPPED: a_refused_ring_falls_back_to_the_device: no root or io_uring"
        );
        return;
    }
    let options = Options::default();
    let mut small = options.clone();
    small.init.max_write_bytes = 128 * 1024;
    let path = mount_point("refused");
    let rings = Rings::prepare(&small).unwrap();
    let mounted = mount::mount(&path, &options.mount).unwrap();
    let session = Session::start(Arc::new(Bare), mounted, rings, &options).unwrap();
    assert_eq!(session.negotiated().transport, Transport::Device);
    assert!(session.negotiated().flags & init::OVER_IO_URING != 0, "it was offered and agreed on");
    assert!(std::fs::metadata(&path).unwrap().is_dir());
    assert!(std::fs::metadata(path.join("missing")).is_err());
    session.unmounter().unmount(Unmount::Normal).unwrap();
    session.join().unwrap();

    // Where io_uring is required, nothing stays mounted.
    let mut required = options;
    required.transport.choice = TransportChoice::IoUring;
    let rings = Rings::prepare(&small).unwrap();
    let mounted = mount::mount(&path, &required.mount).unwrap();
    let unmounter = mounted.unmounter.clone();
    let refused = Session::start(Arc::new(Bare), mounted, rings, &required).unwrap_err();
    assert!(matches!(refused, Error::IoUringUnavailable(_)), "{refused}");
    unmounter.unmount(Unmount::Force).unwrap();
    assert!(mount::device_number(&path).is_none());
    std::fs::remove_dir(&path).unwrap();
}

#[test]
fn senseless_options_are_refused() {
    let mut options = Options::default();
    options.transport.ring_depth = 0;
    assert!(matches!(validate(&options), Err(Error::Option { option: "ring_depth", .. })));
    let mut options = Options::default();
    options.transport.device_threads = options.transport.device_depth;
    assert!(matches!(validate(&options), Err(Error::Option { option: "device_depth", .. })));
    assert!(validate(&Options::default()).is_ok());
}
