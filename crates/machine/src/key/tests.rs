//! The key of a machine is made once, is its user's alone, and is never taken for another (P-251).

use std::os::unix::fs::PermissionsExt;

use super::*;

fn registry(folder: &tempfile::TempDir) -> Registry {
    Registry::at(folder.path().join("state"))
}

#[test]
fn a_key_is_made_once_also_by_many() {
    let folder = tempfile::tempdir().unwrap();
    let keys: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| own(&registry(&folder)).unwrap().public())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(keys.iter().all(|key| *key == keys[0]));
    let state = folder.path().join("state");
    assert_eq!(fs::metadata(state.join(KEY_FILE)).unwrap().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(state).unwrap().count(), 1, "drafts are taken away");
}

#[test]
fn a_damaged_key_is_an_error_that_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let before = own(&registry(&folder)).unwrap().public();
    let path = folder.path().join("state").join(KEY_FILE);
    let good = fs::read(&path).unwrap();
    for bad in [&good[..20], b"", &[&good[..47], &[!good[47]]].concat()] {
        fs::write(&path, bad).unwrap();
        let why = own(&registry(&folder)).unwrap_err().to_string();
        assert!(why.contains("machine-key") && why.contains("put it back from a copy, or remove it"), "{why}");
    }
    fs::write(&path, &good).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let why = own(&registry(&folder)).unwrap_err().to_string();
    assert!(why.contains("chmod 600"), "{why}");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(own(&registry(&folder)).unwrap().public(), before);
}
