use super::*;

#[test]
fn zeroed_is_zero_and_aligned() {
    let buffer = Buffer::zeroed(10_000);
    assert_eq!(buffer.len(), 10_000);
    assert!(buffer.iter().all(|&byte| byte == 0));
    assert!(buffer.as_ptr() as usize % BUFFER_ALIGNMENT_BYTES == 0);
    assert_eq!(buffer.capacity_bytes(), 12_288);
}

/// Large memory comes by another way than small; both are zeros, aligned, and only used pages of the large are made.
#[test]
fn large_memory_is_zero_aligned_and_not_made_before_it_is_used() {
    for length in [(1 << 20) - 4096, 1 << 20, (3 << 20) + 5] {
        let buffer = Buffer::zeroed(length);
        assert!(buffer.as_ptr() as usize % BUFFER_ALIGNMENT_BYTES == 0);
        assert_eq!(buffer.capacity_bytes(), length.next_multiple_of(BUFFER_ALIGNMENT_BYTES));
        assert!(buffer.iter().all(|&byte| byte == 0));
    }
    let pages = 64 << 20 >> 12;
    let mut large = BufferPool::new(0).take(pages << 12);
    large[5 << 12] = 1;
    let mut present = vec![0u8; pages];
    // SAFETY: the range is the buffer's own, and there is a byte for each of its pages.
    let outcome = unsafe { libc::mincore(large.as_mut_ptr().cast(), pages << 12, present.as_mut_ptr()) };
    assert_eq!(outcome, 0);
    let made = present.iter().filter(|page| **page & 1 == 1).count();
    assert!((1..=512).contains(&made), "{made} of {pages} pages are there, and one is used");
}

#[test]
fn empty_buffers_are_fine() {
    let mut buffer = Buffer::zeroed(0);
    assert!(buffer.is_empty() && buffer.as_mut_slice().is_empty());
    assert!(BufferPool::new(0).take(0).is_empty());
}

#[test]
fn a_pool_gives_the_same_memory_again() {
    let pool = BufferPool::new(1 << 20);
    let mut first = pool.take(100_000);
    first[99_999] = 7;
    let place = first.as_ptr();
    let shared = first.share();
    let clone = Arc::clone(&shared);
    drop(shared);
    assert_eq!(pool.retained_bytes(), 0, "a clone still holds it");
    drop(clone);
    assert_eq!(pool.retained_bytes(), 131_072);
    let second = pool.take(131_072);
    assert_eq!(second.as_ptr(), place);
    assert_eq!(second[99_999], 7, "reuse does not zero");
    assert_eq!(pool.retained_bytes(), 0);
}

#[test]
fn a_pool_keeps_no_more_than_it_was_told() {
    let pool = BufferPool::new(8192);
    let buffers: Vec<Buffer> = (0..4).map(|_| pool.take(4096)).collect();
    drop(buffers);
    assert_eq!(pool.retained_bytes(), 8192);
}

#[test]
fn take_zeroed_hides_old_bytes() {
    let pool = BufferPool::new(1 << 20);
    pool.take(4096).fill(0xff);
    assert!(pool.take_zeroed(4096).iter().all(|&byte| byte == 0));
}

#[test]
#[should_panic(expected = "cannot hold")]
fn length_stays_within_capacity() {
    Buffer::zeroed(4096).set_length(4097);
}
