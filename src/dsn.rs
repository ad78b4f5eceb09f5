//! The database connection URL.
//!
//! Where the URL differs from the obvious one, a driver made it so (contract:
//! configuration, DSN; the TLS parameters are those that were seen to work on
//! a real server):
//!
//! - `$` is encoded, because oslo.config would expand it;
//! - `/` in the query is not, because tools that read the URL through Python's
//!   `ConfigParser` take a percent sign for interpolation;
//! - `ssl_verify_cert` and `ssl_verify_identity` are never used: they make the
//!   driver forget the CA and the client certificate.

use std::fmt::Write as _;

use glance_api::glance::TlsMode;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::{ExposeSecret as _, SecretString};
use url::form_urlencoded;

/// Where the TLS material is mounted.
pub const TLS_DIR: &str = "/etc/glance/db-tls/";

/// What a resource without a port gets.
const DEFAULT_PORT: u16 = 3306;

/// Bytes of user and password that stand for themselves.
const KEEP: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'&')
    .remove(b'+')
    .remove(b',')
    .remove(b';')
    .remove(b'=');

/// The parts of a connection.
#[derive(Debug, Clone)]
pub struct Dsn<'a> {
    /// SQL user.
    pub user: &'a str,
    /// Its password.
    pub password: &'a SecretString,
    /// Host name or address of the server.
    pub host: &'a str,
    /// TCP port; zero or less is the default, 3306.
    pub port: i32,
    /// Schema.
    pub database: &'a str,
    /// TLS, or `None` for clear text.
    pub tls: Option<Tls>,
}

/// TLS to the server; the files lie in [`TLS_DIR`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tls {
    /// What is checked.
    pub verify: Verify,
    /// Whether the client shows a certificate of its own. To name one that is not mounted would
    /// keep the driver from connecting at all.
    pub client_certificate: bool,
}

/// How much of the server's certificate is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verify {
    /// That the CA signed it: `prefer`, `require`, `verify-ca`.
    Chain,
    /// That, and that it is made out to the host: `verify-full`.
    ChainAndName,
}

// === impl Verify ===

impl Verify {
    /// What a TLS mode promises; nothing for `disabled`.
    ///
    /// `prefer` and `require` come with a CA, so they check that it signed the
    /// certificate, as other clients of databases do in that case.
    pub const fn from_mode(mode: TlsMode) -> Option<Self> {
        match mode {
            TlsMode::Disabled => None,
            TlsMode::Prefer | TlsMode::Require | TlsMode::VerifyCa => Some(Self::Chain),
            TlsMode::VerifyFull => Some(Self::ChainAndName),
        }
    }
}

// === impl Dsn ===

impl Dsn<'_> {
    /// The URL. It holds the password.
    pub fn to_url(&self) -> SecretString {
        let mut url = String::from("mysql+pymysql://");
        url.extend(utf8_percent_encode(self.user, KEEP));
        url.push(':');
        url.extend(utf8_percent_encode(self.password.expose_secret(), KEEP));
        url.push('@');
        // An IPv6 address ends at its last colon otherwise.
        if self.host.contains(':') && !self.host.starts_with('[') {
            url.push('[');
            url.push_str(self.host);
            url.push(']');
        } else {
            url.push_str(self.host);
        }
        let port = u16::try_from(self.port)
            .ok()
            .filter(|port| *port > 0)
            .unwrap_or(DEFAULT_PORT);
        // Writing to a String does not fail.
        let _ = write!(url, ":{port}/{}?{}", self.database, self.query());
        SecretString::from(url)
    }

    /// Parameters in ascending order of their names.
    fn query(&self) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.append_pair("charset", "utf8");
        if let Some(tls) = self.tls {
            let check_name = match tls.verify {
                Verify::Chain => "false",
                Verify::ChainAndName => "true",
            };
            query.append_pair("ssl_ca", &format!("{TLS_DIR}ca.crt"));
            if tls.client_certificate {
                query.append_pair("ssl_cert", &format!("{TLS_DIR}tls.crt"));
            }
            query.append_pair("ssl_check_hostname", check_name);
            if tls.client_certificate {
                query.append_pair("ssl_key", &format!("{TLS_DIR}tls.key"));
            }
        }
        query.finish().replace("%2F", "/")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn plain(password: &SecretString) -> Dsn<'_> {
        Dsn {
            user: "glance-basic",
            password,
            host: "openstack-db.openstack.svc",
            port: 0,
            database: "glance_basic",
            tls: None,
        }
    }

    fn url(edit: impl FnOnce(&mut Dsn<'_>)) -> String {
        let password = SecretString::from("s3cret");
        let mut dsn = plain(&password);
        edit(&mut dsn);
        dsn.to_url().expose_secret().to_owned()
    }

    fn tls(mode: TlsMode, client_certificate: bool) -> Option<Tls> {
        Verify::from_mode(mode).map(|verify| Tls {
            verify,
            client_certificate,
        })
    }

    #[test]
    fn the_plain_url_is_that_of_the_contract() {
        assert_eq!(
            url(|_| ()),
            "mysql+pymysql://glance-basic:s3cret@openstack-db.openstack.svc:3306/glance_basic?charset=utf8"
        );
    }

    #[rstest]
    #[case("p@ss/w:rd", "p%40ss%2Fw%3Ard")]
    #[case("pa$word", "pa%24word")]
    #[case("a b%c#d?e!f*g'h(i)", "a%20b%25c%23d%3Fe%21f%2Ag%27h%28i%29")]
    #[case("A-._~&+,;=z", "A-._~&+,;=z")]
    #[case("\u{e9}\n", "%C3%A9%0A")]
    fn a_password_is_encoded(#[case] password: &str, #[case] encoded: &str) {
        assert_eq!(
            plain(&SecretString::from(password))
                .to_url()
                .expose_secret(),
            format!(
                "mysql+pymysql://glance-basic:{encoded}@openstack-db.openstack.svc:3306/glance_basic?charset=utf8"
            )
        );
    }

    #[test]
    fn a_user_is_encoded_alike() {
        assert!(
            url(|dsn| dsn.user = "v-kube:a$").starts_with("mysql+pymysql://v-kube%3Aa%24:s3cret@")
        );
    }

    #[rstest]
    #[case(0, 3306)]
    #[case(-1, 3306)]
    #[case(3307, 3307)]
    #[case(65535, 65535)]
    #[case(70000, 3306)]
    fn a_port_is_used_when_it_is_one(#[case] port: i32, #[case] used: u16) {
        assert!(url(|dsn| dsn.port = port).contains(&format!(".svc:{used}/")));
    }

    #[rstest]
    #[case("db.example.com", "@db.example.com:3306/")]
    #[case("10.0.0.1", "@10.0.0.1:3306/")]
    #[case("fd00::1", "@[fd00::1]:3306/")]
    #[case("[fd00::1]", "@[fd00::1]:3306/")]
    fn an_ipv6_address_gets_brackets(#[case] host: &str, #[case] expected: &str) {
        let password = SecretString::from("x");
        let dsn = Dsn {
            host,
            ..plain(&password)
        };
        assert!(dsn.to_url().expose_secret().contains(expected));
    }

    #[rstest]
    #[case(TlsMode::Prefer, "false")]
    #[case(TlsMode::Require, "false")]
    #[case(TlsMode::VerifyCa, "false")]
    #[case(TlsMode::VerifyFull, "true")]
    fn tls_names_the_files_and_whether_the_host_name_counts(
        #[case] mode: TlsMode,
        #[case] check: &str,
    ) {
        let url = url(|dsn| dsn.tls = tls(mode, true));
        assert_eq!(
            url.split_once('?').unwrap().1,
            format!(
                "charset=utf8&ssl_ca=/etc/glance/db-tls/ca.crt&ssl_cert=/etc/glance/db-tls/tls.crt\
                 &ssl_check_hostname={check}&ssl_key=/etc/glance/db-tls/tls.key"
            )
        );
        assert!(!url.contains("ssl_verify"));
    }

    #[test]
    fn disabled_tls_is_clear_text() {
        let url = url(|dsn| dsn.tls = tls(TlsMode::Disabled, true));
        assert!(url.ends_with("?charset=utf8"));
    }

    #[test]
    fn a_client_without_a_certificate_names_none() {
        let url = url(|dsn| dsn.tls = tls(TlsMode::VerifyFull, false));
        assert!(
            url.ends_with("?charset=utf8&ssl_ca=/etc/glance/db-tls/ca.crt&ssl_check_hostname=true"),
            "{url}"
        );
    }

    #[test]
    fn the_password_is_not_in_the_debug_form() {
        let password = SecretString::from("hunter2");
        let dsn = plain(&password);
        assert!(!format!("{dsn:?} {:?}", dsn.to_url()).contains("hunter2"));
    }

    proptest! {
        #[test]
        fn only_the_keep_set_stands_for_itself(user in ".{0,12}", password in ".{0,12}") {
            let secret = SecretString::from(password.as_str());
            let url = Dsn { user: &user, ..plain(&secret) }.to_url();
            let credentials = url
                .expose_secret()
                .strip_prefix("mysql+pymysql://").unwrap()
                .split_once('@').unwrap().0;
            let (encoded_user, encoded_password) = credentials.split_once(':').unwrap();
            for encoded in [encoded_user, encoded_password] {
                prop_assert!(
                    encoded.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~&+,;=%".contains(&b)),
                    "{}", encoded
                );
            }
            let decode = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8().unwrap().into_owned();
            prop_assert_eq!(decode(encoded_user), user);
            prop_assert_eq!(decode(encoded_password), password);
        }
    }
}
