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
    // Somebody else is at it, and gets an answer in time, or had none.
    let key = folder.join("held");
    let other = Asked::now();
    lock(&UNDER_WAY).insert(key.clone(), other.clone());
    assert!(matches!(check_within(&key, Duration::ZERO), Err(DeviceError::Silent { .. })));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| check(&key));
        std::thread::sleep(Duration::from_millis(100));
        *lock(&other.has_ended) = true;
        other.ended.notify_all();
        assert_eq!(waits.join().expect("it waits").ok(), Some(()), "a healthy device that two ask at once");
    });
    lock(&UNDER_WAY).remove(&key);
    std::fs::remove_dir_all(&folder).expect("the folder is ours");
}
