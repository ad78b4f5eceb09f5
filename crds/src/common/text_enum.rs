//! Enumerations whose members are texts in the API.

/// A text that is no member of an enumeration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is not one of {}", supported.join(", "))]
pub struct UnknownValue {
    /// The text that was read.
    pub value: String,
    /// The members, in the order of the schema.
    pub supported: Vec<&'static str>,
}

/// Declares an enumeration of texts.
///
/// The schema is written by hand here because the derived one turns
/// documented members into `oneOf` branches and an optional member into an
/// enumeration with `null` in it; both change what the API server accepts.
macro_rules! text_enum {
    ($(#[$meta:meta])* $name:ident { $($(#[$member_meta:meta])* $member:ident = $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash,
            ::serde::Serialize, ::serde::Deserialize,
        )]
        pub enum $name {
            $($(#[$member_meta])* #[serde(rename = $text)] $member,)+
        }

        impl $name {
            /// Every member, in the order of the schema.
            pub const ALL: &'static [Self] = &[$(Self::$member,)+];

            /// The text of the member in the API.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$member => $text,)+
                }
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = $crate::common::UnknownValue;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($text => Ok(Self::$member),)+
                    other => Err($crate::common::UnknownValue {
                        value: other.to_owned(),
                        supported: vec![$($text,)+],
                    }),
                }
            }
        }

        impl ::schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
                ::schemars::json_schema!({ "type": "string", "enum": [$($text,)+] })
            }
        }
    };
}

pub(crate) use text_enum;
