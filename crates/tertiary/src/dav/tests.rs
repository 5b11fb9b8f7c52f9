//! Servers that misbehave, played by a listener that answers what it is told to.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};

use super::*;

const LIST: &str = "<multistatus xmlns='DAV:'><response><href>/pre/</href><propstat><prop><resourcetype><collection/></resourcetype>\
    </prop><status>HTTP/1.1 200 OK</status></propstat></response></multistatus>";

/// An answer with these words behind its status.
fn said(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
}

/// A server that gives these answers, one for each connection; what it was asked comes back.
fn played(answers: Vec<String>) -> (DavVolume, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let keys = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(keys.path(), "user = me\npassword=secret\nhost=127.0.0.1\n").unwrap();
    let place = format!("dav://{}/pre,credentials={}", listener.local_addr().unwrap(), keys.path().display());
    let volume = DavVolume::open(&place).unwrap();
    let (tell, told) = channel();
    std::thread::spawn(move || {
        for answer in answers {
            let Ok((mut stream, _)) = listener.accept() else { return };
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut asked = String::new();
            while !asked.ends_with("\r\n\r\n") && reader.read_line(&mut asked).unwrap() > 0 {}
            let header = asked.to_lowercase();
            let length = header
                .split_once("content-length: ")
                .map_or(0, |(_, rest)| rest.lines().next().unwrap().parse().unwrap());
            reader.take(length).read_to_end(&mut Vec::new()).unwrap();
            drop(tell.send(asked));
            drop(stream.write_all(answer.as_bytes()));
        }
    });
    (volume, told)
}

fn get(volume: &DavVolume) -> Result<Vec<u8>, VolumeError> {
    let mut bytes = vec![0; 4];
    volume.get("segments/x", 2, &mut bytes, &MediumWait::NONE).map(|()| bytes)
}

/// P-150: an object is stored under another name, in a folder that is made where the volume's is, and moved.
#[test]
fn an_object_is_moved_to_its_name_when_it_is_whole() {
    let (volume, asked) = played(vec![
        said("207 Multi-Status", LIST),
        said("201 Created", ""),
        said("201 Created", ""),
        said("204 No Content", ""),
        said("201 Created", ""),
        said("201 Created", ""),
    ]);
    volume.put("segments/x", b"1234").unwrap();
    volume.put("segments/y", b"1234").unwrap();
    let asked: Vec<String> = asked.iter().collect();
    let words = [
        "PROPFIND /pre/ ",
        "MKCOL /pre/segments/ ",
        "PUT /pre/segments/x.0.partial ",
        "MOVE /pre/segments/x.0.partial ",
        "PUT /pre/segments/y.0.partial ",
        "MOVE /pre/segments/y.0.partial ",
    ];
    assert_eq!(asked.len(), words.len());
    for (asked, words) in asked.iter().zip(words) {
        assert!(asked.starts_with(words), "{asked}");
        // me:secret
        assert!(asked.contains("authorization: Basic bWU6c2VjcmV0\r\n"), "{asked}");
    }
    assert!(asked[3].contains("/pre/segments/x\r\n") && asked[3].contains("overwrite: T\r\n"), "{}", asked[3]);
}

/// P-150: only a server that has the volume's folder can say that an object is missing, and whatever else it says is another try.
#[test]
fn only_a_missing_object_is_missing() {
    let (volume, _asked) = played(vec![
        said("206 Partial", "abcd"),
        said("200 OK", "01234567"),
        said("404 Not Found", ""),
        said("207 Multi-Status", LIST),
        said("404 Not Found", ""),
        said("404 Not Found", ""),
        said("401 Unauthorized", ""),
        said("302 Found\r\nlocation: http://127.0.0.1:1/", ""),
        said("500 Oh", ""),
        "nonsense".into(),
    ]);
    assert_eq!(get(&volume).unwrap(), b"abcd");
    assert_eq!(get(&volume).unwrap(), b"2345");
    assert!(matches!(get(&volume), Err(VolumeError::NoObject { .. })));
    for words in ["no such folder", "refuses the user", "302", "500", "", ""] {
        let error = get(&volume).unwrap_err();
        assert!(matches!(error, VolumeError::Away { .. }) && error.to_string().contains(words), "{error}");
    }
}

#[test]
fn what_a_server_does_not_take_is_told_apart() {
    let folder = || [said("207 Multi-Status", LIST), said("405 It is there", "")];
    let mut answers = Vec::from(folder());
    answers.extend([said("507 Full", ""), said("204 No Content", "")]);
    for status in ["413 Large", "405 No"] {
        answers.extend(folder());
        answers.push(said(status, ""));
    }
    let (volume, asked) = played(answers);
    assert!(matches!(volume.put("segments/x", b"1"), Err(VolumeError::Full { .. })));
    for words in ["413", "no WebDAV"] {
        assert!(volume.put("segments/x", b"1").unwrap_err().to_string().contains(words), "{words}");
    }
    assert!(asked.iter().nth(3).unwrap().starts_with("DELETE /pre/segments/x.0.partial "));
}

/// P-150: a list that is of something else, does not end or is none says nothing of the volume.
#[test]
fn lists_are_of_the_folder_that_was_asked_for() {
    let file = |href: &str| {
        format!(
            "<response><href>{href}</href><propstat><prop><resourcetype/><getcontentlength>7</getcontentlength></prop><status>HTTP/1.1 200 OK</status></propstat></response></multistatus>"
        )
    };
    let with = |href: &str| said("207 Multi-Status", &LIST.replace("</multistatus>", &file(href)));
    let (volume, _asked) = played(vec![
        with("/pre/a"),
        with("/pre/a.0.partial"),
        with("/pre/b/c"),
        with("/pre/..%2fb"),
        said("207 Multi-Status", &LIST.replace("/pre/", "/front/pre/")),
        said("207 Multi-Status", "<html/>"),
        said("200 OK", LIST),
    ]);
    assert_eq!(volume.list(""), Ok(vec![("a".into(), 7)]));
    for what in ["not whole", "deeper", "elsewhere"] {
        assert_eq!(volume.list(""), Ok(vec![]), "{what}");
    }
    for what in ["another folder", "no list", "no multistatus"] {
        assert!(matches!(volume.list(""), Err(VolumeError::Away { .. })), "{what}");
    }
}

/// What is asked before each object is stored is one request, while the server is known to have the folder.
#[test]
fn a_server_that_just_answered_is_not_asked_for_its_folder() {
    let (volume, asked) = played(vec![said("404 No", ""), said("207 Multi-Status", LIST), said("404 No", "")]);
    assert_eq!(volume.length("segments/x"), Ok(None));
    assert_eq!(volume.length("segments/x"), Ok(None));
    assert_eq!(asked.iter().take(3).filter(|asked| asked.starts_with("HEAD")).count(), 2);
}

#[test]
fn credentials_are_told_to_nobody_else() {
    let keys = tempfile::NamedTempFile::new().unwrap();
    let open = |text: &str| {
        std::fs::write(keys.path(), text).unwrap();
        DavVolume::open(&format!("dav://127.0.0.1:1/x,credentials={}", keys.path().display())).err()
    };
    assert_eq!(open("user=me\npassword=secret\n"), None);
    for (text, words) in [
        ("user=me\npassword=secret\nhost=nas\n", "is for the host nas"),
        ("user=me\n", "password="),
        ("user=a:b\npassword=secret\n", "colon"),
    ] {
        let why = open(text).unwrap();
        assert!(why.contains(words) && !why.contains("secret"), "{why}");
    }
    assert!(DavVolume::open("dav://127.0.0.1:1/x,credentials=/nowhere").err().unwrap().contains("/nowhere"));
    std::fs::write(keys.path(), "no certificate").unwrap();
    let place = format!("davs://127.0.0.1:1/x,ca={}", keys.path().display());
    assert!(DavVolume::open(&place).err().unwrap().contains("certificate"));
}
