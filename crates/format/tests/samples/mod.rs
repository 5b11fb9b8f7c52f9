//! One or more examples of every structure, fixed for ever: the golden images and the seeds of the fuzz tests.

use stere_format::dirent::DirentBucket;
use stere_format::*;

mod system;

use system::system_samples;

/// Name of the image, entry point in `stere_format::fuzz`, bytes.
pub type Sample = (&'static str, &'static str, Vec<u8>);

const POOL: PoolId = PoolId(*b"\x10pool-of-samples");
const DEVICE: DeviceId = DeviceId(*b"\x20dev-of-samples!");

pub fn address(at: u32, length: u32) -> Address {
    Address { segment: 0x0102_0304_0506 + u64::from(at), row_block: 17 + at, offset: 512 * (1 + at), length }
}

fn place(data: u8, parity: u8) -> SegmentChunks {
    let scheme = Scheme::new(data, parity).expect("a possible scheme");
    let chunks = (0..scheme.width() as u32).map(|at| ChunkPlace { device: 3 * at as u16, slot: 1000 + at }).collect();
    SegmentChunks { scheme, missing: 0b10, chunks }
}

fn content_map() -> ContentMap {
    let address = Address { segment: 1 << 33, row_block: 1, offset: 512, length: 8192 };
    let value = BlobValue::plain(address, Checksums::of(ChecksumKind::Xxh3, &[7; 8192]));
    let piece = MappedPiece { at: 4096, offset: 0, length: 8192, segment: 0, value };
    ContentMap { length: 70_000, segments: vec![place(4, 1)], pieces: vec![piece] }
}

fn write_offer() -> WriteOffer {
    let record = |length: u32, byte: u8| {
        let checksums = Checksums::of(ChecksumKind::Crc32c, &vec![byte; length as usize]);
        BlobValue::plain(WriteOffer::unplaced(length), checksums)
    };
    WriteOffer { records: vec![record(131_072, 7), record(4096, 9)] }
}

fn row_grant() -> OfferAnswer {
    OfferAnswer::Granted(Box::new(RowGrant {
        number: 1 << 40 | 7,
        epoch: 1,
        segment: 1 << 33,
        place: place(4, 1),
        row_block: 17,
        row_bytes: 139_264,
        offsets: vec![512, 131_584],
        header: [0x5a; RowHeader::SIZE],
        summary_offset: 135_680,
        summary: vec![0xa5; 88],
    }))
}

fn segment(data: u8, parity: u8) -> SegmentValue {
    SegmentValue {
        place: place(data, parity),
        class: 2,
        kind: SegmentKind::Data,
        state: SegmentState::Sealed,
        temperature: 1,
        written_blocks: 1023,
        live_bytes: 3_000_832,
        sequence: 77,
        tertiary: Tertiary::default(),
        site: Site::ANYWHERE,
    }
}

fn meta_segment() -> SegmentValue {
    SegmentValue { kind: SegmentKind::Meta, state: SegmentState::Open, ..segment(1, 2) }
}

fn fold() -> FoldValue {
    let ranges = vec![(Key::dirent_hash(7, 0), Key::inode(8)), (Key::inode(9), Key::inode(300))];
    FoldValue { directory: 5, blob: 77, keys: 12, ranges }
}

fn fold_bundle() -> Bundle {
    Bundle { entries: vec![(Key::dirent_hash(7, 4), vec![1, 2, 3]), (Key::inode(9), vec![9; 20])] }
}

fn names_use() -> NamesUse {
    NamesUse { is_new: true, used_seconds: 1_700_000_000, look_seconds: 1_700_086_400 }
}

fn heat() -> HeatPage {
    let heat = |used_seconds, references, is_back| SegmentHeat { used_seconds, references, is_back };
    HeatPage { entries: vec![(1280, heat(1_700_000_000, 3, true)), (1290, heat(1, 0, false))] }
}

fn archived_segment() -> SegmentValue {
    SegmentValue { tertiary: Tertiary { wanted: 0b101, there: 0b100 }, ..segment(1, 1) }
}

fn released_segment() -> SegmentValue {
    let place = SegmentChunks { missing: 0, chunks: ChunkPlaces::new(), ..place(1, 1) };
    let tertiary = Tertiary { wanted: 0b101, there: 0b101 };
    SegmentValue { place, state: SegmentState::Released, tertiary, ..segment(1, 1) }
}

fn volume(is_offline: bool, place: &str) -> VolumeEntry {
    let id = VolumeId(*b"\x30vol-of-samples!");
    let (name, place) = ("LAB-0042".to_owned(), place.to_owned());
    VolumeEntry {
        number: 3,
        id,
        class: 3,
        is_offline,
        takes_metadata: !is_offline,
        succession: Succession::Stays,
        name,
        place,
    }
}

fn succeeded(succession: Succession) -> VolumeEntry {
    VolumeEntry { succession, ..volume(false, "dir:/old") }
}

fn cartridge_block(generation: u64, kind: CartridgeKind, name: &str, payload: &[u8]) -> Vec<u8> {
    let block = CartridgeBlock {
        kind,
        payload_bytes: payload.len() as u32,
        unit_bytes: 261_632,
        payload_crc32c: crc32c(payload),
        ordinal: if kind == CartridgeKind::Label { 0 } else { 0x0102_0304 },
        object_bytes: 261_632 * u64::from(kind == CartridgeKind::Object) + payload.len() as u64,
        offset: 261_632 * u64::from(kind == CartridgeKind::Object),
        generation,
        set: "tank".to_owned(),
        barcode: "TAP001L5".to_owned(),
        name: name.to_owned(),
    };
    [block.encode(), payload.to_vec()].concat()
}

fn cartridge_index() -> CartridgeIndex {
    let entry = |file, name: &str| CartridgeEntry {
        file,
        unit_bytes: 261_632,
        ordinal: 0x0102_0300 + u64::from(file),
        object_bytes: 4 << 20,
        name: name.to_owned(),
    };
    let entries = vec![entry(1, "stere-volume"), entry(3, "segments/000000000000000a-0000000000000014")];
    CartridgeIndex { files: 4, entries }
}

fn volume_label() -> VolumeLabel {
    let (volume, name) = (VolumeId(*b"\x30vol-of-samples!"), "Übung".to_owned());
    VolumeLabel { pool: POOL, pool_name: "tank".to_owned(), volume, name }
}

fn whole_blob() -> BlobValue {
    BlobValue::plain(address(1, 131_072), (0..32).map(|block| 0xc0de_0000 + block).collect())
}

fn trimmed_blob() -> BlobValue {
    let mut blob = whole_blob();
    blob.references = 3;
    blob.flags = BlobFlags::SHARED;
    blob.logical_bytes = 131_000;
    blob.kill(5..20);
    blob.present = blob.live;
    blob.kill(31..32);
    blob.address.length = blob.plain_bytes_of(&blob.present);
    blob.checksums = blob.checksums[..17].iter().copied().collect();
    blob
}

fn compressed_blob() -> BlobValue {
    let mut blob = whole_blob();
    blob.encoding = BlobEncoding(3);
    blob.address.length = 9000;
    blob.checksums = blob.checksums[..3].iter().copied().collect();
    blob
}

fn zstd_blob() -> BlobValue {
    let mut blob = BlobValue::encoded(
        address(1, 5001),
        [0xfeed_0001, 0xfeed_0002].into_iter().collect(),
        BlobEncoding::ZSTD,
        20_000,
    );
    blob.kill(1..3);
    blob
}

fn encrypted_blob() -> BlobValue {
    let checksums = [0xfeed_0003, 0xfeed_0004].into_iter().collect();
    BlobValue { key: 7, ..BlobValue::encoded(address(1, 4144), checksums, BlobEncoding::ZSTD.encrypted(), 20_000) }
}

fn blob_with_digest(kind: ChecksumKind) -> BlobValue {
    BlobValue::plain(address(1, 5001), Checksums::of(kind, &[0xd6; 5001]))
}

fn plugged_blob() -> BlobValue {
    let checksums = [0xfeed_0005, 0xfeed_0006].into_iter().collect();
    let encoding = BlobEncoding::ZSTD.plugged().encrypted();
    BlobValue { key: 7, stack: 3, ..BlobValue::encoded(address(1, 4144), checksums, encoding, 20_000) }
}

fn plugin(is_removed: bool) -> PluginRecord {
    PluginRecord { name: "delta".into(), module_bytes: 70_000, added_seconds: 1_700_000_000, is_removed }
}

fn follow() -> FollowValue {
    FollowValue {
        is_given_up: true,
        failures: 8,
        events: vec![0, 5, 4],
        stack: 3,
        user: 1000,
        group: 100,
        number: 12,
        since_seconds: 1_700_000_000,
        next_seconds: 1_700_000_128,
        old_name: b"before.txt".to_vec(),
        cause: "the plugin 'words' refused: too long".into(),
    }
}

fn plugin_stack() -> PluginStack {
    let member = |plugin, parameters: &str| StackMember { plugin, parameters: parameters.into() };
    PluginStack { members: vec![member(2, "2"), member(7, ""), member(1, "Übung=ja")] }
}

fn encryption_key(is_removed: bool) -> EncryptionKey {
    let bytes = |first: u8| std::array::from_fn(|at| first.wrapping_add(at as u8));
    let nonce = |first: u8| std::array::from_fn(|at| first.wrapping_sub(at as u8));
    let wrapped =
        |wrapping, first| WrappedKey { wrapping, salt: bytes(first), nonce: nonce(first), key: bytes_48(first) };
    let passphrase = Wrapping::Passphrase { memory_kib: 65_536, passes: 3, lanes: 4 };
    EncryptionKey {
        number: 7,
        name: "family".into(),
        is_default: !is_removed,
        made_seconds: 1_700_000_000,
        wrapped: if is_removed { Vec::new() } else { vec![wrapped(passphrase, 1), wrapped(Wrapping::KeyFile, 101)] },
    }
}

fn bytes_48(first: u8) -> [u8; 48] {
    std::array::from_fn(|at| first ^ at as u8)
}

fn gave_up_blob() -> BlobValue {
    BlobValue { flags: BlobFlags::SHARED.with(BlobFlags::GAVE_UP_LZ4).with(BlobFlags::GAVE_UP_ZSTD), ..whole_blob() }
}

fn inode(mode: u32, policy: Option<InodePolicy>, symlink_target: &[u8]) -> InodeValue {
    let time = |at: i64| Timestamp { seconds: 1_700_000_000 + at, nanoseconds: 123_456_789 };
    InodeValue {
        mode,
        uid: 1000,
        gid: 100,
        nlink: 2,
        rdev: 0x0103,
        flags: 0x10,
        generation: 9,
        size: 1 << 40,
        blocks_bytes: 4096 * 12345,
        parent: 1,
        next_dirent_sequence: 42,
        atime: time(1),
        mtime: time(2),
        ctime: time(3),
        btime: Timestamp { seconds: -1, nanoseconds: 999_999_999 },
        policy,
        volume: 0,
        charged_bytes: 0,
        symlink_target: symlink_target.to_vec(),
    }
}

fn summary_entries() -> Vec<SummaryEntry> {
    let blob = RecordSubject::plain_blob(9, 10, 1 << 30, 131_072);
    let trimmed = trimmed_blob();
    let trimmed_subject = RecordSubject::Blob {
        blob: 11,
        inode: 12,
        file_offset: 0,
        logical_bytes: trimmed.logical_bytes,
        encoding: BlobEncoding::PLAIN,
        present: trimmed.present,
    };
    let node = RecordSubject::Node { level: 1, first_key: Key::extent(5, 4096) };
    let checkpoint = RecordSubject::Checkpoint { generation: 6, part: 1, parts: 2 };
    let entry = |offset, length, subject, hint: &[u8]| SummaryEntry {
        offset,
        length,
        crc32c: 0xfeed_0000 + offset,
        subject,
        hint: hint.to_vec(),
    };
    vec![
        entry(512, 131_072, blob, b"photos/1.jpg"),
        entry(131_584, trimmed.address.length, trimmed_subject, b""),
        entry(300_032, 16_000, node, b""),
        entry(316_416, 5, checkpoint, b""),
    ]
}

fn row_and_summary() -> (RowHeader, Vec<u8>) {
    let entries = summary_entries();
    let mut summary = Vec::new();
    Summary::encode_to(&entries, &mut summary);
    let header = RowHeader {
        pool: POOL,
        segment: 0x0102_0304_0506,
        sequence: 78,
        row_block: 17,
        row_height: 80,
        record_count: entries.len() as u32,
        summary_offset: 316_928,
        summary_length: summary.len() as u32,
        summary_crc32c: crc32c(&summary),
    };
    (header, summary)
}

fn journal_payload() -> Vec<u8> {
    let mut payload = Vec::new();
    append_change(&mut payload, &Key::inode(7), Some(&inode(0o100_644, None, b"").encode()));
    append_change(&mut payload, &Key::dirent(1, 42), None);
    append_change(&mut payload, &Key::blob(9), Some(&whole_blob().encode()));
    append_change(&mut payload, &Key::orphan(8), Some(b""));
    payload
}

fn journal_header() -> JournalHeader {
    let payload = journal_payload();
    JournalHeader {
        pool: POOL,
        epoch: 4,
        at: JournalPosition { position: 4096 * 1234, sequence: 5678 },
        durable_sequence: 5670,
        checkpoint_generation: 6,
        counters: counters(),
        group_end: true,
        payload_length: payload.len() as u32,
        payload_crc32c: crc32c(&payload),
    }
}

fn counters() -> Counters {
    Counters { next_inode: 101, next_blob: 202, next_segment: 303, next_sequence: 404 }
}

fn leaf() -> Vec<u8> {
    let mut builder = NodeBuilder::new(0);
    builder.push_value(&Key::inode(7), &inode(0o040_755, None, b"").encode());
    for at in 0..5u64 {
        let extent =
            ExtentValue { blob: 9 + at, blob_offset: 0, length: 131_072, flags: ExtentFlags::Plain, charge: 0 };
        builder.push_value(&Key::extent(7, at * 131_072), &extent.encode());
    }
    builder.push_value(&Key::orphan(3), b"");
    builder.take(7).1
}

fn node_reference(at: u32, level: u8) -> NodeReference {
    NodeReference { address: address(at, 16_000 + at), crc32c: 0xabcd_0000 + at, level }
}

fn inner() -> Vec<u8> {
    let mut builder = NodeBuilder::new(2);
    for at in 0..4 {
        builder.push_child(&Key::blob(1000 * u64::from(at)), &node_reference(at, 1));
    }
    builder.take(4).1
}

fn device(index: u16, name: &str, tags: &[&str]) -> DeviceEntry {
    DeviceEntry {
        id: DEVICE,
        index,
        class: 1,
        state: 1,
        size_bytes: 64 << 30,
        slot_count: 16_000,
        name: name.to_owned(),
        host: "attic".to_owned(),
        shelf: "left".to_owned(),
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
    }
}

fn checkpoint(root: Option<NodeReference>) -> Vec<u8> {
    let record = CheckpointRecord {
        pool: POOL,
        generation: 6,
        root,
        counters: counters(),
        journal_start: JournalPosition { position: 4096 * 1200, sequence: 5600 },
        hash_key: *b"key of the names",
        totals: PoolTotals { inodes: 11, blobs: 12, blob_bytes: 13 * 512, node_bytes: 14 * 512 },
        devices: vec![device(0, "ssd-zero", &["fast", "schräg"]), device(3, "hdd", &[])],
        meta_segments: vec![(5, meta_segment()), (9, meta_segment())],
    };
    record.encode().expect("a small checkpoint fits")
}

fn superblock(parts: u32) -> Vec<u8> {
    let part = |at| CheckpointPart { address: address(at / 2 * 2, 5000), crc32c: at, place: place(1, 2) };
    let superblock = Superblock {
        format_minor: FORMAT_MINOR,
        pool: POOL,
        device: DEVICE,
        device_index: 3,
        generation: 6,
        layout: DeviceLayout::for_size(6 << 30, 4 << 20).expect("a possible device"),
        journal_start: JournalPosition { position: 4096 * 1200, sequence: 5600 },
        journal_bytes: 2 << 20,
        journal_devices: vec![0, 3, 6],
        epochs: vec![Epoch { first_sequence: 1, epoch: 1 }, Epoch { first_sequence: 5000, epoch: 4 }],
        clean: parts == 0,
        is_log_shared: false,
        pool_name: "tank".to_owned(),
        host: "attic".to_owned(),
        shelf: "left".to_owned(),
        checkpoint: (0..parts).map(part).collect(),
    };
    superblock.encode().expect("a small superblock fits")
}

fn versions(kind: u8, count: u32, seconds: u64) -> Option<InodePolicy> {
    let versions = Some(VersionsPolicy { kind, count, seconds });
    Some(InodePolicy { versions, ..InodePolicy::default() })
}

pub fn samples() -> Vec<Sample> {
    let (row, summary) = row_and_summary();
    let with_header = [row.encode(), summary].concat();
    let policy = InodePolicy { copies: 2, parity_k: 4, parity_m: 1, class: 3, ..InodePolicy::default() };
    let more_policy = InodePolicy { compression: 0x13, redundancy: 6, ..InodePolicy::default() };
    let ruled = RuledPolicy { copies: 3, compression: 2, decided: 0x26, ..RuledPolicy::default() };
    let ruled_policy = InodePolicy { ruled, ..InodePolicy::default() };
    let locked =
        LockedPolicy { copies: 3, class: 16, compression: 2, encryption: 5, tiers: 0x8000, ..Default::default() };
    let retain = Some(RetainPolicy { kind: 2, after_seconds: 0, seconds: 1_900_000_000 });
    let retained_policy = InodePolicy { compression: 2, retain, ..InodePolicy::default() };
    let record = RecordPolicy { own: 3, ruled: 1, decided: 0x11, locked: 9 };
    let switches = SwitchesPolicy { own: 2, ruled: 8, decided: 0x22, locked: 4, ..SwitchesPolicy::default() };
    let wish = VersionsPolicy { kind: 2, count: 10, seconds: 30 * 86_400 };
    let ruled_more = RuledMore { plugins: 3, versions: Some(wish) };
    let with_ruled_more = InodePolicy { ruled_more, ..InodePolicy::default() };
    let with_records = InodePolicy { switches: SwitchesPolicy { record, ..switches }, ..InodePolicy::default() };
    let checksum = ChecksumPolicy { own: 2, ruled: 3, decided: 0x11, locked: 4 };
    let with_checksum = InodePolicy { checksum, locked_more: ruled_more, ..InodePolicy::default() };
    let places = PlacesPolicy {
        own: Site { on: 2, only: 3, node: 0 },
        locked: Site { on: 0, only: 4, node: 0 },
        ..Default::default()
    };
    let told = PlacesPolicy {
        own: Site { on: 2, node: 3, ..Site::ANYWHERE },
        ruled: Site { node: 4, ..Site::ANYWHERE },
        locked: Site { node: 1, ..Site::ANYWHERE },
        node_decided: 0x11,
    };
    let told_policy = InodePolicy { places: told, ..InodePolicy::default() };
    let placed_policy = InodePolicy { places, ..InodePolicy::default() };
    let switched_policy = InodePolicy { switches, ..InodePolicy::default() };
    let locked_policy = InodePolicy { copies: 1, locked, ..InodePolicy::default() };
    let chunk = ChunkHeader {
        pool: POOL,
        segment: 5,
        sequence: 77,
        kind: SegmentKind::Meta,
        class: 1,
        chunk: 4,
        place: place(4, 1),
    };
    let plain = ExtentValue { blob: 9, blob_offset: 4096, length: 126_976, flags: ExtentFlags::Plain, charge: 0 };
    let preallocated =
        ExtentValue { blob: 0, blob_offset: 0, length: 1 << 31, flags: ExtentFlags::Preallocated, charge: 0 };
    let dirent = DirentValue { inode: 7, kind: FileKind::Directory, key: 0, name: "Übung.txt".as_bytes().to_vec() };
    let encrypted_policy = InodePolicy { encryption: 5, ..InodePolicy::default() };
    let plugins_policy = InodePolicy { compression: 0x13, plugins: 4, ..InodePolicy::default() };
    let tiered_policy = InodePolicy { tiers: 0b101, ..InodePolicy::default() };
    let charged_inode = InodeValue { volume: 9, charged_bytes: 3 << 19, ..inode(0o100_644, Some(tiered_policy), b"") };
    let sealed = DirentValue { inode: 8, kind: FileKind::File, key: 3, name: (0..48).collect() };
    vec![
        ("address", "address", address(0, 4096).encode().to_vec()),
        ("node-reference", "node_reference", node_reference(1, 2).encode().to_vec()),
        ("blob-whole", "blob", whole_blob().encode()),
        ("blob-trimmed", "blob", trimmed_blob().encode()),
        ("blob-xxh3", "blob", blob_with_digest(ChecksumKind::Xxh3).encode()),
        ("blob-blake3", "blob", blob_with_digest(ChecksumKind::Blake3).encode()),
        ("blob-unread", "blob", blob_with_digest(ChecksumKind::None).encode()),
        ("blob-compressed", "blob", compressed_blob().encode()),
        ("blob-zstd", "blob", zstd_blob().encode()),
        ("blob-gave-up", "blob", gave_up_blob().encode()),
        ("blob-encrypted", "blob", encrypted_blob().encode()),
        ("blob-plugged", "blob", plugged_blob().encode()),
        ("segment-data", "segment", segment(4, 2).encode()),
        ("segment-meta", "segment", meta_segment().encode()),
        ("segment-archived", "segment", archived_segment().encode()),
        ("segment-released", "segment", released_segment().encode()),
        (
            "segment-placed",
            "segment",
            SegmentValue { site: Site { on: 2, only: 3, node: 0 }, ..segment(1, 1) }.encode(),
        ),
        ("segment-told", "segment", SegmentValue { site: Site { on: 2, only: 0, node: 4 }, ..segment(1, 1) }.encode()),
        ("place", "place", PlaceValue { words: vec!["nvme".into(), "Übung".into()] }.encode()),
        ("chunk-header", "chunk", chunk.encode()),
        ("backup", "backup", backup().encode()),
        ("class", "class", class(None).encode()),
        ("class-deleted", "class", class(Some(3)).encode()),
        ("class-more", "class", ClassValue { record: 4, more: ruled_more, ..class(None) }.encode()),
        ("class-checksum", "class", ClassValue { checksum: 3, ..class(None) }.encode()),
        ("class-told", "class", ClassValue { places: Site { on: 0, only: 0, node: 5 }, ..class(None) }.encode()),
        ("class-placed", "class", ClassValue { places: Site { on: 0, only: 2, node: 0 }, ..class(None) }.encode()),
        (
            "class-residency",
            "class",
            ClassValue {
                residency: ClassResidency { pin: 1, unit: 2, names: 1, names_seconds: 7 },
                more: ruled_more,
                ..class(None)
            }
            .encode(),
        ),
        ("class-switched", "class", ClassValue { switches: 0x26, ..class(None) }.encode()),
        ("row-header", "row", row.encode()),
        ("row-in-object", "object_rows", RowHeader { row_block: 1, ..row }.encode()),
        ("row-summary", "summary", with_header),
        ("journal-header", "journal_header", journal_header().encode().to_vec()),
        ("journal-payload", "journal_payload", journal_payload()),
        ("junction", "junction", junction().encode()),
        ("node-leaf", "node", leaf()),
        ("node-inner", "node", inner()),
        ("checkpoint", "checkpoint", checkpoint(Some(node_reference(7, 2)))),
        ("checkpoint-empty", "checkpoint", checkpoint(None)),
        ("superblock", "superblock", superblock(3)),
        ("superblock-clean", "superblock", superblock(0)),
        ("inode-file", "inode", inode(0o100_644, Some(policy), b"").encode()),
        ("inode-policy", "inode", inode(0o040_755, Some(more_policy), b"").encode()),
        ("inode-ruled", "inode", inode(0o100_600, Some(ruled_policy), b"").encode()),
        ("inode-retained", "inode", inode(0o100_644, Some(retained_policy), b"").encode()),
        ("inode-versions", "inode", inode(0o040_755, versions(2, 10, 2_592_000), b"").encode()),
        ("inode-version", "inode", inode(0o100_644, versions(3, 0, 6_194_967_296), b"").encode()),
        ("inode-told", "inode", inode(0o100_644, Some(told_policy), b"").encode()),
        ("inode-placed", "inode", inode(0o100_644, Some(placed_policy), b"").encode()),
        ("inode-switched", "inode", inode(0o100_644, Some(switched_policy), b"").encode()),
        ("inode-ruled-more", "inode", inode(0o100_644, Some(with_ruled_more), b"").encode()),
        ("inode-checksum", "inode", inode(0o100_644, Some(with_checksum), b"").encode()),
        ("inode-records", "inode", inode(0o100_644, Some(with_records), b"").encode()),
        ("inode-locked", "inode", inode(0o040_755, Some(locked_policy), b"").encode()),
        ("inode-encrypted", "inode", inode(0o040_700, Some(encrypted_policy), b"").encode()),
        ("inode-plugins", "inode", inode(0o040_755, Some(plugins_policy), b"").encode()),
        ("inode-tiered", "inode", inode(0o040_755, Some(tiered_policy), b"").encode()),
        ("inode-volume", "inode", InodeValue { volume: 0x0102_0304, ..inode(0o100_644, None, b"") }.encode()),
        ("inode-charged", "inode", charged_inode.encode()),
        ("inode-symlink", "inode", inode(0o120_777, None, b"../target").encode()),
        ("dirent", "dirent", dirent.encode()),
        ("dirent-encrypted", "dirent", sealed.encode()),
        ("dirent-bucket", "dirent_bucket", DirentBucket { sequences: [4, 9].into_iter().collect() }.encode()),
        ("extent-plain", "extent", plain.encode().to_vec()),
        ("extent-preallocated", "extent", preallocated.encode().to_vec()),
    ]
    .into_iter()
    .chain(system_samples())
    .chain(media_samples())
    .collect()
}

/// What rules and classes say of media and of when changes are durable.
fn media_samples() -> Vec<Sample> {
    let sync = SyncPolicy { own: 3, ruled: 1, locked: 2 };
    let places = PlacesPolicy { node_decided: 0x62, ..PlacesPolicy::default() };
    let policy = InodePolicy { ruled_tiers: 0x8001, sync, places, ..InodePolicy::default() };
    let media = ClassMedia { tiers: 3, sync: 3, release: 1, release_seconds: 30 * 86_400 };
    vec![
        ("inode-media", "inode", inode(0o100_644, Some(policy), b"").encode()),
        ("class-media", "class", ClassValue { media, ..class(None) }.encode()),
    ]
}

/// A single line: between lines a catalogue may end.
fn catalogue() -> Vec<u8> {
    let line = r#"{"inode":12,"path":"/a/Bücher","mode":33188,"uid":1000,"gid":100,"size":4096,"mtime":1700000000}"#;
    let mut line = line.as_bytes().to_vec();
    stere_format::seal_catalogue_line(&mut line);
    line
}

fn backup() -> BackupValue {
    BackupValue {
        name: "vault".into(),
        id: *b"0123456789abcdef",
        keep: 10,
        every_seconds: 86_400,
        done_seconds: 1_700_000_000,
        path: b"/mnt/vault".to_vec(),
        only: "size<1G".into(),
    }
}

fn junction() -> JunctionValue {
    let places = vec!["stere://10.0.0.1/films".to_owned(), "nbd://10.0.0.2:10809/films".to_owned()];
    JunctionValue { pool: PoolId([0x5a; 16]), pool_name: "lab-films".to_owned(), places }
}

fn class(into: Option<u8>) -> ClassValue {
    ClassValue {
        name: "photos".to_owned(),
        changed_seconds: 1_700_000_002,
        into,
        parity_k: 4,
        parity_m: 2,
        compression: 19,
        encryption: 2,
        ..ClassValue::default()
    }
}

fn watched_process() -> WatchedProcess {
    WatchedProcess { uid: 1000, gid: 100, process: 4711, started: 0x1122_3344, executable: b"/usr/bin/sort".to_vec() }
}

fn provenance() -> ProvenanceValue {
    ProvenanceValue {
        time: Timestamp { seconds: 1_700_000_003, nanoseconds: 5 },
        inode: 7,
        owner: 1000,
        by: watched_process(),
        path: b"/sorted".to_vec(),
        command: b"sort\0-u\0".to_vec(),
        inputs: vec![8, 1 << 33],
        input_names: Vec::new(),
    }
}

fn provenance_with_names() -> ProvenanceValue {
    let input_names = vec![InputName { input: 1, directory: 9, sequence: 1 << 34 }];
    ProvenanceValue { input_names, ..provenance() }
}

fn audit() -> AuditValue {
    AuditValue {
        time: Timestamp { seconds: 1_700_000_004, nanoseconds: 6 },
        event: AuditEvent::Rename,
        refused: 1,
        inode: 7,
        owner: 1000,
        by: watched_process(),
        path: b"/sorted".to_vec(),
        new_path: b"/done".to_vec(),
    }
}

fn rules() -> RulesValue {
    RulesValue { seconds: 1_700_000_000, user: 1000, text: "*.jpg copies=3\n/Bücher/** class=precious\n".to_owned() }
}

fn rule_log() -> RuleLogValue {
    RuleLogValue { seconds: 1_700_000_001, inode: 7, version: 2, text: "/Übung.jpg: *.jpg copies=3".to_owned() }
}

fn log_entry(kind: u32) -> Vec<u8> {
    let mut superblock = Superblock::decode(&superblock(2)).expect("it was encoded");
    (superblock.is_log_shared, superblock.journal_devices) = (true, Vec::new());
    let granted = extents_of([(0, 4), (0, 5), (3, 17)]);
    let record = match kind {
        0 => LogRecord::Root { superblock: Box::new(superblock), held: held_slots(), granted },
        1 => LogRecord::Grants(granted),
        _ => LogRecord::Journal(b"a record of the journal".to_vec()),
    };
    LogEntry { pool: POOL, owner: [0x44; 16], record }.encode().expect("it fits")
}

fn held_slots() -> Vec<HeldSlots> {
    let group = |remaining_ms, slot| HeldSlots { remaining_ms, extents: extents_of([(1, slot)]) };
    vec![group(29_000, 9), group(4, 12)]
}

fn machine_entry() -> MachineEntry {
    MachineEntry {
        machine: [0x22; 16],
        public_key: [0x77; 32],
        host: "shed".into(),
        state: MachineState::Waiting,
        registered: 0x0102_0304_0506_0708,
    }
}

fn io_trace_header() -> IoTraceHeader {
    IoTraceHeader { started_unix_ns: 0x0102_0304_0506_0708, is_hashed: true }
}

fn io_trace_calls() -> IoTraceBlock {
    let read = IoTraceRecord {
        at_ns: 0x1112_1314_1516_1718,
        file: 0x2122_2324_2526_2728,
        client: 0x3132_3334_3536_3738,
        offset: 0x4142_4344_4546_4748,
        length: 0x5152_5354_5556_5758,
        latency_ns: 0x6162_6364_6566_6768,
        age_ms: 0,
        in_flight: 0x7172_7374,
        result: 5,
        kind: 0,
    };
    IoTraceBlock::Calls(vec![read, IoTraceRecord { kind: 9, age_ms: 0x0102_0304, result: 0, ..read }])
}

fn io_trace_names() -> IoTraceBlock {
    let file = IoTraceName { of: IoTraceNamed::File, id: 0x2122_2324_2526_2728, name: "/a/Bücher".into() };
    let client = IoTraceName { of: IoTraceNamed::Client, id: 9, name: "shed".into() };
    IoTraceBlock::Names(vec![file, client])
}

fn owner_beat() -> OwnerBeat {
    OwnerBeat {
        owner: [0x11; 16],
        sequence: 0x0102_0304_0506_0708,
        is_closed: false,
        machine: [0x22; 16],
        process: 4711,
        epoch: 0x0a0b_0c0d,
        host: "shed".into(),
        address: "shed.example:4711".into(),
        secret: [0x55; 32],
    }
}

fn heartbeat(is_live: bool) -> Heartbeat {
    Heartbeat {
        pool: PoolId(*b"0123456789abcdef"),
        device: DeviceId(*b"fedcba9876543210"),
        owner: [0x11; 16],
        sequence: 0x0102_0304_0506_0708,
        is_live,
        machine: [0x22; 16],
        boot: [0x33; 16],
        process_namespace: 4_026_531_836,
        process: 4711,
        process_start_ticks: 0x0a0b_0c0d,
        interval_ms: 1000,
        host: "shed".into(),
    }
}

fn scrub() -> ScrubCursor {
    ScrubCursor {
        part: ScrubPart::Segments,
        segment: 0x1122_3344,
        block: 257,
        live_bytes: 0x0010_2030_4050,
        passes: 9,
        bytes_checked: 0x0102_0304_0506,
        repaired_blocks: 3,
        findings: 1,
    }
}

/// The entry point of this name.
pub fn target(name: &str) -> fuzz::Target {
    let found = fuzz::TARGETS.iter().find(|(other, _)| *other == name);
    found.unwrap_or_else(|| panic!("there is no fuzz target {name}")).1
}
