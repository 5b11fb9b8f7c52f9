//! Whose writes are not durable, and who has to hear that another machine has written there since (P-280).
//!
//! A client keeps what it wrote until it is durable, and writes it again to the next owner. Where somebody else has written since, this
//! would bring old bytes back. So whoever writes there gets its answer when the one before has heard that this is not his to write again.
//! Invariants: marks rise in the order in which writes are found done; a span is here until its mark is durable, or another's write has
//! taken its place. Read next: `session.rs`; `crates/client/src/retained.rs` is the other side.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use stere_fuse::Next;
use stere_machine_wire::{Frame, Notice};

use crate::connection::Connection;
use crate::session::{Session, Work};

#[cfg(test)]
mod tests;

/// Spans of a file; with more of them those of a writer become one.
const SPANS_MAX: usize = 256;

/// Bytes that a session has written, from `start` to `end`.
struct Span<W> {
    writer: Weak<W>,
    tag: u64,
    start: u64,
    end: u64,
    mark: u64,
}

/// Writes that are not durable, of all sessions (or of what a test puts in their place).
pub(crate) struct Sharing<W = Session> {
    files: Mutex<HashMap<u64, Vec<Span<W>>>>,
    is_over: AtomicBool,
}

impl<W> Default for Sharing<W> {
    fn default() -> Sharing<W> {
        Sharing { files: Mutex::default(), is_over: AtomicBool::new(false) }
    }
}

/// A change of content: by whom, where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Change {
    pub tag: u64,
    pub node: u64,
    pub start: u64,
    pub end: u64,
}

/// Takes what `change` covers out of the spans that are older than `mark`; tells who else has any there, perhaps some that are older.
fn take_over<W>(spans: &mut Vec<Span<W>>, change: &Change, mark: u64) -> Vec<Arc<W>> {
    let covers = |span: &Span<W>| span.start < change.end && change.start < span.end;
    let (mut tags, mut writers) = (Vec::new(), Vec::new());
    // Most writes are the first ones where they go.
    if !spans.iter().any(covers) {
        return writers;
    }
    for span in std::mem::take(spans) {
        let is_covered = covers(&span);
        if is_covered && span.tag != change.tag && !tags.contains(&span.tag) {
            tags.push(span.tag);
            writers.extend(span.writer.upgrade());
        }
        if !is_covered || span.mark >= mark {
            spans.push(span);
            continue;
        }
        let rest = [(span.start, change.start.min(span.end)), (change.end.max(span.start), span.end)];
        let rest = rest.into_iter().filter(|(start, end)| start < end);
        spans.extend(rest.map(|(start, end)| Span { writer: span.writer.clone(), start, end, ..span }));
    }
    writers
}

/// Makes one span of all that a writer has.
fn join<W>(spans: &mut Vec<Span<W>>, tag: u64) {
    let mut own = spans.extract_if(.., |span| span.tag == tag).collect::<Vec<_>>().into_iter();
    let Some(first) = own.next() else { return };
    let all = own.fold(first, |all, span| Span {
        start: all.start.min(span.start),
        end: all.end.max(span.end),
        mark: all.mark.max(span.mark),
        ..all
    });
    spans.push(all);
}

impl<W> Sharing<W> {
    /// A write is done. Gives the mark that it gets, and who has written there before.
    pub fn wrote(&self, writer: &Arc<W>, change: Change, mark: impl FnOnce() -> u64) -> (u64, Vec<Arc<W>>) {
        assert!(change.start <= change.end, "a write of {change:?} ends behind its beginning");
        let mut files = self.files.lock();
        let mark = mark();
        let spans = files.entry(change.node).or_default();
        let others = take_over(spans, &change, mark);
        let Change { tag, start, end, .. } = change;
        spans.push(Span { writer: Arc::downgrade(writer), tag, start, end, mark });
        if spans.len() > SPANS_MAX {
            join(spans, tag);
        }
        (mark, others)
    }

    /// Whether nobody else has written something in a file that is not durable.
    pub fn is_only(&self, tag: u64, node: u64) -> bool {
        self.files.lock().get(&node).is_none_or(|spans| spans.iter().all(|span| span.tag == tag))
    }

    /// A file is durable as it was at this mark. Gives who else has written it before.
    pub fn settled(&self, tag: u64, node: u64, mark: u64) -> Vec<Arc<W>> {
        let mut files = self.files.lock();
        let Some(spans) = files.get_mut(&node) else { return Vec::new() };
        let others = take_over(spans, &Change { tag, node, start: 0, end: u64::MAX }, mark);
        if spans.is_empty() {
            files.remove(&node);
        }
        others
    }

    fn retain(&self, is_kept: impl Fn(&Span<W>) -> bool) {
        self.files.lock().retain(|_, spans| {
            spans.retain(&is_kept);
            !spans.is_empty()
        });
    }

    /// A client has heard that all with this mark or a lower one is durable.
    pub fn let_go(&self, tag: u64, mark: u64) {
        self.retain(|span| span.tag != tag || span.mark > mark);
    }

    /// A session is over, and with it what it kept.
    pub fn ended(&self, tag: u64) {
        self.retain(|span| span.tag != tag);
    }

    /// Whoever waits is not answered any more.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }
}

/// An answer that waits, or a change before it is made: it goes on when the last one who holds it lets it go.
pub(crate) struct HeldAnswer(Mutex<Option<Next>>);

impl HeldAnswer {
    pub fn new(work: Work, bytes: &[u8], place: u64) -> Arc<HeldAnswer> {
        let bytes = bytes.to_vec();
        HeldAnswer::of(Box::new(move || work.finish_shared(&bytes, place)))
    }

    pub fn of(next: Next) -> Arc<HeldAnswer> {
        Arc::new(HeldAnswer(Mutex::new(Some(next))))
    }
}

impl Drop for HeldAnswer {
    fn drop(&mut self) {
        self.0.get_mut().take().into_iter().for_each(|next| next());
    }
}

struct Unconfirmed {
    told: Instant,
    /// None: only that it has heard all before.
    notice: Option<Notice>,
    /// Waits for it; nobody does while the client is away, which hears it when it comes back.
    answer: Option<Arc<HeldAnswer>>,
}

/// What a session was told and has not said that it heard.
#[derive(Default)]
pub(crate) struct Untold {
    notices: BTreeMap<u64, Unconfirmed>,
    /// Marks that are durable.
    definite: BTreeMap<u64, u64>,
    next: u64,
}

/// Answers that nobody waits for any more: to be dropped without a lock of a session, for dropping answers other sessions.
pub(crate) type Released = Vec<Arc<HeldAnswer>>;

impl Untold {
    /// Tells a client, and has the answer wait until it has heard.
    pub fn tell(&mut self, connection: Option<&Connection>, notice: Option<Notice>, answer: Option<&Arc<HeldAnswer>>) {
        self.next += 1;
        let number = self.next;
        let answer = connection.and_then(|connection| {
            notice.iter().for_each(|notice| connection.tell(&Frame::Notify(notice.clone())));
            connection.tell(&Frame::Confirm { number });
            answer.cloned()
        });
        self.notices.insert(number, Unconfirmed { told: Instant::now(), notice, answer });
    }

    /// Whether somebody has waited for so long until the client hears.
    pub fn is_overdue(&self, patience: Duration) -> bool {
        let mut held = self.notices.values().filter(|unconfirmed| unconfirmed.answer.is_some());
        held.next().is_some_and(|first| first.told.elapsed() > patience)
    }

    /// Tells a client that all up to this mark is durable.
    pub fn tell_definite(&mut self, connection: &Connection, mark: u64) {
        self.next += 1;
        connection.tell(&Frame::Definite { mark });
        connection.tell(&Frame::Confirm { number: self.next });
        self.definite.insert(self.next, mark);
    }

    pub fn has_definite(&self) -> bool {
        !self.definite.is_empty()
    }

    /// The client is back.
    pub fn tell_again(&mut self, connection: &Connection) {
        // It hears the next one.
        self.definite.clear();
        for (number, unconfirmed) in &self.notices {
            unconfirmed.notice.iter().for_each(|notice| connection.tell(&Frame::Notify(notice.clone())));
            connection.tell(&Frame::Confirm { number: *number });
        }
    }

    /// It has heard all up to this one. Gives what is durable that it knows of now, too.
    pub fn confirmed(&mut self, number: u64) -> (Released, Option<u64>) {
        let later = self.definite.split_off(&number.saturating_add(1));
        let durable = std::mem::replace(&mut self.definite, later).into_values().max();
        let rest = self.notices.split_off(&number.saturating_add(1));
        let heard = std::mem::replace(&mut self.notices, rest);
        (heard.into_values().filter_map(|unconfirmed| unconfirmed.answer).collect(), durable)
    }

    /// It is away: nobody waits for it.
    pub fn release(&mut self) -> Released {
        self.notices.values_mut().filter_map(|unconfirmed| unconfirmed.answer.take()).collect()
    }
}
