//! The glance-operator binary.
fn main() {}
