//! The access queue through HTTP: real clients, a real origin, the whole gateway between them.
//!
//! The nine laws, the traces of the specification and everything that needs a failing store are
//! tested on the engine and its gate (`corvus_queue::contract`, `gate::tests`, `embedded::tests`);
//! here is what visitors, programs and operators meet. Browsers: [`crate::browser`].
//!
//! What is known to break in queues of this kind, and the tests that hold it:
//!
//! | case | right behaviour | tests |
//! |---|---|---|
//! | 1 | silent waiters never make the queue stick | `weak_points::weak_point_3_…`, `crowd::a_thousand_dead_ahead_of_one_live` |
//! | 2 | the dead count in no size, rank or limit, and idle no slot | `weak_points::weak_point_2_…`, `weak_point_3_…` |
//! | 3 | a place that was given up is gone, never an old number | `sessions::leaving_the_line`, `weak_points::weak_point_2_…` |
//! | 4 | reload, tabs, back: one place, and the rank never rises | `first_visit::tabs_and_reloads_keep_the_place`, `browser::joins_waits_and_is_admitted` |
//! | 5 | a missed grant blocks nobody and costs no place | `sessions::only_a_real_request_claims_a_grant`, `weak_points::weak_point_1_…` |
//! | 6 | no cookie comes back (frames): said so, nothing stored | `weak_points::weak_point_7_…`, `first_visit::blocked_cookies_get_one_clear_page` |
//! | 7 | blocked cookies, curl, crawlers: bounded | `first_visit::blocked_cookies_get_one_clear_page`, `programs::clients_without_cookies_are_told_once_and_hold_nothing`, `browser::blocked_cookies` |
//! | 8 | POST is never redirected | `programs::a_post_is_never_redirected`, `a_refused_body_is_not_taken_for_a_request` |
//! | 9 | the target survives byte for byte, on the same host only | `first_visit::targets_survive_…`, `odd_targets_survive_…`, `the_redirect_leads_nowhere_else` |
//! | 10 | parallel first requests: one place | `first_visit::parallel_first_requests_get_one_place` |
//! | 11 | another address does not cost the place, unless bound | `cookies::tokens_can_be_bound_to_the_network` |
//! | 12 | limits by client address, forged headers ignored | `limits::joins_are_limited_for_each_address`, `first_visit::forwarded_headers_count_only_from_trusted_proxies` |
//! | 13 | programs get JSON, preflights pass, HEAD too | `programs::whoever_does_not_ask_for_a_page_gets_json`, `preflights_pass`, `clients_without_cookies_…` |
//! | 14 | nothing of ours is for caches | `schedule::the_status_of_the_waiting_page`, `cookies::answers_with_a_cookie_are_not_for_caches` |
//! | 15 | crawlers get 429 with `Retry-After`; robots.txt and /.well-known/ are open | `programs::robots_and_well_known_pass`, `clients_without_cookies_…` |
//! | 16 | feeds and keyed APIs can be exempt, and nothing beside them | `scope::bypassed_requests_pass_and_are_not_counted` |
//! | 17, 18, 24 | browser challenges | not queues |
//! | 19 | restart, keys: nobody is moved back | `cookies::tokens_outlive_a_restart`, `crowd::kill_9_keeps_places_and_sessions` |
//! | 20 | store lost or away: no mass admission, those inside pass | `weak_points::weak_point_4_…`; `corvus_queue::gate::tests` |
//! | 21 | no spelling of a path slips past | `scope::lookalike_paths_are_queued`, `absolute_targets_are_queued` |
//! | 22 | limits edited live | `sessions::capacity_may_change_at_any_time` |
//! | 23 | callbacks pass by rule and are not counted | `scope::bypassed_requests_pass_and_are_not_counted` |

mod cookies;
mod crowd;
mod first_visit;
mod limits;
mod programs;
mod schedule;
mod scope;
mod sessions;
pub(crate) mod shop;
mod weak_points;
