//! Jumps are told by file, and the table is bounded.

use super::*;
use crate::distinct::mixed;

fn note(recent: &mut RecentFiles, file: u64, offset: u64) -> Jump {
    recent.note(file, mixed(file), offset, 10)
}

#[test]
fn jumps_are_told_by_file() {
    let mut recent = RecentFiles::default();
    assert_eq!(note(&mut recent, 1, 0), Jump::First);
    assert_eq!(note(&mut recent, 2, 500), Jump::First);
    assert_eq!(note(&mut recent, 1, 10), Jump::None);
    assert_eq!(note(&mut recent, 1, 25), Jump::Forward(5));
    assert_eq!(note(&mut recent, 1, 0), Jump::Backward(35));
    assert_eq!(note(&mut recent, 2, 510), Jump::None);
    assert_eq!(recent.note(2, mixed(2), u64::MAX, u64::MAX), Jump::Forward(u64::MAX - 520));
}

#[test]
fn files_that_were_not_used_lately_give_way() {
    let mut recent = RecentFiles::default();
    note(&mut recent, 0, 0);
    (1..1000).for_each(|file| assert_eq!(note(&mut recent, file, 0), Jump::First));
    assert_eq!(note(&mut recent, 0, 10), Jump::First);
    assert_eq!(note(&mut recent, 999, 10), Jump::None);
}
