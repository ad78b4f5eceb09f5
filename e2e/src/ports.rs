//! Ports on loopback for servers that want to be told theirs.

use std::{
    io,
    net::{Ipv4Addr, TcpListener},
    sync::atomic::{AtomicU16, Ordering},
};

/// Below the range from which the kernel takes the ports of outgoing connections, so that
/// nobody takes a port between our look and the server's.
const RANGE: std::ops::Range<u16> = 18_000..30_000;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// A port that is free now and that this process has not given out before.
pub fn free() -> io::Result<u16> {
    let size = RANGE.end - RANGE.start;
    // Two test runs at once start at different places.
    let start = u16::try_from(u64::from(std::process::id()) * 97 % u64::from(size)).unwrap_or(0);
    for _ in 0..size {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = RANGE.start + (start + step % size) % size;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    Err(io::Error::other("no port is free"))
}
