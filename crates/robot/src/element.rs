//! What a changer says of its elements: arms, slots, mail slots and drives, and what lies in them. Replies are hostile input.

/// What an element is; the codes of READ ELEMENT STATUS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ElementKind {
    Arm,
    Slot,
    MailSlot,
    Drive,
}

impl ElementKind {
    pub const ALL: [ElementKind; 4] = [ElementKind::Arm, ElementKind::Slot, ElementKind::MailSlot, ElementKind::Drive];

    pub fn code(self) -> u8 {
        match self {
            ElementKind::Arm => 1,
            ElementKind::Slot => 2,
            ElementKind::MailSlot => 3,
            ElementKind::Drive => 4,
        }
    }

    pub fn from_code(code: u8) -> Option<ElementKind> {
        ElementKind::ALL.into_iter().find(|kind| kind.code() == code)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    pub kind: ElementKind,
    pub address: u16,
    pub is_full: bool,
    /// The changer is not sure of it.
    pub is_exceptional: bool,
    /// The slot that the medium came from, where the changer knows.
    pub source: Option<u16>,
    /// What is printed on the medium, if there is one and it was read.
    pub barcode: String,
}

/// Where elements are: first address and number, of arms, slots, mail slots and drives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Elements {
    pub arms: (u16, u16),
    pub slots: (u16, u16),
    pub mail_slots: (u16, u16),
    pub drives: (u16, u16),
}

impl Elements {
    pub fn of(&self, kind: ElementKind) -> (u16, u16) {
        match kind {
            ElementKind::Arm => self.arms,
            ElementKind::Slot => self.slots,
            ElementKind::MailSlot => self.mail_slots,
            ElementKind::Drive => self.drives,
        }
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|two| u16::from_be_bytes(*two))
}

fn u24_at(bytes: &[u8], at: usize) -> Option<usize> {
    let &[a, b, c] = bytes.get(at..)?.first_chunk()?;
    Some(usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c))
}

const PAGE_ASSIGNMENT: u8 = 0x1d;
const ASSIGNMENT_BYTES: usize = 18;

/// Decodes the reply to MODE SENSE(6) for the page of element addresses.
pub fn decode_assignment(reply: &[u8]) -> Option<Elements> {
    let descriptors = usize::from(*reply.get(3)?);
    let page = reply.get(4 + descriptors..)?;
    if page.first()? & 0x3f != PAGE_ASSIGNMENT || page.len() < ASSIGNMENT_BYTES {
        return None;
    }
    let pair = |at: usize| Some((u16_at(page, at)?, u16_at(page, at + 2)?));
    let elements = Elements { arms: pair(2)?, slots: pair(6)?, mail_slots: pair(10)?, drives: pair(14)? };
    let fits = |(first, count): (u16, u16)| first.checked_add(count).is_some();
    ElementKind::ALL.into_iter().all(|kind| fits(elements.of(kind))).then_some(elements)
}

const HEADER_BYTES: usize = 8;
const DESCRIPTOR_BYTES_MIN: usize = 12;
const BARCODE_BYTES: usize = 32;

/// Decodes the reply to READ ELEMENT STATUS. Some changers cut the last descriptor short: what is there of it counts.
pub fn decode_status(reply: &[u8]) -> Option<Vec<Element>> {
    let all = u24_at(reply, 5)?;
    let mut rest = reply.get(HEADER_BYTES..)?;
    rest = &rest[..rest.len().min(all)];
    let mut elements = Vec::new();
    while rest.len() >= HEADER_BYTES {
        let kind = ElementKind::from_code(rest[0])?;
        let has_barcode = rest[1] & 0x80 != 0;
        let descriptor_bytes = usize::from(u16_at(rest, 2)?);
        let bytes = u24_at(rest, 5)?;
        if descriptor_bytes < DESCRIPTOR_BYTES_MIN {
            return None;
        }
        let after = &rest[HEADER_BYTES..];
        let (page, next) = after.split_at(bytes.min(after.len()));
        for descriptor in page.chunks(descriptor_bytes) {
            elements.extend(decode_descriptor(kind, has_barcode, descriptor));
        }
        rest = next;
    }
    Some(elements)
}

/// None for one of which too little is there.
fn decode_descriptor(kind: ElementKind, has_barcode: bool, bytes: &[u8]) -> Option<Element> {
    let address = u16_at(bytes, 0)?;
    let flags = *bytes.get(2)?;
    let source = match bytes.get(9) {
        Some(valid) if valid & 0x80 != 0 => u16_at(bytes, 10),
        _ => None,
    };
    let is_full = flags & 1 != 0;
    let tag = match (has_barcode && is_full, bytes.get(DESCRIPTOR_BYTES_MIN..)) {
        (true, Some(rest)) => &rest[..rest.len().min(BARCODE_BYTES)],
        _ => &[],
    };
    let is_printable = |byte: &u8| (0x21..0x7f).contains(byte);
    let barcode: String = tag.iter().take_while(|byte| is_printable(byte)).map(|byte| char::from(*byte)).collect();
    Some(Element { kind, address, is_full, is_exceptional: flags & 4 != 0, source, barcode })
}

/// Writes such a reply, for simulated changers.
pub fn encode_status(kind: ElementKind, first: u16, elements: &[Element]) -> Vec<u8> {
    let descriptor_bytes = DESCRIPTOR_BYTES_MIN + 36 + 4;
    let page_bytes = descriptor_bytes * elements.len();
    assert!(page_bytes + HEADER_BYTES < 1 << 24, "the length of a page of {} elements fits", elements.len());
    let is_asked = |element: &Element| element.kind == kind && element.address >= first;
    assert!(elements.iter().all(is_asked), "a page has elements of its kind, from {first} on");
    let u24 = |value: usize| [(value >> 16) as u8, (value >> 8) as u8, value as u8];
    let mut out = first.to_be_bytes().to_vec();
    out.extend((elements.len() as u16).to_be_bytes());
    out.push(0);
    out.extend(u24(page_bytes + HEADER_BYTES));
    out.extend([kind.code(), 0x80]);
    out.extend((descriptor_bytes as u16).to_be_bytes());
    out.push(0);
    out.extend(u24(page_bytes));
    for element in elements {
        let start = out.len();
        out.extend(element.address.to_be_bytes());
        out.push(u8::from(element.is_full) | u8::from(element.is_exceptional) << 2);
        out.resize(start + 9, 0);
        out.push(if element.source.is_some() { 0x80 } else { 0 });
        out.extend(element.source.unwrap_or(0).to_be_bytes());
        let tag = element.barcode.as_bytes();
        out.extend(&tag[..tag.len().min(BARCODE_BYTES)]);
        out.resize(start + DESCRIPTOR_BYTES_MIN + BARCODE_BYTES, b' ');
        out.resize(start + descriptor_bytes, 0);
    }
    out
}

#[cfg(test)]
mod tests;
