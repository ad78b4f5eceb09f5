//! Names that no other process or pass has.

use std::hash::{BuildHasher as _, RandomState};

/// Random, in the form of a UUID (version 4). Unique, not secret.
pub fn uuid() -> String {
    // Each `RandomState` has keys of its own, from the system's random source.
    let half = || RandomState::new().hash_one(std::process::id());
    let (high, low) = (half(), half());
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xfff,
        ((low >> 48) & 0x3fff) | 0x8000,
        low & 0xffff_ffff_ffff,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_another_and_looks_like_a_uuid() {
        let (a, b) = (uuid(), uuid());
        assert_ne!(a, b);
        let parts: Vec<usize> = a.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12], "{a}");
        assert_eq!(a.as_bytes()[14], b'4', "{a}");
        assert!(
            a.bytes()
                .all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
        );
    }
}
