// The waiting page: asks the status address when told to, and shows the answer.

const text = page.text;
const heading = document.title;
const memory = 'corvus_' + page.queue;

// `first` is the rank first seen with this place, `best` the lowest: a number once shown never
// rises, also across reloads. Another place starts anew.
let seen = { place: page.place, first: null, best: null };
try {
  const kept = JSON.parse(sessionStorage.getItem(memory));
  if (kept && kept.place === page.place) seen = kept;
} catch {}

let told = page.poll_s; // seconds between polls, as the server wants it
let failures = 0;       // in a row
let last = Date.now();  // when the last poll ended; this page counts as one
let running = false;
let over = false;
let timer;

// Numbers and waits read as the server writes them (lang.rs).
const number = (n) => String(n).replace(/\B(?=(\d{3})+$)/g, text.separator);

function counted(forms, n) {
  const few = page.language === 'pl' ? n % 10 >= 2 && n % 10 <= 4 && (n % 100 < 12 || n % 100 > 14)
    : page.language === 'ar' && n % 100 >= 3 && n % 100 <= 10;
  return forms[n === 1 ? 0 : n === 2 ? 1 : few ? 2 : 3].replace('{n}', number(n));
}

function wait(s) {
  if (s === null || s === undefined) return text.wait_unknown;
  if (s < 60) return text.wait_moment;
  if (s >= 86400) return text.wait_day;
  if (s >= 7200) return counted(text.hours, Math.ceil(s / 3600));
  const minutes = Math.ceil(s / 60);
  return counted(text.minutes, minutes > 20 ? Math.ceil(minutes / 5) * 5 : minutes);
}

// Writes only what changed, so that nothing is drawn or read out for nothing.
function set(id, value) {
  const element = byId(id);
  if (element.textContent !== value) element.textContent = value;
}

function note(message) {
  set('note', message);
  byId('note').hidden = !message;
}

// Read out: the first position, then when a quarter of those ahead has gone, and the last three;
// never twice within half a minute.
let heard = null;
let heardAt = 0;
function announce(rank, eta) {
  const near = rank <= 3 && rank !== heard;
  if (heard !== null && !near && (rank > heard * 0.75 || Date.now() - heardAt < 30000)) return;
  heard = rank;
  heardAt = Date.now();
  say(rank === 1 ? text.next + '.' : text.place + ': ' + number(rank) + '. ' + text.wait + ': ' + wait(eta));
}

function say(message) {
  set('heard', message);
}

function show(rank, waiting, eta) {
  const known = rank !== null && rank !== undefined;
  if (known) {
    if (seen.best !== null && rank > seen.best) rank = seen.best;
    if (rank < seen.best) byId('paused').hidden = true;
    seen.best = rank;
    seen.first = seen.first || rank;
    try { sessionStorage.setItem(memory, JSON.stringify(seen)); } catch {}
    set('rank', rank === 1 ? text.next : number(rank));
    byId('rank').className = 'big' + (rank === 1 ? ' next' : number(rank).length > 5 ? ' long' : '');
    byId('bar').value = Math.max(0.03, (seen.first - rank + 1) / (seen.first + 1));
    byId('bar').hidden = false;
    set('ahead', number(rank - 1));
    set('behind', number(Math.max(0, waiting - rank)));
    set('wait', wait(eta));
    document.title = (rank === 1 ? text.next : number(rank)) + ' · ' + heading;
    announce(rank, eta);
  } else {
    set('here', number(waiting));
  }
  byId('line').hidden = byId('tiles').hidden = !known;
  byId('crowd').hidden = known;
  if (known) byId('start').hidden = true;
}

// Takes an answer in. True if it was a good one. `hasty`: what a refusal may come of.
function take(answer, hasty) {
  switch (answer.state) {
    case 'waiting':
      note('');
      show(answer.rank, answer.waiting, answer.eta_s);
      return true;
    case 'admitted':
      note(text.admitted);
      say(text.admitted);
      document.title = text.admitted;
      // falls through
    case 'gone':
      // What was seen belongs to a place that is used or lost.
      try { sessionStorage.removeItem(memory); } catch {}
      // falls through
    case 'closed':
    case 'not_open':
      over = true;
      enter();
      return true;
    case 'full':
    case 'busy':
    case 'unavailable':
      if (failures || !hasty) note(text.overloaded);
      return false;
    default:
      throw new Error('unknown state');
  }
}

async function poll() {
  if (running || over) return;
  running = true;
  clearTimeout(timer);
  const limit = new AbortController();
  const alarm = setTimeout(() => limit.abort(), 20000);
  let good = false;
  try {
    const response = await fetch(page.status_url, {
      headers: { Accept: 'application/json' },
      credentials: 'same-origin',
      cache: 'no-store',
      signal: limit.signal,
    });
    const answer = await response.json();
    const asked = Number(answer.retry_after) || Number(response.headers.get('Retry-After')) || page.poll_s;
    good = take(answer, asked < told);
    // A refusal that names a shorter time than the line did came of too many tabs: they must not
    // ask more often for it.
    told = good ? Math.max(1, asked) : Math.max(told, asked);
  } catch {
    if (failures) note(text.offline); // one lost answer is not worth a word
  }
  clearTimeout(alarm);
  running = false;
  last = Date.now();
  failures = good ? 0 : failures + 1;
  plan();
}

// The next poll: when told, a little later at random; after failures twice as late each time, up
// to a minute.
function plan() {
  if (over) return;
  const backoff = failures ? Math.min(60, told * 2 ** failures) * (0.7 + 0.3 * Math.random()) : 0;
  const s = Math.max(told * (1 + 0.1 * Math.random()), backoff);
  clearTimeout(timer);
  timer = setTimeout(poll, s * 1000);
}

// Timers of hidden tabs run late, and back-off should not outlast the outage.
function pollIfDue() {
  if (Date.now() - last >= told * 1000) poll();
}

addEventListener('online', pollIfDue);
document.addEventListener('visibilitychange', () => {
  if (!document.hidden) pollIfDue();
});
addEventListener('pageshow', (event) => {
  if (!event.persisted) return;
  over = false; // the back button brought an old page back: what it shows may be long past
  poll();
});
// The Refresh header is for visitors without a script; this ends its timer. It would end a poll or
// a navigation too.
addEventListener('load', () => setTimeout(() => running || over || window.stop(), 0));

byId('stay').hidden = false;
byId('stay').addEventListener('click', () => {
  byId('leave').open = false;
  byId('leave').querySelector('summary').focus();
});
byId('leave').querySelector('form').addEventListener('submit', () => {
  over = true;
  try { sessionStorage.removeItem(memory); } catch {}
});

show(page.rank, page.waiting, page.eta_s);
if (page.starts_in !== null) {
  countdown(byId('clock'), page.starts_in, () => {
    byId('clock').className = 'big next';
    set('clock', text.starting);
  });
}
plan();
