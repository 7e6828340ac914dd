//! One request on its way through the stages: what they read, and what they leave for the record.

use std::{
    borrow::Cow,
    cell::{OnceCell, RefCell},
    net::IpAddr,
    rc::Rc,
};

use corvus_core::{
    ClientIp, Event, PeerAddr, Reason, Stage,
    event::{Outcome, Protocol},
    token::Admission,
};
use corvus_queue::Shown;
use corvus_rules::Fields;

use crate::{
    http::{
        body::{Meter, RequestBody},
        headers::cookie_pairs,
        name::Name,
        rescue,
    },
    http1::{
        parse::{Malformed, RequestHead},
        server::Inbound,
    },
    upstream::UpstreamError,
    worker::{Active, Site, Worker},
};

/// What a connection tells about each of its requests.
#[derive(Debug)]
pub(crate) struct ConnInfo {
    pub(crate) peer: PeerAddr,
    /// The peer's address as text, which each request to an upstream carries.
    pub(crate) peer_text: String,
    pub(crate) tls: bool,
    pub(crate) local_port: u16,
    /// Port of our first HTTPS listener.
    pub(crate) https_port: Option<u16>,
    /// The admission that this connection showed last.
    pub(crate) shown: RefCell<Option<Shown>>,
}

/// One request. Dropping it records it, whatever became of it.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) worker: Rc<Worker>,
    pub(crate) conn: Rc<ConnInfo>,
    pub(crate) active: Rc<Active>,
    pub(crate) head: RequestHead,
    pub(crate) body: RequestBody,
    pub(crate) protocol: Protocol,
    /// What the codec found wrong with the head.
    pub(crate) malformed: Option<Malformed>,
    /// The HTTP/1 connection, where it is one.
    pub(crate) inbound: Option<Rc<Inbound>>,
    pub(crate) id: [u8; 16],
    pub(crate) started_us: u64,
    pub(crate) client: ClientIp,
    /// The peer is a trusted proxy: its forwarding headers stand.
    pub(crate) trusted: bool,
    /// The scheme the client used, which a trusted proxy may know better than the socket.
    pub(crate) https: bool,
    /// The host the request is for: lower case, no port, no trailing dot.
    pub(crate) host: String,
    /// Host and port as the client sent them.
    pub(crate) authority: Vec<u8>,
    pub(crate) site: Option<Rc<Site>>,
    /// Normalised path, made when first asked for.
    path: OnceCell<String>,
    /// `Set-Cookie` values that we add to whatever response there will be.
    pub(crate) set_cookies: Vec<String>,
    pub(crate) meter: Meter,
    /// The admission of a visitor who is inside this host's queue.
    pub(crate) session: Option<Admission>,
    /// The target carried the cookie check's marker, which is taken out of it.
    pub(crate) marked: bool,

    pub(crate) outcome: Outcome,
    pub(crate) reason: Option<Reason>,
    pub(crate) status: u16,
    pub(crate) sent: u64,
    /// Bytes that the client sent through an upgraded connection.
    pub(crate) tunnelled: u64,
    pub(crate) upstream: Option<Rc<crate::upstream::pool::UpstreamState>>,
    pub(crate) upstream_us: Option<u64>,
    recorded: bool,
}

impl Exchange {
    pub(crate) fn new(
        worker: &Rc<Worker>,
        conn: &Rc<ConnInfo>,
        head: RequestHead,
        protocol: Protocol,
    ) -> Self {
        Self {
            id: worker.request_id(),
            started_us: worker.clock.mono_us(),
            active: worker.active(),
            worker: Rc::clone(worker),
            client: ClientIp::new(conn.peer.ip()),
            https: conn.tls,
            conn: Rc::clone(conn),
            head,
            body: RequestBody::Empty,
            protocol,
            malformed: None,
            inbound: None,
            trusted: false,
            host: String::new(),
            authority: Vec::new(),
            site: None,
            path: OnceCell::new(),
            set_cookies: Vec::new(),
            meter: Meter::default(),
            session: None,
            marked: false,
            outcome: Outcome::ClientGone,
            reason: None,
            status: 0,
            sent: 0,
            tunnelled: 0,
            upstream: None,
            upstream_us: None,
            recorded: false,
        }
    }

    pub(crate) fn id(&self) -> &str {
        std::str::from_utf8(&self.id).unwrap_or_default()
    }

    pub(crate) fn scheme(&self) -> &'static str {
        if self.https { "https" } else { "http" }
    }

    /// The target without its query.
    pub(crate) fn raw_path(&self) -> &[u8] {
        let target = self.head.target();
        let end = target.iter().position(|byte| matches!(byte, b'?' | b'#'));
        target.get(..end.unwrap_or(target.len())).unwrap_or_default()
    }

    /// Normalised path: what rules and path scopes match on. Never what the upstream gets.
    pub(crate) fn path(&self) -> &str {
        self.path.get_or_init(|| corvus_rules::path::normalise(self.raw_path()).into_owned())
    }

    /// What stands behind `?`, without `?` and fragment.
    pub(crate) fn raw_query(&self) -> &[u8] {
        let target = self.head.target();
        let end = memchr::memchr(b'#', target).unwrap_or(target.len());
        let target = target.get(..end).unwrap_or_default();
        memchr::memchr(b'?', target).and_then(|at| target.get(at + 1..)).unwrap_or_default()
    }

    /// The target changed: what was derived from it is stale.
    pub(crate) fn replace_target(&mut self, target: &[u8]) {
        self.head.set_target(target);
        self.path = OnceCell::new();
    }

    /// Every value of a cookie, in order.
    pub(crate) fn cookies<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.head
            .headers
            .all(Name::Cookie)
            .flat_map(cookie_pairs)
            .filter_map(move |pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
    }

    /// The client left before it had the whole answer.
    pub(crate) fn client_left(&mut self) {
        self.outcome = Outcome::ClientGone;
    }

    /// The upstream (or the client's own request body) failed in the middle of the answer.
    pub(crate) fn upstream_broke(&mut self, error: &UpstreamError) {
        self.outcome = match error {
            UpstreamError::RequestBody(_) | UpstreamError::ClientGone => Outcome::ClientGone,
            _ => Outcome::UpstreamFailed,
        };
        let mut reason = Reason::new(Stage::Upstream, error.rule());
        reason.fragment = Some(rescue::chain(error));
        self.reason = Some(reason);
    }

    /// Records the request now, and gives back the memory of its head for the next one.
    pub(crate) fn finish(mut self) -> RequestHead {
        crate::http::stages::record::record(&self);
        self.recorded = true;
        std::mem::take(&mut self.head)
    }

    /// The event of this request, as it stands.
    pub(crate) fn event(&self) -> Event<'_> {
        let headers = &self.head.headers;
        Event {
            at_ms: self.worker.wall_ms(self.started_us),
            request_id: self.id(),
            client: self.client,
            method: self.head.method(),
            host: &self.authority,
            target: self.head.target(),
            protocol: self.protocol,
            tls: self.conn.tls,
            site: self.site.as_ref().map(|site| &site.host.id),
            version: self.active.snapshot.version,
            status: self.status,
            sent: self.sent,
            received: self.meter.bytes() + self.tunnelled,
            duration_us: self.worker.clock.mono_us().saturating_sub(self.started_us),
            upstream_us: self.upstream_us,
            upstream: self.upstream.as_ref().map(|state| state.label.as_str()),
            outcome: self.outcome,
            reason: self.reason.as_ref(),
            user_agent: headers.get(Name::UserAgent).unwrap_or_default(),
            referer: headers.get(Name::Referer).unwrap_or_default(),
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if !self.recorded {
            crate::http::stages::record::record(self);
        }
    }
}

/// What expressions read.
impl Fields for Exchange {
    fn host(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.host)
    }

    fn method(&self) -> &str {
        std::str::from_utf8(self.head.method()).unwrap_or_default()
    }

    fn path(&self) -> Cow<'_, str> {
        Cow::Borrowed(Self::path(self))
    }

    fn query(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.raw_query())
    }

    fn client_ip(&self) -> IpAddr {
        self.client.ip()
    }

    fn header(&self, name: &str, each: &mut dyn FnMut(&str)) {
        self.head.headers.all_named(name).for_each(|value| each(&String::from_utf8_lossy(value)));
    }

    fn cookie(&self, name: &str, each: &mut dyn FnMut(&str)) {
        self.cookies(name).for_each(|value| each(&String::from_utf8_lossy(value)));
    }

    fn tls(&self) -> bool {
        self.https
    }
}
