//! WebDAV and SFTP with real servers, started here. What is not installed is skipped, loudly.

use crate::behaviour;
use crate::remote_servers as remote;

use std::sync::Arc;
use std::time::{Duration, Instant};

use remote::{Kind, Server};
use stere_device::{MediumWait, Volume, VolumeError};

fn get(volume: &dyn Volume) -> Result<Vec<u8>, VolumeError> {
    let mut bytes = vec![0; 5];
    volume.get("stere-volume", 0, &mut bytes, &MediumWait::NONE).map(|()| bytes)
}

/// What is away comes back by itself, soon.
fn until_there(volume: &dyn Volume) {
    let start = Instant::now();
    while let Err(error) = get(volume) {
        assert!(error.is_passing() && start.elapsed() < Duration::from_secs(300), "{error}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// P-150: one server, from the first object to its end and back.
fn behaves(name: &str, kind: Kind) {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut server) = Server::start(name, kind, folder.path()) else { return };
    let place = server.place();
    let volume = stere_tertiary::open(&place).unwrap();
    behaviour::assert_behaves(&*volume);
    assert!(!volume.describe().contains(','), "{}", volume.describe());
    // Several at once.
    std::thread::scope(|scope| {
        for number in 0..8u8 {
            let volume = &volume;
            scope.spawn(move || {
                let name = format!("segments/{number}");
                let bytes = vec![number; 300_000];
                volume.put(&name, &bytes).unwrap();
                let mut found = vec![0; bytes.len()];
                volume.get(&name, 0, &mut found, &MediumWait::NONE).unwrap();
                assert!(found == bytes);
            });
        }
    });
    assert_eq!(volume.list("segments/").unwrap().len(), 8);
    assert_eq!(std::fs::read_dir(server.data().join("segments")).unwrap().count(), 8, "nothing else stays");
    // Half of an object that was cut off is none, and is in nobody's way.
    std::fs::write(server.data().join("segments/9.0.partial"), b"half").unwrap();
    volume.put("segments/9", b"whole").unwrap();
    assert!(volume.list("").unwrap().iter().all(|(name, _)| !name.contains("partial")));
    assert_eq!(volume.length("segments/9"), Ok(Some(5)));
    let stranger = stere_tertiary::open(&server.place_of_a_stranger()).unwrap();
    let refused = stranger.put("x", b"x").unwrap_err();
    assert!(matches!(refused, VolumeError::Away { .. }), "{refused}");
    assert!(refused.to_string().contains("refuses") || refused.to_string().contains("Permission denied"), "{refused}");
    server.stop();
    let away = get(&*volume).unwrap_err();
    assert!(matches!(away, VolumeError::Away { .. }), "{away}");
    server.start_again();
    until_there(&*volume);
    assert_eq!(get(&*volume).unwrap(), b"label");
    // What the volume lies on is not mounted: nothing is missing, and nothing is written beside it.
    std::fs::rename(server.data(), folder.path().join("data/elsewhere")).unwrap();
    if matches!(kind, Kind::RcloneDav | Kind::RcloneDavTls | Kind::RcloneSftp) {
        // It remembers for a while what was in a folder.
        server.stop();
        server.start_again();
    }
    let start = Instant::now();
    loop {
        let mut byte = [0];
        let outcomes = [
            volume.get("segments/1", 0, &mut byte, &MediumWait::NONE).err(),
            volume.put("segments/1", b"x").err(),
            volume.delete("segments/1").err(),
            volume.list("segments/").err(),
            volume.list("").err(),
        ];
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Some(VolumeError::Away { .. }))), "{outcomes:?}");
        // Until it is the folder that is away, and not the server.
        if outcomes.iter().flatten().all(|error| error.to_string().contains("mount what it lies on")) {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(300), "{outcomes:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(!server.data().exists());
}

#[test]
fn webdav_of_rclone() {
    behaves("webdav_of_rclone", Kind::RcloneDav);
}

/// P-149: with TLS, and a certificate that only the place names.
#[test]
fn webdav_over_tls() {
    behaves("webdav_over_tls", Kind::RcloneDavTls);
}

/// P-149: a certificate that nobody vouches for is not believed.
#[test]
fn a_server_with_another_certificate_is_not_spoken_to() {
    const NAME: &str = "a_server_with_another_certificate_is_not_spoken_to";
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = Server::start(NAME, Kind::RcloneDavTls, folder.path()) else { return };
    let (place, _) =
        server.place().split_once(",ca=").map(|(place, rest)| (place.to_owned(), rest.to_owned())).unwrap();
    let error = stere_tertiary::open(&place).unwrap().put("x", b"x").unwrap_err();
    assert!(matches!(&error, VolumeError::Away { .. }) && error.to_string().contains("certificate"), "{error}");
    assert_eq!(std::fs::read_dir(server.data()).unwrap().count(), 0);
}

#[test]
fn webdav_of_apache() {
    behaves("webdav_of_apache", Kind::Apache);
}

#[test]
fn sftp_of_rclone() {
    behaves("sftp_of_rclone", Kind::RcloneSftp);
}

#[test]
fn sftp_of_openssh() {
    behaves("sftp_of_openssh", Kind::OpenSsh);
}

/// P-149: a machine that has another key than is known of it is not spoken to; nor is one that nobody knows.
#[test]
fn another_machine_under_the_name_is_not_spoken_to() {
    const NAME: &str = "another_machine_under_the_name_is_not_spoken_to";
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = Server::start(NAME, Kind::OpenSsh, folder.path()) else { return };
    let unknown = server.place().replace("/known", "/nothing");
    for place in [server.place_of_another_machine(), unknown] {
        let volume: Arc<dyn Volume> = stere_tertiary::open(&place).unwrap();
        let error = volume.put("x", b"x").unwrap_err().to_string();
        assert!(error.contains("Host key verification failed"), "{error}");
        let start = Instant::now();
        // And it is left alone for a while: many who are refused are shut out.
        assert!(volume.put("x", b"x").is_err() && start.elapsed() < Duration::from_millis(50), "{:?}", start.elapsed());
    }
    assert_eq!(std::fs::read_dir(server.data()).unwrap().count(), 0);
}

#[test]
fn nothing_secret_is_in_a_place() {
    for place in ["dav://me:secret@127.0.0.1/x", "sftp://me:secret@127.0.0.1/x"] {
        let error = stere_tertiary::open(place).err().unwrap();
        assert!(!error.contains("secret"), "{error}");
    }
}
