//! What a misspelt name may mean.

/// The closest of the candidates, if it is close: about one slip in five
/// letters. Dashes and capitals are no slips.
pub(super) fn nearest(
    name: &str,
    candidates: impl Iterator<Item = &'static str>,
) -> Option<&'static str> {
    let plain = |text: &str| text.to_lowercase().replace('-', "_");
    // Options are short; comparing a huge text with each of them is only cost.
    if name.len() > 128 {
        return None;
    }
    let wanted = plain(name);
    let most = 1 + wanted.chars().count() / 5;
    candidates
        .map(|candidate| (strsim::osa_distance(&wanted, &plain(candidate)), candidate))
        .filter(|(distance, _)| *distance <= most.min(4))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}
