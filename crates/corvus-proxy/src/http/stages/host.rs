//! Stage 4: which site is meant.

use std::rc::Rc;

use corvus_config::snapshot::DefaultSite;
use corvus_core::{Stage, event::Outcome};

use crate::{
    http::{
        exchange::Exchange, name::Name, pipeline::Stop, rescue::Failure, response::Response,
        stages::queue,
    },
    http1::framing::split_port,
};

pub(crate) fn find(x: &mut Exchange) -> Result<(), Stop> {
    x.host = host_name(&x.authority);
    if let Some(site) = x.active.find(&x.host) {
        x.site = Some(Rc::clone(site));
        if x.site.as_ref().is_some_and(|site| site.queue.is_some()) {
            queue::take_marker(x);
        }
        return Ok(());
    }
    Err(default_site(&x.active.snapshot.settings.default_site))
}

/// Lower case, no port, no trailing dot: `Shop.Example.COM.:443` is `shop.example.com`.
fn host_name(authority: &[u8]) -> String {
    let (host, _) = split_port(authority);
    let host = host.strip_suffix(b".").unwrap_or(host);
    let mut host = String::from_utf8_lossy(host).into_owned();
    host.make_ascii_lowercase();
    host
}

fn default_site(site: &DefaultSite) -> Stop {
    match site {
        DefaultSite::NotFound => Failure::denied(404, Stage::Host, "unknown_host").into(),
        DefaultSite::Close => Response::silent(Outcome::Answered).into(),
        DefaultSite::Redirect(to) => {
            Response::own(302, Outcome::Answered).with(Name::Location, to.as_bytes()).into()
        }
        DefaultSite::Page(html) => Response::own(200, Outcome::Answered)
            .with(Name::CacheControl, b"no-store")
            .with_body("text/html; charset=utf-8", html.as_bytes().to_vec())
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names_are_folded() {
        assert_eq!(host_name(b"Shop.Example.COM.:443"), "shop.example.com");
        assert_eq!(host_name(b"[::1]:80"), "[::1]");
        assert_eq!(host_name(b""), "");
    }
}
