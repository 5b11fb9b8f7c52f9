//! Commands from afar (P-257): what would mean something else on the owner's machine is not carried out there.

use std::path::PathBuf;

use super::*;
use stere_control::message::ScrubOrder;

fn add(device: &str) -> Request {
    let devices = vec![device.parse().expect("a device")];
    Request::Change { change: Change::Add { devices, spare: false, force: false, rebalance: true }, dry_run: true }
}

#[test]
fn paths_of_a_machine_are_refused_and_addresses_are_not() {
    for device in ["/dev/sdb", "disk.img,size=1G", "nbds://n1/disk,ca=/etc/ca.pem", "sftp://me@shed/cold,identity=/k"] {
        let why = why_not_from_afar(&add(device)).unwrap_or_else(|| panic!("{device} is of one machine"));
        assert!(why.contains("which owns the pool"), "{why}");
    }
    for device in ["nbd://n1/disk", "stere://n1/disk,size=1G"] {
        assert_eq!(why_not_from_afar(&add(device)), None, "{device}");
    }
    let new = "/dev/sdc".parse().expect("a device");
    let replace = Change::Replace { old: "a".into(), new, force: false };
    let online = |path: Option<PathBuf>| Change::Online { device: "a".into(), path, wipe: false };
    for (change, is_refused) in [(replace, true), (online(Some("/dev/sdd".into())), true), (online(None), false)] {
        let request = Request::Change { change, dry_run: false };
        assert_eq!(why_not_from_afar(&request).is_some(), is_refused, "{request:?}");
    }
}

#[test]
fn a_mount_is_ended_on_its_machine_and_questions_are_answered() {
    assert!(why_not_from_afar(&Request::Unmount { lazy: false, force: false }).is_some());
    let names = stere_control::io::Names::Plain;
    let order = stere_control::io::Order::Record { file: "/etc/trace".into(), seconds: 1, bytes_max: 1, names };
    assert!(why_not_from_afar(&Request::Io { order }).is_some(), "no machine makes files of another one");
    let asked = [Request::Status, Request::Scrub { order: ScrubOrder::Start }, Request::Flush { wait: true }];
    assert!(asked.iter().all(|request| why_not_from_afar(request).is_none()));
}
