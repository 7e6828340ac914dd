// Shared by the pages that have a script.

const byId = (id) => document.getElementById(id);

// What the server put into the page.
const page = JSON.parse(byId('page').textContent);

// Asks for this address again with GET. location.reload() would repeat a POST, and a plain
// navigation to an address with a fragment only scrolls; so with a fragment the address is made
// another one first.
function enter() {
  const here = location.href;
  if (location.hash) {
    history.replaceState(null, '', location.pathname + location.search + (location.search ? '&' : '?'));
  }
  location.replace(here);
}

// Counts down to `ms` from now in `element`, then calls `done` once.
function countdown(element, ms, done) {
  const end = Date.now() + ms;
  const two = (n) => String(n).padStart(2, '0');
  const tick = () => {
    const left = Math.max(0, end - Date.now());
    const s = Math.ceil(left / 1000);
    const days = Math.floor(s / 86400);
    const hours = Math.floor(s / 3600) % 24;
    const minutes = Math.floor(s / 60) % 60;
    const clock = two(minutes) + ':' + two(s % 60);
    element.textContent = days
      ? days + page.text.day + ' ' + two(hours) + ':' + clock
      : hours ? hours + ':' + clock : minutes + ':' + two(s % 60);
    if (s) setTimeout(tick, left % 1000 || 1000);
    else done();
  };
  tick();
}
