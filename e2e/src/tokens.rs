//! Tokens of service accounts that were issued at another time than now, as nobody can request one.

use anyhow::{Context as _, Result, anyhow};
use data_encoding::BASE64URL_NOPAD;
use rcgen::{KeyPair, SigningKey as _};
use serde_json::{Value, json};

/// Who issues the tokens of the bed's clusters, and for whom.
pub const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// A JSON web token over some claims, signed (ES256) with a key in PEM.
pub fn sign(key: &str, claims: &Value) -> Result<String> {
    let key = KeyPair::from_pem(key).context("the key of the tokens")?;
    let part = |value: &Value| BASE64URL_NOPAD.encode(value.to_string().as_bytes());
    let header = json!({ "alg": "ES256", "typ": "JWT" });
    let text = format!("{}.{}", part(&header), part(claims));
    let signature = key
        .sign(text.as_bytes())
        .map_err(|error| anyhow!("signing a token: {error}"))?;
    let signature = flat(&signature).context("a signature of another form")?;
    Ok(format!("{text}.{}", BASE64URL_NOPAD.encode(&signature)))
}

/// The two numbers of an ECDSA signature beside each other, as tokens have them, out of DER.
fn flat(der: &[u8]) -> Option<[u8; 64]> {
    let [0x30, _, rest @ ..] = der else {
        return None;
    };
    let (r, rest) = number(rest)?;
    let (s, _) = number(rest)?;
    let mut flat = [0; 64];
    flat[32 - r.len()..32].copy_from_slice(r);
    flat[64 - s.len()..].copy_from_slice(s);
    Some(flat)
}

/// The first number, without leading zeros, and what follows.
fn number(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let [0x02, length, rest @ ..] = der else {
        return None;
    };
    let (number, rest) = rest.split_at_checked(usize::from(*length))?;
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    let number = &number[zeros..];
    (number.len() <= 32).then_some((number, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_length_take_their_places() {
        let flat = flat(&[0x30, 8, 0x02, 3, 0, 0x80, 1, 0x02, 1, 7]).unwrap();
        assert_eq!((&flat[..30], &flat[30..32]), (&[0; 30][..], &[0x80, 1][..]));
        assert_eq!((&flat[32..63], flat[63]), (&[0; 31][..], 7));
        assert!(super::flat(&[0x31, 0]).is_none());
    }

    #[test]
    fn a_token_has_three_parts_and_another_signature_each_time() {
        let key = KeyPair::generate().unwrap().serialize_pem();
        let claims = json!({ "sub": "somebody" });
        for _ in 0..20 {
            let token = sign(&key, &claims).unwrap();
            let parts: Vec<_> = token.split('.').collect();
            assert_eq!(parts.len(), 3);
            assert_eq!(
                BASE64URL_NOPAD.decode(parts[2].as_bytes()).unwrap().len(),
                64
            );
        }
    }
}
