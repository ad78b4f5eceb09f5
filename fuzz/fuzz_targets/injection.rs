//! `cargo +nightly fuzz run injection`: looks for texts that add a line or a section to a rendered file.
//!
//! The property is `glance_operator::policy::injection`, which the unit tests ask too.

#![no_main]

use std::sync::LazyLock;

use glance_operator::policy::injection::Kind;
use libfuzzer_sys::fuzz_target;

static KINDS: LazyLock<[Kind; 2]> = LazyLock::new(|| {
    let kinds = Kind::all();
    kinds.unwrap_or_else(|error| panic!("the schemas: {error}"))
});

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, texts)) = bytes.split_first() else {
        return;
    };
    let [glance, backend] = &*KINDS;
    let kind = if kind % 2 == 0 { glance } else { backend };
    if let Err(fault) = kind.check_bytes(texts) {
        panic!("{fault}");
    }
});
