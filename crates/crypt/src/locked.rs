//! Memory for keys: a page of its own for each, which is not swapped out, is in no core dump, and is wiped when the key is let go.
//!
//! Where the system refuses to lock it (a low limit of locked memory) the key works all the same; the page is still wiped and in no dump.

use zeroize::{Zeroize, Zeroizing};

use crate::aead::KEY_BYTES;

/// The largest page that a system of this architecture may have.
#[cfg(target_arch = "x86_64")]
const PAGE_BYTES: usize = 4 << 10;
#[cfg(not(target_arch = "x86_64"))]
const PAGE_BYTES: usize = 64 << 10;

#[cfg_attr(target_arch = "x86_64", repr(C, align(4096)))]
#[cfg_attr(not(target_arch = "x86_64"), repr(C, align(65536)))]
struct Page([u8; PAGE_BYTES]);

/// A key in a page of its own.
pub(crate) struct LockedKey(Box<Page>);

impl LockedKey {
    /// Moves a key there; what it came in is wiped.
    pub(crate) fn new(bytes: &Zeroizing<[u8; KEY_BYTES]>) -> LockedKey {
        let mut page = Box::new(Page([0; PAGE_BYTES]));
        let start = page.0.as_mut_ptr().cast();
        // SAFETY: the range is this box's, whole pages by its alignment and size, and neither call changes what is in it. Both may fail.
        unsafe {
            libc::mlock(start, PAGE_BYTES);
            libc::madvise(start, PAGE_BYTES, libc::MADV_DONTDUMP);
        }
        page.0[..KEY_BYTES].copy_from_slice(&bytes[..]);
        LockedKey(page)
    }

    /// The key.
    pub(crate) fn bytes(&self) -> &[u8; KEY_BYTES] {
        self.0.0.first_chunk().expect("a page is longer than a key")
    }
}

impl Drop for LockedKey {
    fn drop(&mut self) {
        self.0.0.zeroize();
        let start = self.0.0.as_mut_ptr().cast();
        // SAFETY: as above; the allocator gets the page back as it gave it.
        unsafe {
            libc::madvise(start, PAGE_BYTES, libc::MADV_DODUMP);
            libc::munlock(start, PAGE_BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel says of the memory at an address: the flags of its mapping.
    fn flags_at(address: usize) -> String {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut is_here = false;
        for line in maps.lines() {
            let first = line.split(' ').next().unwrap_or_default();
            if let Some((from, to)) = first.split_once('-') {
                let number = |text: &str| usize::from_str_radix(text, 16).unwrap();
                is_here = (number(from)..number(to)).contains(&address);
            }
            if let Some(flags) = line.strip_prefix("VmFlags: ").filter(|_| is_here) {
                return flags.to_owned();
            }
        }
        panic!("nothing is mapped at {address:x}");
    }

    /// P-204.
    #[test]
    fn a_key_is_locked_in_no_dump_and_wiped() {
        let key = LockedKey::new(&Zeroizing::new([0x5a; KEY_BYTES]));
        let address = key.bytes().as_ptr() as usize;
        assert_eq!(key.bytes(), &[0x5a; KEY_BYTES]);
        let flags = flags_at(address);
        for flag in ["lo", "dd"] {
            assert!(flags.split(' ').any(|one| one == flag), "{flag} is not among {flags}");
        }
        // Two keys share no page, so that letting one go unlocks no other.
        let other = LockedKey::new(&Zeroizing::new([1; KEY_BYTES]));
        assert!(address.abs_diff(other.bytes().as_ptr() as usize) >= PAGE_BYTES);
        drop(key);
        assert!(flags_at(other.bytes().as_ptr() as usize).contains("lo"));
    }
}
