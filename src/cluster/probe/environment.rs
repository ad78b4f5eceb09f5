//! `HTTP_PROXY` and `NO_PROXY`, read as Go's HTTP client reads them.

use std::net::IpAddr;

use http::{HeaderValue, Uri};

/// Whether a URL is reached through a proxy.
#[derive(Clone, Debug, Default)]
pub struct ProxyRules {
    proxy: Option<HttpProxy>,
    bypass: Vec<Bypass>,
}

/// An HTTP proxy.
#[derive(Clone, Debug)]
pub struct HttpProxy {
    /// `host:port`.
    pub authority: String,
    /// Credentials for the proxy itself; marked sensitive, so that no log shows them.
    pub authorization: Option<HeaderValue>,
    /// Set when the variable asks for a kind of proxy that plain HTTP does not reach.
    pub unsupported: Option<String>,
}

/// One entry of `NO_PROXY`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Bypass {
    /// Without a leading dot; empty means every host.
    domain: String,
    subdomains_only: bool,
    port: Option<u16>,
    /// For an entry that is an address or a network: it, and how many bits of it count.
    network: Option<(IpAddr, u8)>,
}

/// What `HTTPS_PROXY` says, and whether that is to be used for `server`.
pub fn https_proxy(server: &Uri) -> (Option<Uri>, Option<Uri>) {
    choose(
        &read("HTTPS_PROXY", "https_proxy"),
        &read("NO_PROXY", "no_proxy"),
        server,
    )
}

fn choose(proxy: &str, no_proxy: &str, server: &Uri) -> (Option<Uri>, Option<Uri>) {
    let proxy = proxy.trim();
    let with_scheme = if proxy.contains("://") {
        proxy.to_owned()
    } else {
        format!("http://{proxy}")
    };
    let uri: Option<Uri> = with_scheme.parse().ok().filter(|_| !proxy.is_empty());
    let rules = ProxyRules::new(proxy, no_proxy);
    let chosen = uri.clone().filter(|_| rules.proxy_for(server).is_some());
    (uri, chosen)
}

fn read(upper: &str, lower: &str) -> String {
    let value = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    value(upper).or_else(|| value(lower)).unwrap_or_default()
}

// === impl ProxyRules ===

impl ProxyRules {
    /// The rules of this process.
    pub fn from_environment() -> Self {
        Self::new(
            &read("HTTP_PROXY", "http_proxy"),
            &read("NO_PROXY", "no_proxy"),
        )
    }

    /// The rules of these two values.
    pub fn new(http_proxy: &str, no_proxy: &str) -> Self {
        let proxy = HttpProxy::parse(http_proxy.trim());
        if proxy.is_none() && !http_proxy.trim().is_empty() {
            tracing::warn!("HTTP_PROXY is no URL and is ignored");
        }
        let bypass = no_proxy.split(',').filter_map(Bypass::parse).collect();
        Self { proxy, bypass }
    }

    /// The proxy for `uri`, if one is to be used. A host on this machine never is.
    ///
    /// Entries of `NO_PROXY` that are addresses or networks match no name, as in Go.
    pub fn proxy_for(&self, uri: &Uri) -> Option<&HttpProxy> {
        let host = uri.host()?.trim_matches(['[', ']']).to_ascii_lowercase();
        let tls = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
        let is_loopback = host == "localhost"
            || host
                .parse::<std::net::IpAddr>()
                .is_ok_and(|address| address.is_loopback());
        if is_loopback || self.bypass.iter().any(|entry| entry.matches(&host, port)) {
            return None;
        }
        self.proxy.as_ref()
    }
}

// === impl HttpProxy ===

impl HttpProxy {
    fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return None;
        }
        let with_scheme = |text: &str| url::Url::parse(text).ok().filter(url::Url::has_host);
        // A bare `host:port` is a URL with the scheme `host`; Go adds `http://` as well.
        let url = with_scheme(text).or_else(|| with_scheme(&format!("http://{text}")))?;
        let port = url.port_or_known_default().unwrap_or(80);
        let authorization = (!url.username().is_empty()).then(|| basic(&url)).flatten();
        let scheme = url.scheme();
        Some(Self {
            authority: format!("{}:{port}", url.host_str()?),
            authorization,
            unsupported: (scheme != "http").then(|| scheme.to_owned()),
        })
    }
}

// === impl Bypass ===

impl Bypass {
    fn parse(entry: &str) -> Option<Self> {
        let entry = entry.trim().to_ascii_lowercase();
        if entry.is_empty() {
            return None;
        }
        if entry == "*" {
            let domain = String::new();
            return Some(Self {
                domain,
                subdomains_only: false,
                port: None,
                network: None,
            });
        }
        if let Some(network) = network(&entry) {
            return Some(Self {
                domain: entry,
                subdomains_only: false,
                port: None,
                network: Some(network),
            });
        }
        let (domain, port) = match entry.rsplit_once(':') {
            Some((domain, port)) => (domain.to_owned(), Some(port.parse().ok()?)),
            None => (entry, None),
        };
        let domain = domain.strip_prefix('*').unwrap_or(&domain);
        let bare = domain.strip_prefix('.');
        Some(Self {
            domain: bare.unwrap_or(domain).to_owned(),
            subdomains_only: bare.is_some(),
            port,
            network: None,
        })
    }

    fn matches(&self, host: &str, port: u16) -> bool {
        if self.port.is_some_and(|wanted| wanted != port) {
            return false;
        }
        if let Some((network, bits)) = self.network {
            let host = host.parse().ok();
            return host.is_some_and(|host| within(host, network, bits));
        }
        if self.domain.is_empty() {
            return true;
        }
        match host.strip_suffix(&self.domain) {
            Some("") => !self.subdomains_only,
            Some(before) => before.ends_with('.'),
            None => false,
        }
    }
}

/// `10.0.0.1`, `10.0.0.0/8`, and the same with IPv6.
fn network(entry: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = match entry.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (entry, None),
    };
    let address: IpAddr = address.trim_matches(['[', ']']).parse().ok()?;
    let all = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.map_or(Ok(all), str::parse).ok()?;
    (bits <= all).then_some((address, bits))
}

fn within(host: IpAddr, network: IpAddr, bits: u8) -> bool {
    let bits = u32::from(bits);
    match (host, network) {
        (IpAddr::V4(host), IpAddr::V4(network)) => {
            let differs = host.to_bits() ^ network.to_bits();
            differs.checked_shr(32 - bits).unwrap_or(0) == 0
        }
        (IpAddr::V6(host), IpAddr::V6(network)) => {
            let differs = host.to_bits() ^ network.to_bits();
            differs.checked_shr(128 - bits).unwrap_or(0) == 0
        }
        _ => false,
    }
}

fn basic(url: &url::Url) -> Option<HeaderValue> {
    let decode = |text| percent_encoding::percent_decode_str(text).decode_utf8_lossy();
    let user = decode(url.username());
    let password = decode(url.password().unwrap_or_default());
    let pair = data_encoding::BASE64.encode(format!("{user}:{password}").as_bytes());
    let mut value = HeaderValue::from_str(&format!("Basic {pair}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const SERVICE: &str = "http://images.openstack.svc.cluster.local:9292/healthcheck";

    fn proxied(no_proxy: &str, url: &str) -> bool {
        let rules = ProxyRules::new("http://proxy.example:3128", no_proxy);
        rules.proxy_for(&url.parse().unwrap()).is_some()
    }

    #[rstest]
    #[case::no_entry("", true)]
    #[case::all("*", false)]
    #[case::suffix("svc.cluster.local", false)]
    #[case::dotted(".svc.cluster.local", false)]
    #[case::starred("*.cluster.local", false)]
    #[case::upper("SVC.Cluster.Local", false)]
    #[case::exact("images.openstack.svc.cluster.local", false)]
    #[case::exact_subdomains(".images.openstack.svc.cluster.local", true)]
    #[case::part_of_a_label("cal", true)]
    #[case::port("cluster.local:9292", false)]
    #[case::other_port("cluster.local:80", true)]
    #[case::list("10.0.0.0/8, localhost , .cluster.local", false)]
    #[case::networks_match_no_name("10.0.0.0/8,fd00::/8", true)]
    fn names_that_bypass_the_proxy(#[case] no_proxy: &str, #[case] expected: bool) {
        assert_eq!(proxied(no_proxy, SERVICE), expected);
    }

    #[rstest]
    #[case::nothing("", "", None)]
    #[case::all("http://proxy:3128", "", Some("http://proxy:3128/"))]
    #[case::bare("proxy:3128", "", Some("http://proxy:3128/"))]
    #[case::network("http://proxy:3128", "10.0.0.0/8,.svc", None)]
    #[case::other_network("http://proxy:3128", "10.1.0.0/16", Some("http://proxy:3128/"))]
    #[case::address("http://proxy:3128", "10.96.0.1", None)]
    #[case::every_address("http://proxy:3128", "0.0.0.0/0", None)]
    fn the_api_server_is_reached_as_the_environment_says(
        #[case] proxy: &str,
        #[case] no_proxy: &str,
        #[case] expected: Option<&str>,
    ) {
        let server = "https://10.96.0.1:443".parse().unwrap();
        let (_, chosen) = choose(proxy, no_proxy, &server);
        assert_eq!(chosen.map(|uri| uri.to_string()).as_deref(), expected);
    }

    #[test]
    fn an_ipv6_network_holds_its_addresses() {
        let (network, bits) = network("fd00::/8").unwrap();
        assert!(within("fd12::1".parse().unwrap(), network, bits));
        assert!(!within("fe80::1".parse().unwrap(), network, bits));
        assert!(!within("10.0.0.1".parse().unwrap(), network, bits));
    }

    #[rstest]
    #[case("http://localhost:9292/")]
    #[case("http://127.0.0.1:9292/")]
    #[case("http://[::1]:9292/")]
    fn this_machine_is_never_behind_a_proxy(#[case] url: &str) {
        assert!(!proxied("", url));
    }

    #[rstest]
    #[case("http://proxy.example:3128", "proxy.example:3128", None)]
    #[case("proxy.example:3128", "proxy.example:3128", None)]
    #[case("http://proxy.example", "proxy.example:80", None)]
    #[case("10.0.0.9:8080", "10.0.0.9:8080", None)]
    #[case("socks5://proxy.example:1080", "proxy.example:1080", Some("socks5"))]
    #[case("https://proxy.example", "proxy.example:443", Some("https"))]
    fn proxies(#[case] value: &str, #[case] authority: &str, #[case] unsupported: Option<&str>) {
        let proxy = HttpProxy::parse(value).unwrap();
        assert_eq!(proxy.authority, authority);
        assert_eq!(proxy.unsupported.as_deref(), unsupported);
        assert!(proxy.authorization.is_none());
    }

    #[test]
    fn credentials_of_the_proxy_are_sent_and_not_shown() {
        let proxy = HttpProxy::parse("http://us%40er:pa%3Ass@proxy.example:3128").unwrap();
        let value = proxy.authorization.as_ref().unwrap();
        assert_eq!(value.to_str().unwrap(), "Basic dXNAZXI6cGE6c3M=");
        assert!(!format!("{proxy:?}").contains("dXNAZXI6"), "{proxy:?}");
    }
}
