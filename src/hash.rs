//! Content hashes of immutable objects and digests of rotating secrets.
//!
//! Both end up in places many may read, so both are fixed by the contract to
//! the byte (configuration, immutable objects; digests): an object that an
//! earlier operator wrote for the same content must be found under the same
//! name.

use std::collections::BTreeMap;

use data_encoding::HEXLOWER;
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

/// The hash of an object's data, of which a few digits go into its name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ContentHash(String);

/// SHA-256 as 64 lower-case hexadecimal digits.
pub fn sha256_hex(bytes: impl AsRef<[u8]>) -> String {
    HEXLOWER.encode(&Sha256::digest(bytes))
}

/// The first eight digits of the SHA-256 of a text, for shortened names.
pub fn hash8(text: &str) -> String {
    let mut digits = sha256_hex(text);
    digits.truncate(8);
    digits
}

/// The digest of a value that pods receive by environment variable, for the
/// pod annotation that rolls them when it changes.
///
/// Salted with the UID of the custom resource: pod annotations are readable by
/// many, and the plain hash of a weak password can be guessed offline.
pub fn salted_digest(uid: &str, value: &SecretString) -> String {
    let mut hasher = Sha256::new();
    hasher.update(uid.as_bytes());
    hasher.update([0]);
    hasher.update(value.expose_secret().as_bytes());
    HEXLOWER.encode(&hasher.finalize())
}

// === impl ContentHash ===

impl ContentHash {
    /// Hashes data entries. Their order does not matter; lengths are hashed in
    /// front of keys and values, so no value can pose as two entries.
    pub fn of<'a>(entries: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Self {
        let sorted: BTreeMap<&str, &[u8]> = entries.into_iter().collect();
        let mut hasher = Sha256::new();
        for (key, value) in sorted {
            hasher.update(format!("{}:{key}={}:", key.len(), value.len()));
            hasher.update(value);
            hasher.update(b"\n");
        }
        Self(HEXLOWER.encode(&hasher.finalize()))
    }

    /// Hashes the data of a `ConfigMap`.
    pub fn of_text(data: &BTreeMap<String, String>) -> Self {
        Self::of(
            data.iter()
                .map(|(key, value)| (key.as_str(), value.as_bytes())),
        )
    }

    /// Hashes the data of a Secret, as raw bytes.
    pub fn of_secret(data: &BTreeMap<String, SecretString>) -> Self {
        Self::of(
            data.iter()
                .map(|(key, value)| (key.as_str(), value.expose_secret().as_bytes())),
        )
    }

    /// The digits that name an object: eight.
    pub fn short(&self) -> &str {
        &self.0[..8]
    }

    /// The digits that name an object when other content already has the name
    /// with [`short`](Self::short): sixteen.
    pub fn long(&self) -> &str {
        &self.0[..16]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn text(entries: &[(&str, &str)]) -> ContentHash {
        ContentHash::of(entries.iter().map(|(key, value)| (*key, value.as_bytes())))
    }

    #[rstest]
    #[case(&[("key", "value")], "65bf776f")]
    #[case(&[("a", "1"), ("b", "2")], "66e4efeb")]
    #[case(&[("key1", "x\nb=y")], "c4358642")]
    #[case(&[("b", "y"), ("key1", "x")], "c0940937")]
    #[case(&[("k", "é")], "aee01173")]
    #[case(&[], "e3b0c442")]
    fn names_are_those_of_the_contract(#[case] data: &[(&str, &str)], #[case] hash8: &str) {
        assert_eq!(text(data).short(), hash8);
        assert_eq!(text(data).long().len(), 16);
        assert!(text(data).long().starts_with(hash8));
    }

    #[test]
    fn all_ways_to_hash_agree() {
        let config = BTreeMap::from([("a".to_owned(), "1".to_owned())]);
        let secret = BTreeMap::from([("a".to_owned(), SecretString::from("1"))]);
        assert_eq!(ContentHash::of_text(&config), text(&[("a", "1")]));
        assert_eq!(ContentHash::of_secret(&secret), text(&[("a", "1")]));
    }

    #[test]
    fn a_salted_digest_is_that_of_the_contract() {
        let uid = "11111111-2222-3333-4444-555555555555";
        let dsn = "mysql+pymysql://glance-basic:s3cret@openstack-db.openstack.svc:3306/glance_basic?charset=utf8";
        assert_eq!(
            salted_digest(uid, &SecretString::from(dsn)),
            "b04c15ea70ebd5efc771fe8a4d0b05c8a35edc9d0b018cd99565fc2bea208a61"
        );
        assert_eq!(
            salted_digest(uid, &SecretString::from("svc-pw")),
            "2b5dce0fc22c907ad0a98f0ddbabb2fcc01d675835044eba25df6ecfcdc215f9"
        );
        assert_eq!(
            sha256_hex(dsn),
            "a24b524d5c1e264657a034076cfab741e4fa35a72d71123b712d4747df5089cf"
        );
    }

    #[test]
    fn two_resources_with_one_password_have_two_digests() {
        let password = SecretString::from("svc-pw");
        assert_ne!(
            salted_digest("one", &password),
            salted_digest("two", &password)
        );
    }

    proptest! {
        #[test]
        fn order_of_entries_does_not_matter(data in prop::collection::btree_map(".{0,8}", ".{0,8}", 0..6)) {
            let forward = ContentHash::of(data.iter().map(|(k, v)| (k.as_str(), v.as_bytes())));
            let backward = ContentHash::of(data.iter().rev().map(|(k, v)| (k.as_str(), v.as_bytes())));
            prop_assert_eq!(forward, backward);
        }

        #[test]
        fn moving_bytes_between_key_and_value_changes_the_hash(text in "[a-z=:0-9\n]{2,12}", at in 1usize..11) {
            prop_assume!(at < text.len());
            let (key, value) = text.split_at(at);
            let (other_key, other_value) = text.split_at(at - 1);
            prop_assert_ne!(
                ContentHash::of([(key, value.as_bytes())]),
                ContentHash::of([(other_key, other_value.as_bytes())])
            );
        }
    }
}
