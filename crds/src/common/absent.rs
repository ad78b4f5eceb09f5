//! Specs that are not there.

/// Lets a spec that is missing be read as the empty one.
///
/// The schema requires nothing at the top (contract: custom-resource API,
/// identity), so a resource without a `spec` is admitted where no webhook
/// runs. Reading it as an error would not only fail that resource: it would
/// fail every list it is in, and with it the work on all others.
///
/// The type derives with `#[serde(remote = "Self")]`, which turns the derived
/// implementations into inherent functions; the ones here go through an
/// optional value, the one form that serde accepts for a missing field.
macro_rules! absent_is_default {
    ($spec:ident) => {
        impl ::serde::Serialize for $spec {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $spec::serialize(self, serializer)
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $spec {
            fn deserialize<D: ::serde::Deserializer<'de>>(
                deserializer: D,
            ) -> Result<Self, D::Error> {
                #[derive(::serde::Deserialize)]
                struct Present(#[serde(with = "Derived")] $spec);
                type Derived = $spec;
                let spec = Option::<Present>::deserialize(deserializer)?;
                Ok(spec.map_or_else($spec::default, |present| present.0))
            }
        }
    };
}

pub(crate) use absent_is_default;
