//! Devices that answer, and one that does not.

use super::*;

/// P-229: while one waits for a device nobody else does.
#[test]
fn a_device_is_asked_by_one_at_a_time() {
    let folder = std::env::temp_dir().join(format!("stere-answering-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("file");
    std::fs::write(&file, [7; 8192]).expect("a file");
    assert_eq!(check_within(&file, ANSWER_MAX).ok(), Some(()));
    assert_eq!(check(&folder.join("nothing")).ok(), Some(()), "what is not there answers");
    let key = folder.join("held");
    lock(&UNDER_WAY).insert(key.clone(), Arc::default());
    assert!(matches!(check(&key), Err(DeviceError::Silent { .. })), "somebody waits for it already");
    lock(&UNDER_WAY).remove(&key);
    assert_eq!(check(&key).ok(), Some(()));
    std::fs::remove_dir_all(&folder).expect("the folder is ours");
}
