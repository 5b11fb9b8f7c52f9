use super::*;

fn read_all(text: &str) -> Result<Vec<Member>, MultistatusError> {
    // Small pieces: an answer comes as the network gives it.
    read(std::io::BufReader::with_capacity(7, text.as_bytes()))
}

fn member(path: &[&str], is_folder: bool, length: Option<u64>) -> Member {
    Member { path: path.iter().map(|part| (*part).to_owned()).collect(), is_folder, length }
}

#[test]
fn answers_of_several_servers_are_understood() {
    let apache = r#"<?xml version="1.0" encoding="utf-8"?>
<D:multistatus xmlns:D="DAV:" xmlns:ns0="DAV:">
<D:response xmlns:lp1="DAV:" xmlns:lp2="http://apache.org/dav/props/">
<D:href>/dav/a%20b/</D:href>
<D:propstat><D:prop><lp1:resourcetype><D:collection/></lp1:resourcetype></D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat>
<D:propstat><D:prop><D:getcontentlength/></D:prop><D:status>HTTP/1.1 404 Not Found</D:status></D:propstat>
</D:response>
<D:response><D:href>/dav/a%20b/1.stere</D:href>
<D:propstat><D:prop><lp1:resourcetype xmlns:lp1="DAV:"/><lp1:getcontentlength xmlns:lp1="DAV:">17</lp1:getcontentlength></D:prop>
<D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>
</D:multistatus>
"#;
    let found = read_all(apache).unwrap();
    assert_eq!(found, [member(&["dav", "a b"], true, None), member(&["dav", "a b", "1.stere"], false, Some(17))]);
    let plain = "<multistatus xmlns='DAV:'><response><href>http://x:8/a&amp;b/&#x63;</href><propstat><prop><getcontentlength>\
        <![CDATA[5]]></getcontentlength><y:collection xmlns:y='urn:other'/></prop><status>HTTP/1.1 200 OK</status></propstat></response></multistatus>";
    assert_eq!(read_all(plain).unwrap(), [member(&["a&b", "c"], false, Some(5))]);
    assert_eq!(read_all("<multistatus xmlns='DAV:'/>").unwrap(), []);
}

#[test]
fn what_is_no_list_is_an_error() {
    for wrong in [
        "",
        "nothing",
        "<html></html>",
        "<multistatus/>",
        "<multistatus xmlns='DAV:'><response>",
        "<multistatus xmlns='DAV:'></response>",
        "<multistatus xmlns='DAV:'/><multistatus xmlns='DAV:'/>",
        "<multistatus xmlns='DAV:'><response><href>/%FF</href></response></multistatus>",
        "<!DOCTYPE a [<!ENTITY b 'c'>]><multistatus xmlns='DAV:'/>",
        "<multistatus xmlns='DAV:'>&b;</multistatus>",
    ] {
        assert!(read_all(wrong).is_err(), "{wrong}");
    }
}

/// Counts what is taken from it.
struct Counted<R>(R, usize);

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let count = self.0.read(into)?;
        self.1 += count;
        Ok(count)
    }
}

/// P-150: an answer without an end takes no more memory than one piece of it.
#[test]
fn what_does_not_end_is_given_up() {
    let begin = "<multistatus xmlns='DAV:'><response><href>".as_bytes();
    let mut endless = Counted(begin.chain(std::io::repeat(b'a')), 0);
    assert!(read(std::io::BufReader::new(&mut endless)).is_err());
    assert!(endless.1 < 2 * PIECE_BYTES_MAX, "{} bytes", endless.1);
    let deep: String = std::iter::once("<multistatus xmlns='DAV:'>").chain(std::iter::repeat_n("<a>", 100)).collect();
    assert!(matches!(read_all(&deep), Err(MultistatusError::Long(_))));
    let pieces: String =
        std::iter::once("<multistatus xmlns='DAV:'>").chain(std::iter::repeat_n("a&amp;", 70_000)).collect();
    assert!(matches!(read_all(&pieces), Err(MultistatusError::Long(_))));
}

/// Whatever is changed in an answer, it is read or refused.
#[test]
fn harmed_answers_harm_nobody() {
    let right = "<a:multistatus xmlns:a='DAV:'><a:response><a:href>/x/y</a:href><a:propstat><a:prop><a:getcontentlength>7</a:getcontentlength></a:prop><a:status>HTTP/1.1 200 OK</a:status></a:propstat></a:response></a:multistatus>";
    let mut state = 1u64;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % below
    };
    for _ in 0..20_000 {
        let mut bytes = right.as_bytes().to_vec();
        for _ in 0..=next(4) {
            let at = next(bytes.len());
            bytes[at] = next(256) as u8;
        }
        bytes.truncate(bytes.len() - if next(3) == 0 { next(bytes.len()) } else { 0 });
        drop(read(&bytes[..]));
    }
}
