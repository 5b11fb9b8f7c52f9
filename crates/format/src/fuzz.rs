//! Entry points for fuzzers: each takes any bytes, decodes them as one structure and, where that succeeds, proves that
//! what was decoded is encoded to something that decodes to the same. They panic only if a decoder is wrong.
//!
//! Structures that end with a checksum are tried as they are and once more with the checksum put right, since a fuzzer
//! would never guess it. Replayed by `tests/all/decoders.rs` on golden images, corpus and mutations; `fuzz/` at the top of
//! the project drives the same functions with libFuzzer.

use crate::checkpoint::CheckpointRecord;
use crate::dirent::DirentBucket;
use crate::error::DecodeError;
use crate::row::Summary;
use crate::*;

/// Name and function of every entry point.
pub const TARGETS: &[(&str, Target)] = &[
    ("account", account),
    ("accounting", accounting),
    ("address", address),
    ("audit", audit),
    ("blob", blob),
    ("cartridge_block", cartridge_block),
    ("cartridge_index", cartridge_index),
    ("catalogue", catalogue),
    ("checkpoint", checkpoint),
    ("chunk", chunk),
    ("backup", backup),
    ("class", class),
    ("content_digest", content_digest),
    ("content_map", content_map),
    ("offer_answer", offer_answer),
    ("write_offer", write_offer),
    ("dirent", dirent),
    ("dirent_bucket", dirent_bucket),
    ("encryption_key", encryption_key),
    ("extent", extent),
    ("find_index", find_index),
    ("fold", fold),
    ("fold_bundle", fold_bundle),
    ("follow", follow),
    ("heartbeat", heartbeat),
    ("heat", heat),
    ("log_entry", log_entry),
    ("machine_entry", machine_entry),
    ("machine_key", machine_key),
    ("owner_beat", owner_beat),
    ("pool_admission", pool_admission),
    ("inode", inode),
    ("io_trace_block", io_trace_block),
    ("io_trace_header", io_trace_header),
    ("journal_header", journal_header),
    ("journal_payload", journal_payload),
    ("junction", junction),
    ("named_in", named_in),
    ("names_use", names_use),
    ("node", node),
    ("node_reference", node_reference),
    ("place", place),
    ("plugin", plugin),
    ("plugin_stack", plugin_stack),
    ("provenance", provenance),
    ("request", request),
    ("row", row),
    ("rule_log", rule_log),
    ("rules", rules),
    ("scrub", scrub),
    ("damage", damage),
    ("segment", segment),
    ("successors", successors),
    ("summary", summary),
    ("superblock", superblock),
    ("cleaner", cleaner),
    ("object_rows", object_rows),
    ("tier_marks", tier_marks),
    ("tier_policy", tier_policy),
    ("volume", volume),
    ("volume_label", volume_label),
    ("volume_prices", volume_prices),
    ("watched", watched),
    ("xattr", xattr),
];

/// What the decoder said; a panic means that it was wrong.
pub type Target = fn(&[u8]) -> Result<(), DecodeError>;

/// Runs the target that the first byte chooses.
pub fn any(bytes: &[u8]) {
    if let Some((choice, rest)) = bytes.split_first() {
        let (_, target) = TARGETS[usize::from(*choice) % TARGETS.len()];
        // An error is a fine answer to hostile bytes.
        let _ = target(rest);
    }
}

/// For structures of which every value has one encoding only.
fn canonical(bytes: &[u8], encoded: &[u8]) -> Result<(), DecodeError> {
    assert_eq!(bytes, encoded, "what was decoded is encoded to the same bytes");
    Ok(())
}

/// Puts the checksum in the last four of the first `size` bytes right and decodes again.
fn resealed<T>(
    bytes: &[u8],
    size: usize,
    decode: impl Fn(&[u8]) -> Result<T, DecodeError>,
) -> Result<(T, Vec<u8>), DecodeError> {
    match decode(bytes) {
        Ok(_) | Err(DecodeError::Checksum { .. }) => {}
        Err(error) => return Err(error),
    }
    let mut bytes = bytes[..size].to_vec();
    let checksum = crc32c(&bytes[..size - 4]);
    bytes[size - 4..].copy_from_slice(&checksum.to_le_bytes());
    Ok((decode(&bytes)?, bytes))
}

fn account(bytes: &[u8]) -> Result<(), DecodeError> {
    canonical(bytes, &AccountValue::decode(bytes)?.encode())
}

fn accounting(bytes: &[u8]) -> Result<(), DecodeError> {
    canonical(bytes, &AccountingValue::decode(bytes)?.encode())
}

fn address(bytes: &[u8]) -> Result<(), DecodeError> {
    canonical(bytes, &Address::decode(bytes)?.encode())
}

fn content_map(bytes: &[u8]) -> Result<(), DecodeError> {
    canonical(bytes, &ContentMap::decode(bytes)?.encode())
}

fn write_offer(bytes: &[u8]) -> Result<(), DecodeError> {
    canonical(bytes, &WriteOffer::decode(bytes)?.encode())
}

fn offer_answer(bytes: &[u8]) -> Result<(), DecodeError> {
    canonical(bytes, &OfferAnswer::decode(bytes)?.encode())
}

fn node_reference(bytes: &[u8]) -> Result<(), DecodeError> {
    canonical(bytes, &NodeReference::decode(bytes)?.encode())
}

fn blob(bytes: &[u8]) -> Result<(), DecodeError> {
    let mut value = BlobValue::decode(bytes)?;
    canonical(bytes, &value.encode())?;
    let (blocks, stored) = (value.blocks(), value.stored_bytes());
    for block in 0..blocks {
        let offset = value.stored_offset_of_block(block);
        assert!(!value.is_live(block) || offset.is_some(), "live blocks are present");
        if value.encoding == BlobEncoding::PLAIN {
            assert!(offset.is_none_or(|offset| offset + value.block_bytes(block) <= stored));
        }
    }
    let live = value.live_blocks();
    assert_eq!(value.kill(0..blocks), live);
    assert_eq!(BlobValue::decode(&value.encode())?, value);
    Ok(())
}

fn cartridge_block(bytes: &[u8]) -> Result<(), DecodeError> {
    if bytes.len() < CartridgeBlock::SIZE {
        return CartridgeBlock::decode(bytes).map(drop);
    }
    let (block, header) = resealed(bytes, CartridgeBlock::SIZE, CartridgeBlock::decode)?;
    canonical(&header, &block.encode())?;
    block.payload_of(bytes).map(drop)
}

fn cartridge_index(bytes: &[u8]) -> Result<(), DecodeError> {
    canonical(bytes, &CartridgeIndex::decode(bytes)?.encode())
}

fn checkpoint(bytes: &[u8]) -> Result<(), DecodeError> {
    if bytes.len() < 4 {
        return CheckpointRecord::decode(bytes).map(drop);
    }
    let (record, bytes) = resealed(bytes, bytes.len(), CheckpointRecord::decode)?;
    canonical(&bytes, &record.encode()?)
}

fn chunk(bytes: &[u8]) -> Result<(), DecodeError> {
    let (header, bytes) = resealed(bytes, ChunkHeader::SIZE, ChunkHeader::decode)?;
    canonical(&bytes, &header.encode())
}

fn backup(bytes: &[u8]) -> Result<(), DecodeError> {
    canonical(bytes, &BackupValue::decode(bytes)?.encode())
}

fn junction(bytes: &[u8]) -> Result<(), DecodeError> {
    canonical(bytes, &JunctionValue::decode(bytes)?.encode())
}

fn class(bytes: &[u8]) -> Result<(), DecodeError> {
    canonical(bytes, &ClassValue::decode(bytes)?.encode())
}

fn place(bytes: &[u8]) -> Result<(), DecodeError> {
    canonical(bytes, &PlaceValue::decode(bytes)?.encode())
}

fn dirent(bytes: &[u8]) -> Result<(), DecodeError> {
    canonical(bytes, &DirentValue::decode(bytes)?.encode())
}

fn dirent_bucket(bytes: &[u8]) -> Result<(), DecodeError> {
    canonical(bytes, &DirentBucket::decode(bytes)?.encode())
}

fn encryption_key(bytes: &[u8]) -> Result<(), DecodeError> {
    if bytes.len() < 4 {
        return EncryptionKey::decode(bytes).map(drop);
    }
    let (key, bytes) = resealed(bytes, bytes.len(), EncryptionKey::decode)?;
    canonical(&bytes, &key.encode())
}

fn extent(bytes: &[u8]) -> Result<(), DecodeError> {
    canonical(bytes, &ExtentValue::decode(bytes)?.encode())
}

fn inode(bytes: &[u8]) -> Result<(), DecodeError> {
    let value = InodeValue::decode(bytes)?;
    assert!(value.kind().is_some());
    canonical(bytes, &value.encode())
}

fn journal_header(bytes: &[u8]) -> Result<(), DecodeError> {
    let (header, bytes) = resealed(bytes, JournalHeader::SIZE, JournalHeader::decode)?;
    canonical(&bytes, &header.encode())?;
    let payload = header.payload(&bytes);
    assert!(payload.is_err() || header.payload_length == 0, "only the header is there");
    Ok(())
}

fn journal_payload(bytes: &[u8]) -> Result<(), DecodeError> {
    let mut encoded = Vec::new();
    for change in JournalChanges::new(bytes) {
        let (key, value) = change?;
        append_change(&mut encoded, &key, value);
    }
    canonical(bytes, &encoded)
}

fn node(bytes: &[u8]) -> Result<(), DecodeError> {
    let node = Node::parse(bytes.into())?;
    let mut builder = NodeBuilder::new(node.level());
    for index in 0..node.count() {
        let key = node.key(index);
        assert_eq!(node.search(&key), Ok(index));
        if node.is_leaf() {
            builder.push_value(&key, node.value(index));
        } else {
            assert_eq!(node.child_index(&key), index);
            builder.push_child(&key, &node.child(index));
        }
    }
    let (first_key, encoded) = builder.take(node.count());
    assert_eq!(first_key, node.first_key());
    canonical(bytes, &encoded)
}

fn plugin(bytes: &[u8]) -> Result<(), DecodeError> {
    canonical(bytes, &PluginRecord::decode(bytes)?.encode())
}

fn follow(bytes: &[u8]) -> Result<(), DecodeError> {
    canonical(bytes, &FollowValue::decode(bytes)?.encode())
}

fn content_digest(bytes: &[u8]) -> Result<(), DecodeError> {
    canonical(bytes, &ContentDigests::decode(bytes)?.encode())
}

fn named_in(bytes: &[u8]) -> Result<(), DecodeError> {
    canonical(bytes, &NamedInValue::decode(bytes)?.encode())
}

fn find_index(bytes: &[u8]) -> Result<(), DecodeError> {
    canonical(bytes, &FindIndexValue::decode(bytes)?.encode())
}

fn plugin_stack(bytes: &[u8]) -> Result<(), DecodeError> {
    canonical(bytes, &PluginStack::decode(bytes)?.encode())
}

fn provenance(bytes: &[u8]) -> Result<(), DecodeError> {
    canonical(bytes, &ProvenanceValue::decode(bytes)?.encode())
}

fn audit(bytes: &[u8]) -> Result<(), DecodeError> {
    canonical(bytes, &AuditValue::decode(bytes)?.encode())
}

fn watched(bytes: &[u8]) -> Result<(), DecodeError> {
    canonical(bytes, &WatchedValue::decode(bytes)?.encode())
}

fn row(bytes: &[u8]) -> Result<(), DecodeError> {
    let (header, bytes) = resealed(bytes, RowHeader::SIZE, RowHeader::decode)?;
    canonical(&bytes, &header.encode())
}

fn rule_log(bytes: &[u8]) -> Result<(), DecodeError> {
    canonical(bytes, &RuleLogValue::decode(bytes)?.encode())
}

fn rules(bytes: &[u8]) -> Result<(), DecodeError> {
    canonical(bytes, &RulesValue::decode(bytes)?.encode())
}

fn request(bytes: &[u8]) -> Result<(), DecodeError> {
    canonical(bytes, &RequestValue::decode(bytes)?.encode())
}

fn damage(bytes: &[u8]) -> Result<(), DecodeError> {
    canonical(bytes, &DamageValue::decode(bytes)?.encode())
}

fn scrub(bytes: &[u8]) -> Result<(), DecodeError> {
    canonical(bytes, &ScrubCursor::decode(bytes)?.encode())
}

fn segment(bytes: &[u8]) -> Result<(), DecodeError> {
    canonical(bytes, &SegmentValue::decode(bytes)?.encode())
}

/// A row header, then the summary.
fn summary(bytes: &[u8]) -> Result<(), DecodeError> {
    let (mut header, _) = resealed(bytes, RowHeader::SIZE, RowHeader::decode)?;
    let summary = &bytes[RowHeader::SIZE..];
    header.summary_length = summary.len() as u32;
    header.summary_crc32c = crc32c(summary);
    let entries = Summary::decode(&header, summary)?;
    let mut encoded = Vec::new();
    Summary::encode_to(&entries, &mut encoded);
    canonical(summary, &encoded)
}

fn superblock(bytes: &[u8]) -> Result<(), DecodeError> {
    let (superblock, _) = resealed(bytes, Superblock::SIZE, Superblock::decode)?;
    for offset in superblock.layout.superblock_offsets() {
        assert!(offset + Superblock::SIZE as u64 <= superblock.layout.size_bytes);
    }
    // The order of the checkpoint's segments is free, so the bytes may differ.
    let encoded = superblock.encode()?;
    assert_eq!(Superblock::decode(&encoded)?, superblock);
    Ok(())
}

fn successors(bytes: &[u8]) -> Result<(), DecodeError> {
    canonical(bytes, &Successors::decode(bytes)?.encode())
}

fn fold(bytes: &[u8]) -> Result<(), DecodeError> {
    canonical(bytes, &FoldValue::decode(bytes)?.encode())
}

fn fold_bundle(bytes: &[u8]) -> Result<(), DecodeError> {
    canonical(bytes, &Bundle::decode(bytes)?.encode())
}

fn names_use(bytes: &[u8]) -> Result<(), DecodeError> {
    canonical(bytes, &NamesUse::decode(bytes)?.encode())
}

fn heartbeat(bytes: &[u8]) -> Result<(), DecodeError> {
    let (beat, bytes) = resealed(bytes, Heartbeat::SIZE, Heartbeat::decode)?;
    canonical(&bytes, &beat.encode())
}

fn log_entry(bytes: &[u8]) -> Result<(), DecodeError> {
    let size = bytes.len().max(LogEntry::FIXED_BYTES + 4);
    let (entry, bytes) = resealed(bytes, size, LogEntry::decode)?;
    canonical(&bytes, &entry.encode()?)
}

fn machine_entry(bytes: &[u8]) -> Result<(), DecodeError> {
    let (entry, bytes) = resealed(bytes, MachineEntry::SIZE, MachineEntry::decode)?;
    canonical(&bytes, &entry.encode())
}

fn machine_key(bytes: &[u8]) -> Result<(), DecodeError> {
    let (key, bytes) = resealed(bytes, MachineKeyFile::SIZE, MachineKeyFile::decode)?;
    canonical(&bytes, &key.encode())
}

fn pool_admission(bytes: &[u8]) -> Result<(), DecodeError> {
    let (admission, bytes) = resealed(bytes, PoolAdmission::SIZE, PoolAdmission::decode)?;
    canonical(&bytes, &admission.encode())
}

fn io_trace_header(bytes: &[u8]) -> Result<(), DecodeError> {
    let (header, bytes) = resealed(bytes, IoTraceHeader::SIZE, IoTraceHeader::decode)?;
    canonical(&bytes, &header.encode())
}

/// Header and content have a checksum each; both are put right.
fn io_trace_block(bytes: &[u8]) -> Result<(), DecodeError> {
    let mut bytes = bytes.to_vec();
    if IoTraceBlock::decode(&bytes).is_err() && bytes.len() >= IoTraceBlockHeader::SIZE {
        let (head, content) = bytes.split_at_mut(IoTraceBlockHeader::SIZE);
        head[16..20].copy_from_slice(&crc32c(content).to_le_bytes());
        let checksum = crc32c(&head[..20]);
        head[20..].copy_from_slice(&checksum.to_le_bytes());
    }
    let (block, length) = IoTraceBlock::decode(&bytes)?;
    canonical(&bytes[..length], &block.encode())
}

fn owner_beat(bytes: &[u8]) -> Result<(), DecodeError> {
    let (beat, bytes) = resealed(bytes, OwnerBeat::SIZE, OwnerBeat::decode)?;
    canonical(&bytes, &beat.encode())
}

fn heat(bytes: &[u8]) -> Result<(), DecodeError> {
    let page =
        bytes.get(4..12).map_or(0, |segment| segment.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)));
    canonical(bytes, &HeatPage::decode(page / HeatPage::SEGMENTS, bytes)?.encode())
}

fn catalogue(bytes: &[u8]) -> Result<(), DecodeError> {
    let (structure, field) = ("catalogue", "line without a checksum");
    let mut count = 0;
    for line in catalogue_lines(bytes) {
        let line = line?;
        if crate::catalogue::checksums(line).is_none() {
            return Err(DecodeError::OutOfRange { structure, field, value: count });
        }
        count += 1;
    }
    if count == 0 { Err(DecodeError::Truncated { structure, need: 1, have: 0 }) } else { Ok(()) }
}

fn volume_prices(bytes: &[u8]) -> Result<(), DecodeError> {
    canonical(bytes, &VolumePrices::decode(bytes)?.encode())
}

fn tier_policy(bytes: &[u8]) -> Result<(), DecodeError> {
    canonical(bytes, &TierPolicy::decode(bytes)?.encode())
}

/// A policy of a later version counts as nothing said, so it is not encoded again.
fn cleaner(bytes: &[u8]) -> Result<(), DecodeError> {
    let choice = CleanerChoice::decode(bytes)?;
    assert_eq!(CleanerChoice::decode(&choice.encode())?, choice, "what is meant is decoded again");
    Ok(())
}

/// Whatever lies in an object that begins with a row is walked through, for any count of data chunks.
fn object_rows(bytes: &[u8]) -> Result<(), DecodeError> {
    RowHeader::decode(bytes)?;
    for data_chunks in [1, 2, 7, u8::MAX] {
        let mut rows = ObjectRows::new(data_chunks, bytes);
        while !rows.is_at_end() {
            let given: usize = rows.by_ref().map(|(_, row)| row.len()).sum();
            assert!(given <= bytes.len(), "{given} bytes of {} are given", bytes.len());
            rows.pass_block();
        }
    }
    Ok(())
}

fn tier_marks(bytes: &[u8]) -> Result<(), DecodeError> {
    canonical(bytes, &TierMarks::decode(bytes)?.encode())
}

fn volume(bytes: &[u8]) -> Result<(), DecodeError> {
    assert!(VolumeEntry::decode(TERTIARY_MAX as u64, bytes).is_err(), "there are no more numbers");
    canonical(bytes, &VolumeEntry::decode(3, bytes)?.encode())
}

fn volume_label(bytes: &[u8]) -> Result<(), DecodeError> {
    match VolumeLabel::decode(bytes) {
        Ok(_) | Err(DecodeError::Checksum { .. }) => {}
        Err(error) => return Err(error),
    }
    let bytes = VolumeLabel::resealed(bytes);
    canonical(&bytes, &VolumeLabel::decode(&bytes)?.encode())
}

fn xattr(bytes: &[u8]) -> Result<(), DecodeError> {
    let bucket = XattrBucket::decode(bytes)?;
    for (name, _) in &bucket.entries {
        assert!(XattrBucket::find(bytes, name)?.is_some() && bucket.get(name).is_some());
    }
    canonical(bytes, &bucket.encode())
}
