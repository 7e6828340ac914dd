//! Stage 16: what the client gets of the answer.

use crate::{
    http::{exchange::Exchange, name::Name, response::Response, stages::queue},
    upstream::head::{OWN_COOKIES, connection_options, is_hop_by_hop},
};

pub(crate) async fn finish(x: &mut Exchange, response: &mut Response) {
    let headers = &mut response.head.headers;
    if headers.has(Name::Connection) {
        let listed: Vec<Vec<u8>> =
            connection_options(headers).into_iter().map(<[u8]>::to_vec).collect();
        for name in &listed {
            headers.remove_named(name);
        }
    }
    headers.retain(|name, _, value| match name {
        // An origin must not set our cookies.
        // A cookie without a name (`=corvus_...`) comes back from some browsers with what looks like
        // one.
        Name::SetCookie => {
            let name = value.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b'='));
            !value.get(name.unwrap_or(0)..).is_some_and(|value| value.starts_with(OWN_COOKIES))
        }
        name => !is_hop_by_hop(name),
    });
    if let Some(command) = headers.get(Name::CorvusQueue) {
        let release = command.trim_ascii().eq_ignore_ascii_case(b"release");
        headers.remove(Name::CorvusQueue);
        if release {
            queue::release(x).await;
        }
    }
    let headers = &mut response.head.headers;
    if let Some(site) = &x.site
        && !site.host.response_headers.is_empty()
    {
        let policy = &site.host.response_headers;
        policy.remove.iter().for_each(|name| headers.remove_named(name.as_bytes()));
        for (name, value) in &policy.set {
            headers.remove_named(name.as_bytes());
            headers.push(name.as_bytes(), value.as_bytes());
        }
    }
    if !x.set_cookies.is_empty() {
        for cookie in &x.set_cookies {
            headers.add(Name::SetCookie, cookie.as_bytes());
        }
        // A shared cache that kept this would hand one visitor's place to everybody.
        headers.remove(Name::Expires);
        headers.set(Name::CacheControl, b"private, no-store");
    }
}
