//! Servers that misbehave, played by a listener that answers what it is told to.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use stere_device::{Cancellation, MediumWait, Volume, VolumeError};

use super::*;

/// A server that gives these answers, one for each connection; what it was asked comes back.
fn played(answers: Vec<&'static [u8]>) -> (S3Volume, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = format!("s3://cold/pre,endpoint=http://{}", listener.local_addr().unwrap());
    let (tell, told) = channel();
    std::thread::spawn(move || {
        for answer in answers {
            let Ok((mut stream, _)) = listener.accept() else { return };
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let asked: Vec<String> = lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
            drop(tell.send(asked.join("\n")));
            drop(stream.write_all(answer));
        }
    });
    let place: Place = place.parse().unwrap();
    (S3Volume { credentials: Credentials::new("key", "secret"), ..volume_of(&place) }, told)
}

/// Without looking at the environment.
fn volume_of(place: &Place) -> S3Volume {
    let keys = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(keys.path(), "access_key=a\nsecret_key = b\n").unwrap();
    S3Volume::new(&Place { credentials: Some(keys.path().to_owned()), ..place.clone() }).unwrap()
}

fn get(volume: &S3Volume, offset: u64, length: usize) -> Result<Vec<u8>, VolumeError> {
    get_unless(volume, offset, length, &Cancellation::NONE)
}

fn get_unless(
    volume: &S3Volume,
    offset: u64,
    length: usize,
    cancellation: &Cancellation,
) -> Result<Vec<u8>, VolumeError> {
    let mut bytes = vec![0; length];
    volume.get("segments/x", offset, &mut bytes, &MediumWait::cancelled_by(cancellation)).map(|()| bytes)
}

#[test]
fn a_range_is_asked_for_and_nothing_else_is_taken_for_it() {
    let (volume, asked) = played(vec![
        b"HTTP/1.1 206 Partial\r\ncontent-length: 4\r\nconnection: close\r\n\r\nabcd",
        b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\nconnection: close\r\n\r\n01234567",
        b"HTTP/1.1 206 Partial\r\ncontent-length: 2\r\nconnection: close\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\ncontent-range: bytes 2-5/9\r\ncontent-length: 4\r\nconnection: close\r\n\r\n2345",
        b"HTTP/1.1 206 Partial\r\ncontent-range: bytes 0-3/9\r\ncontent-length: 4\r\nconnection: close\r\n\r\n0123",
        b"HTTP/1.1 416 Range\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
    ]);
    assert_eq!(get(&volume, 2, 4).unwrap(), b"abcd");
    let words = asked.recv().unwrap().to_lowercase();
    assert!(words.contains("range: bytes=2-5") && words.contains("/cold/pre/segments/x"), "{words}");
    assert_eq!(get(&volume, 2, 4).unwrap(), b"2345", "a server that knows no ranges");
    assert!(matches!(get(&volume, 2, 4), Err(VolumeError::Short { .. })));
    assert_eq!(get(&volume, 2, 4).unwrap(), b"2345", "a server that says 200 with a range");
    assert!(matches!(get(&volume, 2, 4), Err(VolumeError::Away { .. })), "another range than was asked for");
    assert!(matches!(get(&volume, 2, 4), Err(VolumeError::Short { .. })));
}

#[test]
fn only_a_missing_object_is_missing() {
    let (volume, _asked) = played(vec![
        b"HTTP/1.1 404 No\r\ncontent-length: 38\r\nconnection: close\r\n\r\n<Error><Code>NoSuchKey</Code></Error>\r\n",
        b"HTTP/1.1 404 No\r\ncontent-length: 41\r\nconnection: close\r\n\r\n<Error><Code>NoSuchBucket</Code></Error>\r\n",
        b"HTTP/1.1 500 Oh\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        b"HTTP/1.1 503 Slow\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        b"HTTP/1.1 403 Who\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        b"HTTP/1.1 206 Partial\r\ncontent-length: 100\r\nconnection: close\r\n\r\nbroken off",
        b"nonsense",
    ]);
    assert!(matches!(get(&volume, 0, 4), Err(VolumeError::NoObject { .. })));
    for what in ["bucket", "500", "503", "403", "cut", "nonsense"] {
        assert!(matches!(get(&volume, 0, 4), Err(VolumeError::Away { .. })), "{what}");
    }
    assert!(matches!(get(&volume, 0, 4), Err(VolumeError::Away { .. })), "nobody listens any more");
}

#[test]
fn a_full_store_is_full_and_lists_go_on() {
    let page = |token: &str| {
        let more = if token.is_empty() {
            String::new()
        } else {
            format!("<NextContinuationToken>{token}</NextContinuationToken>")
        };
        let body = format!(
            "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><MaxKeys>1</MaxKeys>{more}<Contents><Key>pre/segments/{}</Key><LastModified>x</LastModified><ETag>e</ETag><Size>7</Size></Contents></ListBucketResult>",
            if token.is_empty() { "b" } else { "a" }
        );
        let text = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
        &*Box::leak(text.into_bytes().into_boxed_slice())
    };
    let full: &[u8] = b"HTTP/1.1 507 Full\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let (volume, asked) = played(vec![full, page("next"), page("")]);
    assert!(matches!(volume.put("segments/x", b"1"), Err(VolumeError::Full { .. })));
    let volume: Arc<dyn Volume> = Arc::new(volume);
    assert_eq!(volume.list("segments/").unwrap(), [("segments/a".into(), 7), ("segments/b".into(), 7)]);
    assert!(asked.iter().take(3).last().unwrap().contains("continuation-token=next"));
}

/// A server with lists of its own: what page a continuation token asks for, `page` says.
fn lists(page: fn(usize) -> (String, usize)) -> S3Volume {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place: Place = format!("s3://cold/pre,endpoint=http://{}", listener.local_addr().unwrap()).parse().unwrap();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().flatten().enumerate() {
            let mut stream = stream;
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            lines.map_while(Result::ok).take_while(|line| !line.is_empty()).for_each(drop);
            let (token, names) = page(number);
            let names: String = (0..names)
                .map(|at| {
                    format!(
                        "<Contents><Key>pre/segments/{number}-{at}</Key><LastModified>x</LastModified><ETag>e</ETag><Size>7</Size></Contents>"
                    )
                })
                .collect();
            let body = format!(
                "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><MaxKeys>1</MaxKeys><NextContinuationToken>{token}</NextContinuationToken>{names}</ListBucketResult>"
            );
            drop(write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            ));
        }
    });
    volume_of(&place)
}

/// P-202: a list ends, or is refused: tokens that come again, pages without names, and more names than there can be.
#[test]
fn lists_without_end_are_refused() {
    let circle = lists(|number| (format!("token{}", number % 3), 1));
    let nothing = lists(|number| (format!("token{number}"), 0));
    let long = lists(|number| ("x".repeat(10_000) + &number.to_string(), 1));
    let endless = lists(|number| (format!("token{number}"), 10_000));
    for (what, volume) in [("a circle", circle), ("nothing", nothing), ("long words", long), ("endless", endless)] {
        let Err(VolumeError::Away { why, .. }) = volume.list("segments/") else { panic!("{what} has an end") };
        assert!(why.contains("does not end"), "{what}: {why}");
    }
}

#[test]
fn without_credentials_it_is_said_what_is_missing() {
    let place: Place = "s3://cold,credentials=/nowhere".parse().unwrap();
    assert!(S3Volume::new(&place).is_err_and(|why| why.contains("/nowhere")));
    // P-206: keys that are for one server are used for no other, whatever a pool says.
    let keys = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(keys.path(), "host=s3.example.org\naccess_key=a\nsecret_key=b\n").unwrap();
    let at = |host: &str| {
        let place = format!("s3://cold,endpoint=https://{host},credentials={}", keys.path().display());
        S3Volume::open(&place).map(drop)
    };
    assert!(at("s3.example.org").is_ok());
    assert!(at("elsewhere.org").is_err_and(|why| why.contains("is for s3.example.org") && !why.contains("secret")));
}

/// P-95: a server that takes a request and says nothing, or stops in the middle, keeps nobody whose reader is gone; the volume is not
/// called away for that.
#[test]
fn who_is_gone_waits_for_no_answer() {
    use std::time::Instant;
    for said in [&b""[..], b"HTTP/1.1 206 Partial\r\ncontent-length: 100000\r\n\r\nabcd"] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let place: Place = format!("s3://cold/pre,endpoint=http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let volume = volume_of(&place);
        let (end, ended) = channel::<()>();
        let server = std::thread::spawn(move || {
            let mut kept = Vec::new();
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().unwrap();
                stream.write_all(said).unwrap();
                kept.push(stream);
            }
            ended.recv().unwrap_err();
        });
        for is_streamed in [false, true] {
            let start = Instant::now();
            let is_gone = move || start.elapsed() > Duration::from_millis(50);
            let cancellation = Cancellation::when(is_gone);
            let outcome = match is_streamed {
                true => volume.stream("segments/x", 100_000, &(Arc::new(|_: &[u8]| ()) as Take), &cancellation),
                false => get_unless(&volume, 0, 100_000, &cancellation).map(drop),
            };
            assert!(matches!(outcome, Err(VolumeError::GivenUp { .. })), "{outcome:?}");
            assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        }
        drop(end);
        server.join().unwrap();
    }
}

/// What is streamed leaves the connection fit for the next request.
#[test]
fn one_connection_serves_streams_one_after_the_other() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place: Place = format!("s3://cold/pre,endpoint=http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let server = std::thread::spawn(move || {
        // Nobody else is let in.
        let (mut stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        for _ in 0..3 {
            while lines.next().unwrap().unwrap() != "" {}
            stream.write_all(b"HTTP/1.1 206 Partial\r\ncontent-length: 4\r\n\r\nabcd").unwrap();
        }
    });
    let volume = volume_of(&place);
    for _ in 0..3 {
        volume
            .stream_part(
                "segments/x",
                2,
                4,
                &(Arc::new(|piece: &[u8]| assert_eq!(piece, b"abcd")) as Take),
                &Cancellation::NONE,
            )
            .unwrap();
    }
    server.join().unwrap();
}
