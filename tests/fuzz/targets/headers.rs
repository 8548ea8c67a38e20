//! Any headers and any request target: no panic, nothing of one hop or of ours goes on, what is
//! protected stays, a second pass changes nothing, and a target comes out as it went in.
//! Lines are `name: value`; the first line is the target.
#![no_main]

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use libfuzzer_sys::fuzz_target;
use prefixgate::config::{Format, Upstream};
use prefixgate::proxy::{headers, route};
use prefixgate::run::Labels;

fn upstreams() -> [Upstream; 2] {
    [("a", "http://a/prefix", Format::Anthropic), ("o", "http://o", Format::OpenAi)].map(|(name, base, format)| Upstream {
        name: name.into(),
        base: http::Uri::from_static(base),
        format,
        price_provider: name.into(),
dialect: prefixgate::provider::dialect::Dialect::default(),
    })
}

fn check_route(target: &str) {
    let Some(router) = route::Router::new(&upstreams()) else {
        panic!("there are upstreams")
    };
    for method in [Method::GET, Method::POST, Method::HEAD] {
        let Ok(route) = router.route(&method, target) else { continue };
        let plain = !target.starts_with("/-/") && !target.starts_with("/u/");
        if plain && target.starts_with('/') {
            assert_eq!(route.target, target);
        }
        if let Ok(uri) = route::join(&route.upstream, &route.target) {
            assert_eq!(uri.authority(), route.upstream.base.authority());
            assert!(uri.path().starts_with(route.upstream.base.path()));
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let mut lines = data.split(|b| *b == b'\n');
    if let Some(Ok(target)) = lines.next().map(std::str::from_utf8) {
        // hyper gives only what parses as a target.
        if let Ok(parsed) = target.parse::<http::uri::PathAndQuery>() {
            check_route(parsed.as_str());
        }
    }
    let mut map = HeaderMap::new();
    for line in lines.take(64) {
        let Some(colon) = line.iter().position(|b| *b == b':') else { continue };
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(&line[..colon]), HeaderValue::from_bytes(line[colon + 1..].trim_ascii()))
        {
            map.append(name, value);
        }
    }
    let kept = ["content-length", "content-type", "content-encoding", "authorization", "x-api-key", "anthropic-beta"];
    let before: Vec<usize> = kept.iter().map(|name| map.get_all(*name).iter().count()).collect();

    let mut stripped = map.clone();
    headers::strip_hop(&mut stripped);
    let mut sent = map;
    let mut labels = Labels::default();
    let _ = headers::to_upstream(&mut sent, &mut labels);
    for out in [&stripped, &sent] {
        for hop in ["connection", "te", "transfer-encoding", "upgrade", "keep-alive", "proxy-authorization"] {
            assert!(!out.contains_key(hop));
        }
        let after: Vec<usize> = kept.iter().map(|name| out.get_all(*name).iter().count()).collect();
        assert_eq!(after, before);
    }
    assert!(!sent.contains_key("host") && !sent.contains_key("expect"));
    assert!(sent.keys().all(|name| !name.as_str().starts_with("x-prefixgate-")));
    let mut again = sent.clone();
    let _ = headers::to_upstream(&mut again, &mut labels);
    assert_eq!(again, sent);
    let _ = headers::credential(&sent);
    let _ = headers::wants_upgrade(&sent);
});
