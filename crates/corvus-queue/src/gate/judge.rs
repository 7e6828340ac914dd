//! What a request's cookies prove.

use std::borrow::Cow;

use super::{
    Admission, Arc, Check, ClientIp, CookieChange, Cookies, Place, Queue, QueueService, SKEW_MS,
    Shown, SigningKeys, TokenError, Visitor, is_placed, network,
};

/// No token is longer.
const MAX_TEXT: usize = 256;

/// The texts of cookies whose key we do not hold, or do not hold yet. Never longer than tokens are.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Unknown {
    admission: Option<Box<str>>,
    place: Option<Box<str>>,
}

impl QueueService {
    /// Judges the cookies of a request to `queue`. Takes no lock, and allocates nothing but for
    /// cookies whose key we do not hold.
    pub fn check(&self, queue: &Queue, cookies: Cookies<'_>, ip: ClientIp) -> Check {
        self.check_again(queue, cookies, ip, &mut None)
    }

    /// The same for a connection that remembers the admission it last showed: a browser sends one
    /// cookie with each of its requests, and the signature of the same text under the same key is
    /// not computed twice. Whether the admission is still young is asked each time.
    pub fn check_again(
        &self,
        queue: &Queue,
        cookies: Cookies<'_>,
        ip: ClientIp,
        shown: &mut Option<Shown>,
    ) -> Check {
        let id = queue.settings.id.as_str();
        let network = network(queue, ip);
        let keys = self.keys.load();
        let mut unknown = Unknown::default();
        let admission = cookies.admission.and_then(|text| {
            let known = shown.as_ref().filter(|shown| {
                *shown.text == *text
                    && shown.queue == queue.settings.id
                    && shown.network == network
                    && keys.as_ref().is_some_and(|keys| Arc::ptr_eq(&shown.keys, keys))
            });
            if let Some(known) = known {
                return Some(known.admission);
            }
            let verified = verify(keys.as_ref(), |keys| keys.verify_admission(id, text, network));
            let admission = believed(verified, text, &mut unknown.admission)?;
            *shown = keys.as_ref().map(|keys| Shown {
                text: text.into(),
                queue: queue.settings.id.clone(),
                network,
                keys: Arc::clone(keys),
                admission,
            });
            Some(admission)
        });
        if let Some(admission) = admission
            && let Some(view) = self.views.load().get(&queue.settings.id)
            && let Some(now) = view.store_now(self.clock.mono_ms())
            && view.witnessed(admission.issued_ms)
        {
            let age = now.cast_signed().saturating_sub(admission.issued_ms.cast_signed());
            if admission.expires_ms > now
                && (-SKEW_MS..queue.settings.refresh_ms.cast_signed()).contains(&age)
            {
                return Check::Admitted(admission);
            }
        }
        let place = cookies
            .place
            .and_then(|text| {
                let verified = verify(keys.as_ref(), |keys| keys.verify_place(id, text, network));
                believed(verified, text, &mut unknown.place)
            })
            .filter(|place| admission.is_none_or(|a| a.sid == place.sid));
        Check::Ask(Visitor {
            ip,
            admission,
            place,
            had_admission: cookies.admission.is_some(),
            had_place: cookies.place.is_some(),
            unknown: (unknown != Unknown::default()).then(|| Box::new(unknown)),
        })
    }

    /// Of several admission cookies, the one that lasts longest; without a good one, the first.
    ///
    /// Browsers send two cookies of one name, the older first, when another site of the domain has
    /// set one, or when `cookie.domain` was changed: a stale one must not shadow the good one.
    pub fn choose_admission<'a>(
        &self,
        queue: &Queue,
        mut cookies: impl Iterator<Item = &'a str> + Clone,
        ip: ClientIp,
    ) -> Option<&'a str> {
        let (id, network, keys) = (&queue.settings.id, network(queue, ip), self.keys.load());
        let good = |text: &&str| {
            let admission = keys.as_ref()?.verify_admission(id.as_str(), text, network).ok();
            admission.map(|admission| admission.expires_ms)
        };
        let best = cookies.clone().filter_map(|text| Some((good(&text)?, text))).max();
        best.map(|(_, text)| text).or_else(|| cookies.next())
    }

    /// Of several place cookies, the newest that is more than a proof of cookies; see
    /// [`Self::choose_admission`].
    pub fn choose_place<'a>(
        &self,
        queue: &Queue,
        mut cookies: impl Iterator<Item = &'a str> + Clone,
        ip: ClientIp,
    ) -> Option<&'a str> {
        let (id, network, keys) = (&queue.settings.id, network(queue, ip), self.keys.load());
        let good = |text: &&str| {
            let place = keys.as_ref()?.verify_place(id.as_str(), text, network).ok();
            place.map(|place| (is_placed(&place), place.issued_ms))
        };
        let best = cookies.clone().filter_map(|text| Some((good(&text)?, text))).max();
        best.map(|(_, text)| text).or_else(|| cookies.next())
    }

    /// Looks once more at cookies whose key we did not hold when they were judged: other gateways
    /// may have rotated keys while we were cut off, and to forget a visitor for that would cost
    /// them their place. `None`: we cannot tell, because we have no keys, or the store that has
    /// the others cannot be read.
    pub(super) async fn judge_again<'v>(
        &self,
        queue: &Queue,
        visitor: &'v Visitor,
    ) -> Option<Cow<'v, Visitor>> {
        let Some(texts) = &visitor.unknown else {
            return self.keys.load().is_some().then_some(Cow::Borrowed(visitor));
        };
        let are_all = self.keys.are_all(self.clock.mono_ms()).await;
        let (id, network, keys) =
            (&queue.settings.id, network(queue, visitor.ip), self.keys.load());
        let keys = Some(keys.as_ref()?);
        let mut unknown = Unknown::default();
        let admission = visitor.admission.or_else(|| {
            let text = texts.admission.as_deref()?;
            let verified = verify(keys, |keys| keys.verify_admission(id.as_str(), text, network));
            believed(verified, text, &mut unknown.admission)
        });
        let place = visitor.place.or_else(|| {
            let text = texts.place.as_deref()?;
            let verified = verify(keys, |keys| keys.verify_place(id.as_str(), text, network));
            believed(verified, text, &mut unknown.place)
        });
        let place = place.filter(|place| admission.is_none_or(|a| a.sid == place.sid));
        let judged = are_all || admission.is_some() || unknown == Unknown::default();
        judged.then(|| Cow::Owned(Visitor { admission, place, unknown: None, ..visitor.clone() }))
    }

    pub(super) fn sign_admission(
        &self,
        queue: &Queue,
        visitor: &Visitor,
        admission: &Admission,
    ) -> CookieChange {
        let id = queue.settings.id.as_str();
        let keys = self.keys.load();
        keys.as_ref().map_or(CookieChange::Keep, |keys| {
            CookieChange::Set(keys.sign_admission(id, admission, network(queue, visitor.ip)))
        })
    }

    pub(super) fn sign_place(
        &self,
        queue: &Queue,
        visitor: &Visitor,
        place: &Place,
    ) -> CookieChange {
        let id = queue.settings.id.as_str();
        let keys = self.keys.load();
        keys.as_ref().map_or(CookieChange::Keep, |keys| {
            CookieChange::Set(keys.sign_place(id, place, network(queue, visitor.ip)))
        })
    }
}

/// Without any keys, every key is one that we do not hold.
fn verify<T>(
    keys: Option<&Arc<SigningKeys>>,
    by: impl FnOnce(&SigningKeys) -> Result<T, TokenError>,
) -> Result<T, TokenError> {
    keys.map_or(Err(TokenError::UnknownKey), |keys| by(keys))
}

/// What a token proves; the text of one whose key we do not hold goes to `unknown`.
fn believed<T>(
    verified: Result<T, TokenError>,
    text: &str,
    unknown: &mut Option<Box<str>>,
) -> Option<T> {
    if matches!(verified, Err(TokenError::UnknownKey)) && text.len() <= MAX_TEXT {
        *unknown = Some(text.into());
    }
    verified.ok()
}
