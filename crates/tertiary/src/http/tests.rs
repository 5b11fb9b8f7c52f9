//! P-155: slow servers and silent ones, played by a listener: what drips is had, however long it takes, and silence ends.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Instant;

use stere_device::{Cancellation, MediumWait, Volume};

use super::*;
use crate::dav::DavVolume;
use crate::s3::S3Volume;

/// Instead of a minute.
const LIMIT: Duration = Duration::from_secs(1);
const LIMITS: Slowness = Slowness { silence: LIMIT, least_bytes: 16, list: LIMIT };
/// What must not be ended gets more, so that a busy machine may stand still for some seconds between two pieces.
const LONG: Duration = Duration::from_secs(4);
/// Between two pieces.
const PAUSE: Duration = Duration::from_millis(250);
/// Of an object: they take longer than `LONG`.
const PIECES: usize = 20;
/// More than the kernel keeps for a server that takes nothing.
const PUT_BYTES: usize = 32 << 20;

/// How a server gives bodies, and takes them.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Manner {
    /// A piece, then a pause, then the next.
    Drips,
    /// A byte, then a pause, without end.
    Trickles,
    /// One piece, then nothing.
    StopsInTheMiddle,
    /// Nothing at all, not even a head.
    Silent,
}

/// The head of a request, and how many bytes follow.
fn request_of(reader: &mut impl BufRead) -> Option<(String, usize)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let lower = head.to_lowercase();
    let length = lower.split_once("content-length: ").and_then(|(_, rest)| rest.lines().next()?.trim().parse().ok());
    Some((head, length.unwrap_or(0)))
}

/// Reads a body as slowly as it should; false if it stays where it is.
fn take_body(reader: &mut impl Read, length: usize, manner: Manner) -> bool {
    let mut left = length;
    // So long a request is an object.
    let is_object = length > 1 << 20;
    let mut piece = vec![0; if is_object { length.div_ceil(PIECES) } else { length }];
    while left > 0 {
        let count = piece.len().min(left);
        if reader.read_exact(&mut piece[..count]).is_err() {
            return false;
        }
        left -= count;
        match manner {
            Manner::Drips if is_object => std::thread::sleep(PAUSE),
            Manner::Drips | Manner::Trickles => {}
            _ if is_object => return false,
            _ => {}
        }
    }
    true
}

/// Keeps the connection and does nothing, until the test ends.
fn stay() -> ! {
    loop {
        std::thread::park();
    }
}

/// One connection, until it is closed from the other side.
fn serve(stream: &TcpStream, manner: Manner) -> Option<()> {
    let (mut reader, mut stream) = (BufReader::new(stream.try_clone().ok()?), stream);
    loop {
        let (head, length) = request_of(&mut reader)?;
        if !take_body(&mut reader, length, manner) {
            stay();
        }
        let method = head.split(' ').next().unwrap_or_default();
        match method {
            "GET" if manner == Manner::Silent => stay(),
            "GET" if manner == Manner::Trickles => {
                write!(stream, "HTTP/1.1 206 Partial\r\ncontent-length: 80\r\n\r\n").ok()?;
                for byte in 0..80 {
                    stream.write_all(&[byte]).ok()?;
                    std::thread::sleep(PAUSE);
                }
            }
            "GET" => {
                let body: Vec<u8> = (0..80).collect();
                write!(stream, "HTTP/1.1 206 Partial\r\ncontent-length: {}\r\n\r\n", body.len()).ok()?;
                for piece in body.chunks(body.len() / PIECES) {
                    stream.write_all(piece).ok()?;
                    if manner == Manner::StopsInTheMiddle {
                        stay();
                    }
                    std::thread::sleep(PAUSE);
                }
            }
            "PROPFIND" => {
                let body = "<multistatus xmlns='DAV:'><response><href>/pre/</href><propstat><prop><resourcetype><collection/>\
                            </resourcetype></prop><status>HTTP/1.1 200 OK</status></propstat></response></multistatus>";
                write!(stream, "HTTP/1.1 207 Multi-Status\r\ncontent-length: {}\r\n\r\n{body}", body.len()).ok()?;
            }
            _ => stream.write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n").ok()?,
        }
    }
}

fn server(manner: Manner) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(&stream, manner));
        }
    });
    address
}

/// An S3 and a WebDAV volume at a server, that wait for no more than `LIMIT`.
fn volumes(address: SocketAddr) -> [Box<dyn Volume>; 2] {
    volumes_with(address, LIMITS)
}

fn volumes_with(address: SocketAddr, limits: Slowness) -> [Box<dyn Volume>; 2] {
    let keys = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(keys.path(), "access_key=a\nsecret_key=b\n").unwrap();
    let place = format!("s3://cold/pre,endpoint=http://{address},credentials={}", keys.path().display());
    let mut bucket = S3Volume::open(&place).unwrap();
    let mut folder = DavVolume::open(&format!("dav://{address}/pre")).unwrap();
    for http in [&mut bucket.http, &mut folder.http] {
        *http = Http::with_limit(http.text.clone(), 0, TlsConfig::default(), limits);
    }
    [Box::new(bucket), Box::new(folder)]
}

fn nowhere() -> Take {
    Arc::new(|_: &[u8]| ())
}

type Act<'a> = (&'static str, &'a mut dyn FnMut() -> Result<(), VolumeError>);

/// Each way to have and to give an object, with how long it took.
fn outcomes(volume: &dyn Volume) -> Vec<(&'static str, Result<(), VolumeError>, Duration)> {
    let mut part = [0; 80];
    let object = vec![7; PUT_BYTES];
    let acts: [Act<'_>; 3] = [
        ("get", &mut || volume.get("segments/x", 0, &mut part, &MediumWait::NONE)),
        ("stream", &mut || volume.stream("segments/x", 80, &nowhere(), &Cancellation::NONE)),
        ("put", &mut || volume.put("segments/x", &object)),
    ];
    let mut outcomes = Vec::new();
    for (name, act) in acts {
        let start = Instant::now();
        let outcome = act();
        outcomes.push((name, outcome, start.elapsed()));
    }
    assert!(outcomes[0].1.is_err() || part.iter().copied().eq(0..80), "what dripped is right");
    outcomes
}

#[test]
fn what_drips_for_longer_than_the_limit_is_had() {
    std::thread::scope(|scope| {
        for volume in volumes_with(server(Manner::Drips), Slowness { silence: LONG, ..LIMITS }) {
            scope.spawn(move || {
                for (name, outcome, took) in outcomes(&*volume) {
                    assert!(outcome.is_ok(), "{} {name}: {outcome:?} after {took:?}", volume.describe());
                    assert!(took > LONG + PAUSE, "{} {name}: {took:?} proves nothing", volume.describe());
                }
            });
        }
    });
}

#[test]
fn silence_for_longer_than_the_limit_ends_and_says_what_to_do() {
    let ends = |volume: &dyn Volume, manner: Manner| {
        for (name, outcome, took) in outcomes(volume) {
            let what = if name == "put" { "took nothing" } else { "sent nothing" };
            let Err(VolumeError::Away { why, .. }) = &outcome else { panic!("{name} {manner:?}: {outcome:?}") };
            let words = format!("the server {what} for 1s; look whether it works, and the way to it");
            assert!(why.contains(&words), "{} {name} {manner:?}: {why}", volume.describe());
            assert!(took >= LIMIT && took < 5 * LIMIT, "{} {name} {manner:?}: {took:?}", volume.describe());
        }
    };
    std::thread::scope(|scope| {
        for manner in [Manner::StopsInTheMiddle, Manner::Silent] {
            for volume in volumes(server(manner)) {
                scope.spawn(move || ends(&*volume, manner));
            }
        }
    });
}

/// Bytes that arrive keep nobody who is gone.
#[test]
fn what_drips_is_not_waited_for_by_who_is_gone() {
    for volume in volumes(server(Manner::Drips)) {
        let start = Instant::now();
        let is_gone = move || start.elapsed() > Duration::from_millis(50);
        let outcome = volume.stream("segments/x", 80, &nowhere(), &Cancellation::when(is_gone));
        assert!(matches!(outcome, Err(VolumeError::GivenUp { .. })), "{outcome:?}");
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    }
}

/// P-202: a byte now and then keeps no connection: twice the limit, and it is said how little came.
#[test]
fn what_trickles_ends() {
    std::thread::scope(|scope| {
        for volume in volumes(server(Manner::Trickles)) {
            scope.spawn(move || {
                let mut part = [0; 80];
                let start = Instant::now();
                let read = volume.get("segments/x", 0, &mut part, &MediumWait::NONE);
                let streamed = volume.stream("segments/x", 80, &nowhere(), &Cancellation::NONE);
                for outcome in [read, streamed] {
                    let Err(VolumeError::Away { why, .. }) = &outcome else { panic!("{outcome:?}") };
                    assert!(why.contains("bytes in 2 s; look whether it works"), "{why}");
                }
                assert!(start.elapsed() < 10 * LIMIT, "{:?}", start.elapsed());
            });
        }
    });
}

/// P-202: a list that goes on by small pieces, each in time, ends all the same.
#[test]
fn a_list_has_its_time() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().flatten().enumerate() {
            std::thread::spawn(move || list_without_end(&stream, number));
        }
    });
    for volume in volumes(address) {
        let start = Instant::now();
        let outcome = volume.list("segments/");
        let Err(VolumeError::Away { why, .. }) = &outcome else { panic!("{outcome:?}") };
        assert!(why.contains("does not end"), "{}: {why}", volume.describe());
        assert!(start.elapsed() < 5 * LIMIT, "{:?}", start.elapsed());
    }
}

/// A page of one name for a bucket, and names without end for a folder; both slowly.
fn list_without_end(stream: &TcpStream, number: usize) -> Option<()> {
    let (mut reader, mut stream) = (BufReader::new(stream.try_clone().ok()?), stream);
    let (head, length) = request_of(&mut reader)?;
    take_body(&mut reader, length, Manner::Drips);
    if head.starts_with("GET") {
        std::thread::sleep(PAUSE);
        let body = format!(
            "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><MaxKeys>1</MaxKeys>\
             <NextContinuationToken>{number}</NextContinuationToken><Contents><Key>pre/segments/{number}</Key>\
             <LastModified>x</LastModified><ETag>e</ETag><Size>7</Size></Contents></ListBucketResult>"
        );
        write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len()).ok()?;
        return Some(());
    }
    write!(stream, "HTTP/1.1 207 Multi-Status\r\ncontent-length: 100000000\r\n\r\n<multistatus xmlns='DAV:'>").ok()?;
    loop {
        write!(stream, "<response><href>/pre/segments/{number}</href><propstat><prop><getcontentlength>7</getcontentlength></prop><status>HTTP/1.1 200 OK</status></propstat></response>").ok()?;
        std::thread::sleep(PAUSE);
    }
}
