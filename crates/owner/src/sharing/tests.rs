//! Who hears of a write (P-280).

use proptest::prelude::*;

use super::*;

struct Writer;

struct Site {
    sharing: Sharing<Writer>,
    writers: Vec<Arc<Writer>>,
    mark: u64,
}

impl Site {
    fn new() -> Site {
        Site { sharing: Sharing::default(), writers: (0..3).map(|_| Arc::new(Writer)).collect(), mark: 0 }
    }

    fn tags(&self, others: &[Arc<Writer>]) -> Vec<u64> {
        let tag = |other: &Arc<Writer>| self.writers.iter().position(|writer| Arc::ptr_eq(writer, other));
        let mut tags: Vec<u64> = others.iter().filter_map(tag).map(|tag| tag as u64).collect();
        tags.sort_unstable();
        tags
    }

    /// Writes; who has to hear of it.
    fn write(&mut self, tag: u64, start: u64, end: u64) -> Vec<u64> {
        self.mark += 1;
        let mark = self.mark;
        let change = Change { tag, node: 5, start, end };
        let (_, others) = self.sharing.wrote(&self.writers[tag as usize], change, || mark);
        self.tags(&others)
    }
}

#[test]
fn whoever_wrote_there_before_hears_of_it_once() {
    let mut site = Site::new();
    assert!(site.write(0, 0, 100).is_empty());
    assert!(site.write(0, 50, 150).is_empty(), "nobody else has written");
    assert_eq!(site.write(1, 40, 60), [0]);
    assert!(site.write(1, 40, 60).is_empty(), "it is the second one's now");
    assert_eq!(site.write(2, 0, 150), [0, 1]);
    site.sharing.let_go(1, site.mark);
    assert_eq!(site.write(0, 0, 75), [2]);
    site.sharing.let_go(2, site.mark);
    assert!(site.write(0, 75, 150).is_empty(), "all was durable");
}

#[test]
fn a_file_that_is_durable_is_nobodys_to_write_again() {
    let mut site = Site::new();
    site.write(0, 0, 100);
    let before = site.mark;
    site.mark += 1;
    site.write(1, 200, 300);
    assert_eq!(
        site.tags(&site.sharing.settled(2, 5, before + 1)),
        [0, 1],
        "the client tells by the mark what it keeps"
    );
    assert_eq!(site.write(0, 200, 300), [1], "what was written meanwhile is not durable");
    assert!(site.sharing.settled(2, 6, site.mark).is_empty());
}

#[test]
fn a_session_that_is_over_hears_nothing() {
    let mut site = Site::new();
    site.write(0, 0, 100);
    site.sharing.ended(0);
    assert!(site.write(1, 0, 100).is_empty());
    site.writers[1] = Arc::new(Writer);
    assert!(site.write(2, 0, 100).is_empty(), "nobody is there any more");
}

proptest! {
    /// Beside a table of bytes: whoever wrote a byte last hears of it, however many spans were joined.
    #[test]
    fn nobody_is_left_out(writes in prop::collection::vec((0_u64..3, 0_u64..600, 1_u64..40), 1..700)) {
        let (mut site, mut last) = (Site::new(), vec![None; 640]);
        for (tag, start, length) in writes {
            let end = start + length;
            let mut expected: Vec<u64> =
                last[start as usize..end as usize].iter().flatten().copied().filter(|other| *other != tag).collect();
            expected.sort_unstable();
            expected.dedup();
            let told = site.write(tag, start, end);
            prop_assert!(expected.iter().all(|other| told.contains(other)), "{told:?} hear, and {expected:?} had to");
            last[start as usize..end as usize].fill(Some(tag));
        }
    }
}
