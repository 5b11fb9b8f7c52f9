use super::*;
use crate::PoolId;

fn header(row_block: u32, row_height: u32) -> RowHeader {
    let (pool, summary_offset) = (PoolId([7; 16]), 512);
    RowHeader {
        pool,
        segment: 3,
        sequence: 1,
        row_block,
        row_height,
        record_count: 0,
        summary_offset,
        summary_length: 0,
        summary_crc32c: 0,
    }
}

/// Rows of these heights for so many data chunks, as behind the header of an object.
fn content(data_chunks: u8, heights: &[u32]) -> Vec<u8> {
    let (mut content, mut row_block) = (Vec::new(), 1);
    for height in heights {
        header(row_block, *height).encode_to(&mut content);
        row_block += height;
        content.resize((row_block as usize - 1) * usize::from(data_chunks) * BLOCK_BYTES, 0);
    }
    content
}

#[test]
fn rows_follow_each_other_by_their_heights() {
    for data_chunks in [1, 2, 5] {
        let content = content(data_chunks, &[1, 1, 2]);
        let mut rows = ObjectRows::new(data_chunks, &content);
        let found: Vec<(u32, usize)> = rows.by_ref().map(|(header, row)| (header.row_block, row.len())).collect();
        let bytes = |height: usize| height * usize::from(data_chunks) * BLOCK_BYTES;
        assert_eq!(found, [(1, bytes(1)), (2, bytes(1)), (3, bytes(2))]);
        assert!(rows.is_at_end());
        // With another count than the object has, only the first row begins where one should.
        let mut wrong = ObjectRows::new(data_chunks + 1, &content);
        assert_eq!((wrong.by_ref().count(), wrong.is_at_end()), (1, false));
    }
}

#[test]
fn what_lacks_is_told_and_passed() {
    let mut content = content(2, &[1, 1, 1]);
    content[2 * BLOCK_BYTES] ^= 1;
    content.truncate(5 * BLOCK_BYTES);
    let mut rows = ObjectRows::new(2, &content);
    assert_eq!(rows.by_ref().count(), 1, "the second is damaged");
    assert!(!rows.is_at_end());
    rows.pass_block();
    let (header, row) = rows.next().unwrap();
    assert_eq!(
        (header.row_block, row.len(), rows.is_whole(&header, row)),
        (3, BLOCK_BYTES, false),
        "of the third a half is there"
    );
    assert!(rows.is_at_end() && rows.next().is_none());
    assert!(ObjectRows::new(1, &[]).is_at_end() && ObjectRows::of_object(&content).is_none());
}
