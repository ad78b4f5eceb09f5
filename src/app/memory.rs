//! How much memory this process may take, by what it runs in.

use std::fs;

/// Where the limit of a control group stands: version 2, version 1.
const LIMITS: [&str; 2] = [
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
];

/// Above this, version 1 means that there is none.
const NONE: usize = 1 << 50;

/// What the watches on one target may remember: half of what the pod may take, so that what one cluster tells of ends
/// the work on that cluster and not the process. `None` where nothing limits the process.
pub(super) fn of_one_target() -> Option<usize> {
    let mut texts = LIMITS
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok());
    texts.find_map(|text| half_of(&text))
}

fn half_of(text: &str) -> Option<usize> {
    let limit: usize = text.trim().parse().ok()?;
    (limit < NONE).then_some(limit / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_what_the_pod_may_take_is_for_one_target() {
        assert_eq!(half_of("134217728\n"), Some(67_108_864));
        assert_eq!(half_of("max\n"), None);
        assert_eq!(half_of("9223372036854771712\n"), None);
    }
}
