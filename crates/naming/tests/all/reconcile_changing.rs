//! Work that somebody begins while the change that notes it does not hold everywhere yet.

use std::time::{Duration, Instant};

use stere_features::reconciler::read_notes;
use stere_naming::{FileSystem, Io, OpenFlags, ROOT};

use crate::support::{Rig, caller, reconcile};

fn copies(fs: &FileSystem, inode: u64) -> Vec<u8> {
    fs.getxattr(&caller(9), inode, b"user.stere.effective.copies").unwrap()
}

/// P-52: rules are noted as work and then taken up by the process. One who comes to the work in between must not take it for done
/// by the rules from before.
#[test]
fn a_change_is_not_taken_for_done_before_it_holds() {
    let (_rig, fs) = Rig::new(3, 96 << 20);
    fs.policy().load_rules(&caller(2), "*: copies=3").unwrap();
    let flags = OpenFlags { write: true, ..OpenFlags::default() };
    let (made, handle) = fs.create(&caller(3), ROOT, b"a", 0o644, flags).unwrap();
    fs.release(&caller(3), made.inode, handle).unwrap();
    reconcile(&fs);
    assert_eq!(copies(&fs, made.inode), b"3");
    std::thread::scope(|scope| {
        // What stands between the change of the rules in the pool and in memory.
        let held = fs.rules().hold_pool();
        scope.spawn(|| fs.policy().load_rules(&caller(4), "*: copies=1").unwrap());
        let until = Instant::now() + Duration::from_secs(60);
        while read_notes(fs.store(), Io::BLOCKING).unwrap().is_empty() {
            assert!(Instant::now() < until, "the rules are not loaded");
            std::thread::yield_now();
        }
        for _ in 0..10 {
            fs.reconciler().reconcile_step(&caller(5), 1 << 20).unwrap();
        }
        drop(held);
    });
    reconcile(&fs);
    assert_eq!(copies(&fs, made.inode), b"1", "the work was taken for done by what held before");
    assert!(read_notes(fs.store(), Io::BLOCKING).unwrap().is_empty());
}
