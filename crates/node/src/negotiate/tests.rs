use super::*;
use std::net::TcpListener;
use stere_nbd::wire::{OptionKind, go, option};

/// What the client gets that sends these bytes and then nothing more, and whether an export was agreed on.
fn converse(directory: &Directory, sent: &[u8]) -> (Vec<u8>, io::Result<Option<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let socket = listener.accept().unwrap().0;
    client.write_all(sent).unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    let agreed = negotiate(directory, &socket).map(|agreed| agreed.map(|agreed| agreed.export.name.clone()));
    drop(socket);
    let mut got = Vec::new();
    let _whole = client.read_to_end(&mut got);
    (got, agreed)
}

fn kinds(mut got: &[u8]) -> Vec<u32> {
    let mut kinds = Vec::new();
    got = &got[18..];
    while let Some((head, rest)) = got.split_at_checked(20) {
        let number = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
        kinds.push(number(12));
        got = &rest[number(16) as usize..];
    }
    kinds
}

const FLAGS: [u8; 4] = [0, 0, 0, 3];

fn directory() -> (tempfile::TempDir, Directory) {
    let folder = tempfile::tempdir().unwrap();
    let directory = Directory::open(folder.path()).unwrap();
    directory.provide("disk", 1 << 20).unwrap();
    (folder, directory)
}

#[test]
fn an_export_is_agreed_on() {
    let (_folder, directory) = directory();
    let plain = [&FLAGS[..], &option(OptionKind::StructuredReply, &[]), &go("disk")].concat();
    let (got, agreed) = converse(&directory, &plain);
    assert_eq!(agreed.unwrap().as_deref(), Some("disk"));
    assert_eq!(kinds(&got), [server::UNSUPPORTED, INFORMATION, INFORMATION, ACKNOWLEDGED]);
    let oldest = [&FLAGS[..], b"IHAVEOPT\0\0\0\x01\0\0\0\x04disk"].concat();
    let (got, agreed) = converse(&directory, &oldest);
    assert_eq!((agreed.unwrap().as_deref(), got.len()), (Some("disk"), 18 + 10));
    let listed = [&FLAGS[..], b"IHAVEOPT\0\0\0\x03\0\0\0\0", &option(OptionKind::Abort, &[])].concat();
    let (got, agreed) = converse(&directory, &listed);
    assert_eq!((agreed.unwrap(), kinds(&got)), (None, vec![server::LISTED, ACKNOWLEDGED, ACKNOWLEDGED]));
}

/// P-246: a client that is not of stere makes nothing, and wrong ones are refused one by one.
#[test]
fn only_clients_of_stere_make_exports() {
    let (folder, directory) = directory();
    let provide =
        |name: &str| option(OptionKind::Provide, &Provide { name: name.into(), size_bytes: 1 << 20 }.encode());
    let hello = option(OptionKind::Hello, &extension::encode_version());
    let (got, _) = converse(&directory, &[&FLAGS[..], &provide("new")].concat());
    assert_eq!(kinds(&got), [server::INVALID]);
    let older = option(OptionKind::Hello, &[0, 0, 0, 9]);
    let (got, _) = converse(&directory, &[&FLAGS[..], &older, &provide("new")].concat());
    assert_eq!(kinds(&got), [INFORMATION, ACKNOWLEDGED, server::INVALID]);
    assert!(!folder.path().join("new").exists());
    let all = [&FLAGS[..], &hello, &provide("../x"), &provide("new"), &go("away"), &go("new")].concat();
    let (got, agreed) = converse(&directory, &all);
    assert_eq!(agreed.unwrap().as_deref(), Some("new"));
    let expected = [3, 1, server::INVALID, 3, 1, server::UNKNOWN, 3, 3, 1];
    assert_eq!(kinds(&got), expected);
}

#[test]
fn what_is_no_negotiation_ends_it() {
    let (_folder, directory) = directory();
    for sent in
        [&b""[..], b"GET / HTTP/1.1\r\n\r\n", &[0, 0, 0, 0], &[0xff; 64], b"\0\0\0\x03IHAVEOPT\0\0\0\x07\xff\0\0\0"]
    {
        let (_, agreed) = converse(&directory, sent);
        assert!(agreed.is_err(), "{sent:?}");
    }
    let endless = [&FLAGS[..], &option(OptionKind::StructuredReply, &[]).repeat(OPTIONS_MAX + 1)].concat();
    assert!(converse(&directory, &endless).1.is_err());
}
