//! What a WebDAV server says is in a folder: the answer to PROPFIND (RFC 4918, 9.1 and 13), read as it arrives.
//!
//! Only what this crate asks for is looked at: `href`, `resourcetype`, `getcontentlength`, `status`. Invariant: whatever a server sends,
//! memory is bounded: one piece of the answer at a time, of 64 KiB at most, and `MEMBERS_MAX` names.

use std::io::{BufRead, Read};

use percent_encoding::percent_decode_str;
use quick_xml::events::Event;
use quick_xml::name::{Namespace, ResolveResult};
use quick_xml::reader::NsReader;

/// An element's tag, or a piece of text, is not longer.
const PIECE_BYTES_MAX: usize = 64 << 10;
/// An answer is not longer.
const ANSWER_BYTES_MAX: usize = 512 << 20;
/// A path is not longer.
const PATH_BYTES_MAX: usize = 4 << 10;
/// More are not in a folder of stere's: a volume of 4 TiB in objects of 4 MiB.
const MEMBERS_MAX: usize = 1 << 20;
const DEPTH_MAX: usize = 64;

/// Something in a folder, or the folder itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Member {
    /// The parts of its path on the server, without what escapes them.
    pub path: Vec<String>,
    pub is_folder: bool,
    pub length: Option<u64>,
}

/// Why an answer is not understood.
#[derive(Debug, thiserror::Error)]
pub enum MultistatusError {
    #[error("its list is no XML: {0}")]
    Xml(#[from] quick_xml::Error),
    #[error("its list is not one of WebDAV's: {0}")]
    Form(&'static str),
    #[error("its list is too long: {0}")]
    Long(&'static str),
}

/// Gives no more than it may, in all and for each piece.
struct Bounded<R> {
    inner: R,
    piece_left: usize,
    left: usize,
}

impl<R: BufRead> Read for Bounded<R> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let found = self.fill_buf()?;
        let count = found.len().min(into.len());
        into[..count].copy_from_slice(&found[..count]);
        self.consume(count);
        Ok(count)
    }
}

impl<R: BufRead> BufRead for Bounded<R> {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        let most = self.left.min(self.piece_left);
        let found = self.inner.fill_buf()?;
        if most == 0 && !found.is_empty() {
            return Err(std::io::Error::other("it does not end"));
        }
        Ok(&found[..found.len().min(most)])
    }

    fn consume(&mut self, count: usize) {
        self.inner.consume(count);
        self.left -= count;
        self.piece_left -= count;
    }
}

/// The elements that tell something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Element {
    Multistatus,
    Response,
    Href,
    Propstat,
    Status,
    ContentLength,
    Collection,
    Other,
}

fn element(namespace: &ResolveResult<'_>, name: &str) -> Element {
    if *namespace != ResolveResult::Bound(Namespace("DAV:")) {
        return Element::Other;
    }
    match name {
        "multistatus" => Element::Multistatus,
        "response" => Element::Response,
        "href" => Element::Href,
        "propstat" => Element::Propstat,
        "status" => Element::Status,
        "getcontentlength" => Element::ContentLength,
        "collection" => Element::Collection,
        _ => Element::Other,
    }
}

/// What was read so far.
#[derive(Default)]
struct State {
    open: Vec<Element>,
    text: String,
    member: Member,
    /// Of the properties that are being read: they count if the server has them.
    is_folder: bool,
    length: Option<u64>,
    is_refused: bool,
    found: Vec<Member>,
    is_whole: bool,
}

impl State {
    fn open(&mut self, element: Element) -> Result<(), MultistatusError> {
        if self.open.is_empty() && (element != Element::Multistatus || self.is_whole) {
            return Err(MultistatusError::Form("it is no multistatus"));
        }
        if self.open.len() >= DEPTH_MAX {
            return Err(MultistatusError::Long("it is too deep"));
        }
        match element {
            Element::Response => self.member = Member::default(),
            Element::Propstat => (self.is_folder, self.length, self.is_refused) = (false, None, false),
            Element::Collection => self.is_folder = true,
            _ => {}
        }
        self.text.clear();
        self.open.push(element);
        Ok(())
    }

    fn close(&mut self) -> Result<(), MultistatusError> {
        let text = self.text.trim();
        match self.open.pop() {
            // One in a property is no answer's.
            Some(Element::Href) if self.open.last() == Some(&Element::Response) => self.member.path = path(text)?,
            Some(Element::ContentLength) => self.length = text.parse().ok(),
            // `HTTP/1.1 404 Not Found`
            Some(Element::Status) => self.is_refused = text.split_whitespace().nth(1) != Some("200"),
            Some(Element::Propstat) if !self.is_refused => {
                self.member.is_folder |= self.is_folder;
                self.member.length = self.member.length.or(self.length);
            }
            Some(Element::Response) if self.found.len() >= MEMBERS_MAX => {
                return Err(MultistatusError::Long("there are more than a million names"));
            }
            Some(Element::Response) => self.found.push(std::mem::take(&mut self.member)),
            Some(Element::Multistatus) => self.is_whole = self.open.is_empty(),
            _ => {}
        }
        self.text.clear();
        Ok(())
    }

    fn say(&mut self, text: &str) -> Result<(), MultistatusError> {
        if self.text.len() + text.len() > PIECE_BYTES_MAX {
            return Err(MultistatusError::Long("a text does not end"));
        }
        self.text.push_str(text);
        Ok(())
    }
}

/// The parts of `/a/b%20c`, or of `http://server/a/b%20c`.
fn path(href: &str) -> Result<Vec<String>, MultistatusError> {
    if href.len() > PATH_BYTES_MAX {
        return Err(MultistatusError::Long("a name is too long"));
    }
    let path = match href.split_once("://") {
        Some((scheme, rest)) if !scheme.contains('/') => rest.split_once('/').map_or("", |(_, path)| path),
        _ => href,
    };
    let parts = path.split('/').filter(|part| !part.is_empty());
    let decoded = parts.map(|part| Ok(percent_decode_str(part).decode_utf8()?.into_owned()));
    decoded.collect::<Result<_, std::str::Utf8Error>>().map_err(|_| MultistatusError::Form("a name is not UTF-8"))
}

/// Reads an answer to its end.
pub fn read(from: impl BufRead) -> Result<Vec<Member>, MultistatusError> {
    let mut reader = NsReader::from_reader(Bounded { inner: from, piece_left: 0, left: ANSWER_BYTES_MAX });
    let (mut state, mut buffer) = (State::default(), Vec::new());
    loop {
        buffer.clear();
        reader.get_mut().piece_left = PIECE_BYTES_MAX;
        let (namespace, event) = reader.read_resolved_event_into(&mut buffer)?;
        match event {
            Event::Start(start) => state.open(element(&namespace, start.local_name().as_ref()))?,
            Event::Empty(start) => {
                state.open(element(&namespace, start.local_name().as_ref()))?;
                state.close()?;
            }
            Event::End(_) => state.close()?,
            Event::Text(text) => state.say(&text.into_inner())?,
            Event::CData(text) => state.say(&text.into_inner())?,
            Event::GeneralRef(reference) => match (reference.resolve_char_ref()?, reference.into_inner()) {
                (Some(one), _) => state.say(one.encode_utf8(&mut [0; 4]))?,
                (None, name) => {
                    let known = quick_xml::escape::resolve_predefined_entity(&name);
                    state.say(known.ok_or(MultistatusError::Form("it has entities of its own"))?)?;
                }
            },
            Event::DocType(_) => return Err(MultistatusError::Form("it defines entities")),
            Event::Eof if state.is_whole => return Ok(state.found),
            Event::Eof => return Err(MultistatusError::Form("it ends in the middle")),
            Event::Decl(_) | Event::PI(_) | Event::Comment(_) => {}
        }
    }
}

#[cfg(test)]
mod tests;
