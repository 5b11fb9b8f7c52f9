//! Extended attributes and ACLs in their binary form, without following symbolic links.

use std::path::Path;

use super::system::{Call, c_path, check};

pub fn set(path: &Path, attribute: &str, value: &[u8], flags: i32) -> Call<i64> {
    let (path, attribute) = (c_path(path), c_path(Path::new(attribute)));
    // SAFETY: strings and buffer live for the call.
    unsafe {
        check(i64::from(libc::lsetxattr(path.as_ptr(), attribute.as_ptr(), value.as_ptr().cast(), value.len(), flags)))
    }
}

pub fn get(path: &Path, attribute: &str) -> Call<Vec<u8>> {
    let (path, attribute) = (c_path(path), c_path(Path::new(attribute)));
    let mut value = vec![0; 65536];
    // SAFETY: strings and buffer live for the call.
    let result = unsafe { libc::lgetxattr(path.as_ptr(), attribute.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    check(result as i64).map(|length| value[..length as usize].to_vec())
}

pub fn remove(path: &Path, attribute: &str) -> Call<i64> {
    let (path, attribute) = (c_path(path), c_path(Path::new(attribute)));
    // SAFETY: both strings live for the call.
    unsafe { check(i64::from(libc::lremovexattr(path.as_ptr(), attribute.as_ptr()))) }
}

/// The names, sorted: their order is nobody's promise.
pub fn list(path: &Path) -> Call<Vec<Vec<u8>>> {
    let path = c_path(path);
    let mut buffer = vec![0u8; 65536];
    // SAFETY: string and buffer live for the call.
    let result = unsafe { libc::llistxattr(path.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len()) };
    let length = check(result as i64)? as usize;
    let mut names: Vec<Vec<u8>> =
        buffer[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect();
    names.retain(|name| name != b"security.selinux");
    names.sort();
    Ok(names)
}

pub fn acl_name(default: bool) -> &'static str {
    if default { "system.posix_acl_default" } else { "system.posix_acl_access" }
}

/// A valid ACL in the kernel's form: owner, user 1001, owning group, mask, others.
pub fn acl(permissions: [u16; 5]) -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    let tags: [(u16, u32); 5] = [(0x01, NOBODY), (0x02, 1001), (0x04, NOBODY), (0x10, NOBODY), (0x20, NOBODY)];
    let mut value = 2u32.to_le_bytes().to_vec();
    for ((tag, id), permission) in tags.into_iter().zip(permissions) {
        value.extend(tag.to_le_bytes());
        value.extend(permission.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}
