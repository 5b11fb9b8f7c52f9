//! One write past the owner, from the offer to the end: threads of their own do this.
//!
//! Invariant: the kernel is answered once, and from then on the bytes are kept until the owner, this one or the next, has them.
//! Read next: `../retained.rs`, `../restore.rs`.

use std::ops::Range;
use std::sync::mpsc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use fuse_wire::abi::opcode;
use fuse_wire::{Request, raw};
use stere_format::{OfferAnswer, RowGrant};

use super::gather::head_for;
use super::{Content, DATA_AT, HEARD_MS_MAX, Job, Prepared, Wanted, WriteContent};
use crate::link::Shared;
use crate::retained::UNENTERED;
use crate::state::{Answer, Answered, Asker, Phase};

/// How often a file is encoded anew for one write, because its policy changes meanwhile.
const ENCODED_MAX: usize = 3;
/// How often who waits for an answer looks whether all is over.
const LOOK: Duration = Duration::from_millis(500);

/// A row that the owner has given for some of the records, from the first of them on.
struct Row {
    grant: RowGrant,
    first: usize,
    range: Range<u64>,
}

/// Content for which the owner has given rows.
struct Offered {
    prepared: Prepared,
    rows: Vec<Row>,
}

impl Shared {
    /// Writes what is taken, until the end. For threads of their own.
    pub fn write_past_owner(&self) {
        while let Some(mut job) = self.direct.next() {
            let content = std::mem::replace(&mut job.content, Content::nothing());
            match (content, self.direct.content.as_ref()) {
                (Content::Gathered { head, data, is_direct }, writing) => {
                    let writing = writing.filter(|writing| is_direct && (writing.is_ready)());
                    self.write_gathered(writing.filter(|_| !self.direct.is_paused(job.node)), &job, &head, &data);
                }
                (Content::Request(request), Some(writing)) => {
                    let given_back = self.write_one(writing, &job, request);
                    // In the order in which they came: what waits is let go after it.
                    let admitted = given_back.and_then(|request| self.admit(request));
                    admitted.into_iter().for_each(|request| self.pass_on(request));
                }
                (Content::Request(request), None) => self.pass_on(request),
                (Content::Again(request), _) => self.take(request),
            }
            self.let_go_behind(self.direct.done(&job));
        }
    }

    /// What has waited for a write goes on.
    fn let_go_behind(&self, requests: Vec<Request>) {
        for request in requests {
            match request.opcode() {
                // It waited for what was gathered before it, and not for what is now.
                opcode::FLUSH => self.admit(request).into_iter().for_each(|request| self.pass_on(request)),
                _ => self.take(request),
            }
        }
    }

    /// Writes what was gathered: past the owner, if it may, or through it.
    fn write_gathered(&self, writing: Option<&WriteContent>, job: &Job, head: &[u8], data: &[u8]) {
        let (node, offset, length) = (job.node, job.range.start, data.len() as u64);
        // The owner that came meanwhile was told all that was kept.
        if !self.state.lock().retained.has_unentered(node, offset, length) {
            return;
        }
        self.direct.note_sent();
        let offered = writing.and_then(|writing| self.offer(writing, &mut None, head, node, data));
        if let Some(offered) = &offered
            && !self.state.lock().retained.has_unentered(node, offset, length)
        {
            // Another owner came meanwhile, and was told: entered now it would come after what others have written since.
            self.withdraw(head, &offered.rows);
            return;
        }
        let left = match &offered {
            Some(offered) => {
                self.let_go_behind(self.direct.is_known(job));
                self.write_rows(job, head, offered)
            }
            None => vec![job.range.clone()],
        };
        if left.is_empty() {
            return;
        }
        if writing.is_some() {
            self.direct.pause(node);
        }
        self.write_left(job, head, data, left);
    }

    /// Writes one. Gives it back where the owner is to have the bytes.
    fn write_one(&self, content: &WriteContent, job: &Job, request: Request) -> Option<Request> {
        let (node, offset) = (job.node, job.range.start);
        let mut head = request.message();
        let mut asker = Some(request);
        if head.len() <= DATA_AT {
            return asker;
        }
        let data = head.split_off(DATA_AT);
        let offered = self.offer(content, &mut asker, &head, node, &data);
        let Some(offered) = offered else {
            self.direct.pause(node);
            return asker;
        };
        let Some(request) = asker else {
            // Whoever wrote it was killed meanwhile.
            self.withdraw(&head, &offered.rows);
            return None;
        };
        self.accept(request, node, offset, &data);
        let left = self.write_rows(job, &head, &offered);
        if !left.is_empty() {
            tracing::debug!(inode = node, offset, "a write goes through the owner, because it could not pass it");
            self.direct.pause(node);
            self.write_left(job, &head, &data, left);
        }
        None
    }

    /// Writes the rows that the owner has given, and has them entered; the ranges that are to go through it.
    fn write_rows(&self, job: &Job, head: &[u8], offered: &Offered) -> Vec<Range<u64>> {
        assert!(!offered.rows.is_empty(), "an offer that was taken has rows");
        // A process that stood still for long asks nobody whether it may, and writes nothing.
        let write = |row: &Row| self.has_heard(row.grant.epoch) && (offered.prepared.write)(&row.grant, row.first);
        let written: Vec<bool> = offered.rows.iter().map(write).collect();
        if written.contains(&true) {
            self.direct.wait_for_lower(job);
        }
        let is_entered = |(row, is_written): &(&Row, bool)| self.enter(head, row, !is_written) && *is_written;
        let left = offered.rows.iter().zip(written).filter(|both| !is_entered(both));
        left.map(|(row, _)| row.range.clone()).collect()
    }

    /// What could not pass the owner goes through it.
    fn write_left(&self, job: &Job, head: &[u8], data: &[u8], left: Vec<Range<u64>>) {
        self.direct.stand_back(job);
        for range in left {
            let part = &data[(range.start - job.range.start) as usize..(range.end - job.range.start) as usize];
            self.write_through(&head_for(head, range.start, part.len()), job.node, range.start, part);
        }
    }

    fn withdraw(&self, head: &[u8], rows: &[Row]) {
        for row in rows {
            self.enter(head, row, true);
        }
    }

    /// Offers content to the owner, as it wants it encoded; the rows that it gives, if it does.
    fn offer(
        &self,
        content: &WriteContent,
        asker: &mut Option<Request>,
        head: &[u8],
        node: u64,
        data: &[u8],
    ) -> Option<Offered> {
        let offset = raw::number_at(head, raw::HEADER_BYTES + 8)?;
        let mut look = || {
            let killed = asker.take_if(|request| self.is_killed_waiting(request));
            killed.into_iter().for_each(|request| request.reply_error(libc::EINTR));
        };
        for _ in 0..ENCODED_MAX {
            let prepared = (content.prepare)(self.direct.encoding(node), node, offset, data.to_vec())?;
            let (rows, answer) = self.offer_records(&prepared, head, offset, &mut look);
            if rows.last().is_some_and(|row| row.range.end == offset + data.len() as u64) {
                return Some(Offered { prepared, rows });
            }
            self.withdraw(head, &rows);
            let Some(OfferAnswer::Encode { compression, checksum, key, stack, record_bytes }) = answer else {
                return None;
            };
            self.direct.note_encoding(node, Wanted { compression, checksum, key, stack, record_bytes });
        }
        None
    }

    /// Offers records until all have rows, or the owner says something else.
    fn offer_records(
        &self,
        prepared: &Prepared,
        head: &[u8],
        offset: u64,
        look: &mut dyn FnMut(),
    ) -> (Vec<Row>, Option<OfferAnswer>) {
        let (mut rows, mut first): (Vec<Row>, usize) = (Vec::new(), 0);
        let (all, last) = (prepared.begins.len() - 1, prepared.begins[prepared.begins.len() - 1]);
        assert!(all > 0 && last > 0, "what is offered has records, and they have bytes");
        while first < all {
            let begin = prepared.begins[first];
            let head = head_for(head, offset + begin, (last - begin) as usize);
            let message = raw::message_as(&head, opcode::OFFER_WRITE, &[&(prepared.offer)(first)]);
            let answer = self.ask_looking(message, look).filter(|answer| answer.errno == 0);
            let answer = answer.and_then(|answer| OfferAnswer::decode(&answer.bytes).ok());
            let Some(OfferAnswer::Granted(grant)) = answer else { return (rows, answer) };
            let end = (first + grant.offsets.len()).min(all);
            let range = offset + begin..offset + prepared.begins[end];
            rows.push(Row { grant: *grant, first, range });
            first = end;
        }
        (rows, None)
    }

    /// The owner has room for a write: the kernel is answered, now or when there is room to keep the bytes.
    fn accept(&self, request: Request, node: u64, offset: u64, data: &[u8]) {
        let mut state = self.state.lock();
        state.retained.keep(node, offset, data, UNENTERED);
        let size = u32::try_from(data.len()).unwrap_or(u32::MAX);
        if state.retained.is_full() {
            let bytes = [size.to_ne_bytes(), [0; 4]].concat();
            state.held_back.push(Answered(request, Answer { place: offset, bytes, ..Answer::default() }));
            drop(state);
            return self.tell_changed();
        }
        drop(state);
        request.reply_written(size);
    }

    /// Whether the owner of this term is the one that is connected, and was heard of lately.
    fn has_heard(&self, epoch: u64) -> bool {
        let is_it = matches!(&self.state.lock().phase, Phase::Ready(wire) if wire.epoch == epoch);
        is_it && self.direct.now_ms().saturating_sub(self.heard_ms()) < HEARD_MS_MAX
    }

    /// Tells the owner that a row is written, or never will be. False: it knows nothing of it, or cannot enter it.
    fn enter(&self, head: &[u8], row: &Row, is_withdrawn: bool) -> bool {
        let Range { start, end } = row.range;
        let words = [row.grant.number, start, end - start, u64::from(is_withdrawn)].map(u64::to_ne_bytes).concat();
        let message = raw::message_as(&head[..raw::HEADER_BYTES], opcode::ENTER_WRITE, &[&words]);
        self.ask(message).is_some_and(|answer| answer.errno == 0)
    }

    /// What the kernel was answered goes through the owner, unless it went to the next one by now.
    fn write_through(&self, head: &[u8], node: u64, offset: u64, data: &[u8]) {
        let length = data.len() as u64;
        while self.state.lock().retained.has_unentered(node, offset, length) && !self.is_over() {
            // Without an answer another owner has been told all, or there is none any more.
            let Some(answer) = self.ask(raw::message_as(head, opcode::WRITE, &[data])) else { continue };
            if !answer.is_leased {
                self.direct.not_granted(node);
            }
            if answer.errno == 0 {
                return;
            }
            let errno = answer.errno;
            tracing::error!(inode = node, offset, errno, "what was answered to its program cannot be written");
            self.state.lock().retained.lose(node, offset, length, errno);
        }
    }

    fn ask(&self, message: Vec<u8>) -> Option<Answer> {
        self.ask_looking(message, &mut || ())
    }

    /// Asks the owner, this one or the next; none when the link is over, or the message means nothing any more.
    fn ask_looking(&self, message: Vec<u8>, look: &mut dyn FnMut()) -> Option<Answer> {
        let (tell, told) = mpsc::channel();
        let number = self.state.lock().enter(Asker::Own(message, tell));
        self.send(number);
        loop {
            match told.recv_timeout(LOOK) {
                Ok(answer) => return Some(answer),
                Err(RecvTimeoutError::Timeout) if !self.is_over() => look(),
                Err(_) => return None,
            }
        }
    }
}
