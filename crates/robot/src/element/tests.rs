use proptest::prelude::*;

use super::*;

fn element(at: u16, barcode: &str) -> Element {
    Element {
        kind: ElementKind::Slot,
        address: 1024 + at,
        is_full: !barcode.is_empty(),
        is_exceptional: false,
        source: (at % 2 == 1).then_some(at),
        barcode: barcode.to_owned(),
    }
}

#[test]
fn a_reply_that_is_cut_tells_what_is_there() {
    let elements = [element(0, "TAP001L5"), element(1, ""), element(2, "TAP002L5")];
    let reply = encode_status(ElementKind::Slot, 1024, &elements);
    assert_eq!(decode_status(&reply).unwrap(), elements);
    // One known changer leaves out the last eight bytes.
    assert_eq!(decode_status(&reply[..reply.len() - 8]).unwrap(), elements);
    let cut = decode_status(&reply[..reply.len() - 60]).unwrap();
    assert_eq!(cut, elements[..2]);
}

#[test]
fn impossible_replies_are_refused() {
    assert_eq!(decode_status(&[]), None);
    let mut reply = encode_status(ElementKind::Slot, 0, &[element(0, "A")]);
    reply[8] = 9;
    assert_eq!(decode_status(&reply), None, "there is no such kind");
    reply[8] = 2;
    (reply[10], reply[11]) = (0, 0);
    assert_eq!(decode_status(&reply), None, "descriptors of no bytes never end");
    assert_eq!(decode_assignment(&[3, 0, 0, 0, 0x1d, 18]), None);
    let mut page = vec![0, 0, 0, 0, 0x1d, 18];
    page.extend([0, 1, 0, 1, 4, 0, 0, 8, 0, 16, 0, 1, 1, 0, 0, 2, 0, 0]);
    let elements = decode_assignment(&page).unwrap();
    assert_eq!((elements.slots, elements.drives), ((1024, 8), (256, 2)));
    page[6..10].copy_from_slice(&[255, 255, 0, 2]);
    assert_eq!(decode_assignment(&page), None, "addresses have sixteen bits");
}

proptest! {
    /// P-100
    #[test]
    fn no_reply_is_too_strange(bytes in proptest::collection::vec(any::<u8>(), 0..400), at in 0usize..400, value in any::<u8>()) {
        crate::fuzz_replies(&bytes);
        let mut reply = encode_status(ElementKind::Slot, 1024, &[element(0, "TAP001L5"), element(1, "X")]);
        let at = at % reply.len();
        reply[at] = value;
        crate::fuzz_replies(&reply);
    }
}
