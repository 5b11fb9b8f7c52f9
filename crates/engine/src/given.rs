//! Content that another machine writes past this one: here its blobs get their numbers and places. Read next: the log's `given.rs`.

use std::sync::atomic::Ordering;

use stere_format::{Address, BlobValue, DeviceIndex, RecordSubject, SummaryEntry, record_checksum};
use stere_log::GivenRow;

use crate::content::{NewBlob, Owner, Placement};
use crate::engine::Engine;
use crate::error::Error;
use crate::places::Places;

impl Places<'_> {
    /// Gives a row away for records of a file, one behind the other; none where they have to be written here. Of the addresses that the
    /// records come with only the lengths count.
    pub fn give_row(
        &self,
        placement: Placement,
        home: Option<DeviceIndex>,
        owner: Owner,
        records: Vec<BlobValue>,
    ) -> Result<Option<(GivenRow, Vec<NewBlob>)>, Error> {
        let engine: &Engine = self.engine;
        assert!(!records.is_empty(), "a row has records");
        engine.check_writable()?;
        let first = engine.next_blob.fetch_add(records.len() as u64, Ordering::AcqRel);
        let (mut described, mut offset) = (Vec::with_capacity(records.len()), owner.offset);
        for (id, record) in (first..).zip(&records) {
            let length = record.address.length;
            let whole = RecordSubject::plain_blob(id, owner.inode, offset, record.logical_bytes);
            let (crc32c, subject) =
                (record_checksum(&record.checksums, length as usize), whole.in_encoding(record.encoding));
            described.push((length, SummaryEntry { offset: 0, length, crc32c, subject, hint: Vec::new() }));
            offset += u64::from(record.logical_bytes);
        }
        let Some(row) = engine.log.give_row(&engine.stream_for(placement, 0, home), described)? else {
            return Ok(None);
        };
        let placed = (first..).zip(records).zip(&row.addresses);
        let blob = |((id, record), address): ((u64, BlobValue), &Address)| {
            let value = BlobValue { address: *address, ..record };
            NewBlob { id, value, segment: row.segment.clone() }
        };
        let blobs = placed.map(blob).collect();
        Ok(Some((row, blobs)))
    }
}
