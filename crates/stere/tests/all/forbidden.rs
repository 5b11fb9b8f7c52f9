//! Where a policy of the machine forbids io_uring (containers, hardened services): the real binary under a filter of system calls; needs
//! root and /dev/fuse, and says loudly when it skips.

use crate::support;

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;

use support::{World, can_mount};

const FILE_BYTES: usize = 8 << 20;
const PIECE_BYTES: usize = 4096;

fn statement(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// From here on, in this process and all that it starts, `io_uring_setup` says that it is not permitted.
fn forbid_io_uring() -> io::Result<()> {
    let load_number = statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0);
    let compare = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let unless_setup = libc::sock_filter { jf: 1, ..statement(compare, libc::SYS_io_uring_setup as u32) };
    let refuse = statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32);
    let allow = statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW);
    let mut program = [load_number, unless_setup, refuse, allow];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: the program lives until the call has copied it.
    match unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Rings that the daemon has open.
fn rings(world: &World) -> usize {
    let links = fs::read_dir(format!("/proc/{}/fd", world.daemon())).unwrap().flatten();
    let is_ring =
        |entry: &fs::DirEntry| fs::read_link(entry.path()).is_ok_and(|link| link.ends_with("anon_inode:[io_uring]"));
    links.filter(is_ring).count()
}

/// P-1, P-14: what works over the ring works without one: written, synced, read in small cold pieces, found again.
#[test]
fn where_io_uring_is_forbidden_everything_works() {
    if !can_mount("where_io_uring_is_forbidden_everything_works") {
        return;
    }
    let world = World::with_pool();
    let mount = |is_forbidden: bool| {
        let mut command = world.command("mount tank mount");
        if is_forbidden {
            // SAFETY: prctl alone, which may be called between fork and exec.
            unsafe { command.pre_exec(forbid_io_uring) };
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let bytes: Vec<u8> = (0..FILE_BYTES).map(|at| (at / 512 * 7 + at) as u8).collect();
    let path = world.mountpoint().join("file");
    mount(true);
    assert_eq!(rings(&world), 0);
    fs::write(&path, &bytes).unwrap();
    fs::File::open(&path).unwrap().sync_all().unwrap();
    world.ok("umount mount");
    for is_forbidden in [true, false] {
        mount(is_forbidden);
        // Else it would not be the filter that keeps it from one.
        let has_rings = fs::exists("/sys/module/fuse/parameters/enable_uring").unwrap();
        assert_eq!(rings(&world) > 0, has_rings && !is_forbidden);
        let file = fs::File::open(&path).unwrap();
        // Cold, and in no order, so that nobody reads ahead.
        for index in 0..FILE_BYTES / PIECE_BYTES {
            let at = index * 769 % (FILE_BYTES / PIECE_BYTES) * PIECE_BYTES;
            let mut piece = [0; PIECE_BYTES];
            file.read_exact_at(&mut piece, at as u64).unwrap();
            assert_eq!(piece[..], bytes[at..at + PIECE_BYTES], "at {at}");
        }
        drop(file);
        world.ok("umount mount");
    }
    world.ok("check tank");
}
