// The waiting page's script in a real browser, with the browser's clock in the test's hands.
//
//   node --test crates/corvus-proxy/testdata/pages/waiting.spec.mjs
//
// needs playwright-core (found from the working directory) and a Chromium (CHROMIUM, or
// /usr/bin/chromium).

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import http from 'node:http';
import { createRequire } from 'node:module';
import { after, before, test as plainTest } from 'node:test';

const { chromium } = createRequire(`${process.cwd()}/`)('playwright-core');
const html = readFileSync(new URL('waiting-en.html', import.meta.url), 'utf8');
const lottery = readFileSync(new URL('waiting-lottery-ar.html', import.meta.url), 'utf8');
const policy = "default-src 'none'; script-src 'nonce-bm9uY2U'; style-src 'nonce-bm9uY2U'; "
  + "connect-src 'self'; img-src data:; form-action 'self'; base-uri 'none'";

const test = (name, run) => plainTest(name, { timeout: 120000 }, run);

let browser;
let server;
let origin;
let answer; // (response) => void: what the status address says
let body; // the page
let headers; // of the page, beside the usual
let hits = []; // [method, path]

const json = (value, status = 200) => (response) => {
  response.writeHead(status, { 'Content-Type': 'application/json' });
  response.end(JSON.stringify(value));
};
const waiting = (rank, more = {}) =>
  json({ state: 'waiting', rank, waiting: 4312, retry_after: 3, eta_s: 60, queue: 'drop', ...more });

before(async () => {
  server = http.createServer((request, response) => {
    hits.push([request.method, request.url]);
    if (request.url === '/__corvus/wr/drop/status') return answer(response);
    if (request.url === '/__corvus/wr/drop/leave') return response.end('left');
    response.writeHead(429, {
      'Content-Type': 'text/html; charset=utf-8',
      'Content-Security-Policy': policy,
      'Cache-Control': 'private, no-store',
      ...headers,
    });
    response.end(body);
  });
  await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
  origin = `http://127.0.0.1:${server.address().port}`;
  browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
      '--disable-background-networking', '--disable-component-update', '--disable-sync'],
  });
});

after(async () => {
  await browser.close();
  server.close();
});

// Opens the page with the clock stopped; `complaints` holds what the console said.
async function open(path = '/tickets?a=1', page = html, options = {}) {
  answer = waiting(128);
  body = page;
  headers = {};
  const context = await browser.newContext(options);
  const tab = await context.newPage();
  tab.setDefaultTimeout(45000);
  const complaints = [];
  tab.on('console', (message) => {
    if (!message.text().startsWith('Failed to load resource')) complaints.push(message.text());
  });
  tab.on('pageerror', (error) => complaints.push(error.message));
  await tab.clock.install({ time: 0 });
  // An hour on: the clock runs until then, which on a busy machine is longer than one thinks.
  await tab.clock.pauseAt(3_600_000);
  await tab.goto(origin + path);
  hits = [];
  return { context, tab, complaints };
}

const polls = () => hits.filter(([, path]) => path.endsWith('/status')).length;
const pages = () => hits.filter(([, path]) => !path.startsWith('/__corvus/'));
const rank = (tab) => tab.locator('#rank').textContent();

// Lets `ms` pass.
async function pass(tab, ms) {
  await tab.clock.runFor(ms);
  await settle(tab);
}

// Lets time pass until the next poll was made and taken in.
async function poll(tab, most = 3300) {
  const finished = tab.waitForEvent('requestfinished', (request) => request.url().endsWith('/status'));
  await tab.clock.runFor(most);
  await finished;
  await settle(tab);
}

// Lets the next poll be answered with a state that ends the waiting, and the page navigate. The
// answer is held back until the clock stands still: a clock that runs in a page which is left never
// comes back.
async function pollAndEnter(tab, state) {
  let tell;
  const told = new Promise((resolve) => { tell = resolve; });
  const body = { state, rank: null, waiting: null, retry_after: null, eta_s: null, queue: 'drop' };
  answer = (response) => told.then(() => json(body)(response));
  const asked = tab.waitForRequest('**/status');
  await tab.clock.runFor(3300);
  await asked;
  const loaded = tab.waitForEvent('load');
  tell();
  await loaded;
}

// Round trips through the page's event loop, on channels that the stopped clock leaves alone.
async function settle(tab) {
  for (let i = 0; i < 3; i += 1) {
    await tab.evaluate(() => new Promise((done) => {
      const channel = new MessageChannel();
      channel.port1.onmessage = done;
      channel.port2.postMessage(0);
    }));
  }
}

test('polls when told, never faster, and shows the answer', async () => {
  const { context, tab, complaints } = await open();
  answer = waiting(97, { retry_after: 10, eta_s: 200 });
  await poll(tab, 3300);
  assert.equal(await rank(tab), '97');
  assert.equal(await tab.title(), '97 · You are in line');
  assert.equal(await tab.locator('#ahead').textContent(), '96');
  assert.equal(await tab.locator('#behind').textContent(), '4,215');
  assert.equal(await tab.locator('#wait').textContent(), 'about 4 minutes');
  hits = [];
  await pass(tab, 9900);
  assert.equal(polls(), 0, 'polled before it was due');
  await poll(tab, 1200);
  assert.equal(polls(), 1);
  const value = await tab.locator('#bar').evaluate((bar) => bar.value);
  assert.ok(value > 0.03 && value < 0.3, `progress ${value}`);
  assert.deepEqual(complaints, []);
  await context.close();
});

test('a number once shown never rises, also across a reload, until the place is another', async () => {
  const { context, tab } = await open();
  answer = waiting(90);
  await poll(tab);
  answer = waiting(110);
  await poll(tab);
  assert.equal(await rank(tab), '90');
  await tab.reload(); // the page itself says 128
  assert.equal(await rank(tab), '90');
  body = html.replace('"place":"p1"', '"place":"p2"');
  await tab.reload();
  assert.equal(await rank(tab), '128');
  await context.close();
});

test('backs off on errors to a minute, says so, and recovers', async () => {
  const { context, tab } = await open();
  // Without a network, so that minutes pass in one go.
  await tab.evaluate(() => {
    window.asked = [];
    window.fetch = async () => {
      window.asked.push(Date.now() / 1000);
      if (window.answer) return new Response(JSON.stringify(window.answer));
      throw new TypeError('Failed to fetch');
    };
  });
  const opened = await tab.evaluate(() => Date.now() / 1000);
  await tab.clock.runFor(400_000);
  const asked = [opened, ...await tab.evaluate(() => window.asked)];
  const gaps = asked.slice(1).map((at, i) => at - asked[i]);
  assert.ok(gaps.length >= 8, `gaps ${gaps}`);
  assert.ok(Math.min(...gaps) >= 3, `gaps ${gaps}`);
  assert.ok(Math.max(...gaps) <= 60.1, `gaps ${gaps}`);
  for (const gap of gaps.slice(6)) assert.ok(gap >= 42, `gaps ${gaps}`);
  assert.match(await tab.locator('#note').textContent(), /connection was lost/);
  await tab.evaluate(() => { window.answer = { state: 'waiting', rank: 50, waiting: 90, retry_after: 3, eta_s: 60 }; });
  await tab.clock.runFor(62_000);
  assert.equal(await rank(tab), '50');
  assert.equal(await tab.locator('#note').isVisible(), false);
  await context.close();
});

test('a busy gateway is not asked more often', async () => {
  const { context, tab } = await open();
  answer = json({ state: 'busy', rank: null, waiting: null, retry_after: 20, eta_s: null, queue: 'drop' }, 429);
  await poll(tab);
  assert.match(await tab.locator('#note').textContent(), /very busy/);
  assert.equal(await rank(tab), '128');
  hits = [];
  await pass(tab, 19900);
  assert.equal(polls(), 0);
  await context.close();
});

test('one tab too many is not told that the gateway is busy, and asks no faster', async () => {
  const { context, tab } = await open();
  answer = json({ state: 'busy', rank: null, waiting: null, retry_after: 1, eta_s: null, queue: 'drop' }, 429);
  await poll(tab);
  assert.equal(await tab.locator('#note').isVisible(), false);
  hits = [];
  await pass(tab, 3000);
  assert.equal(polls(), 0);
  answer = waiting(60);
  await poll(tab, 4000);
  assert.equal(await rank(tab), '60');
  await context.close();
});

for (const state of ['admitted', 'gone', 'closed', 'not_open']) {
  test(`${state}: asks for the same address again, once`, async () => {
    const { context, tab } = await open('/tickets?a=1#seats');
    await pollAndEnter(tab, state);
    assert.deepEqual(pages(), [['GET', '/tickets?a=1']]);
    assert.equal(tab.url(), `${origin}/tickets?a=1#seats`);
    if (state === 'admitted' || state === 'gone') {
      const kept = await tab.evaluate(() => JSON.parse(sessionStorage.getItem('corvus_drop')).first);
      assert.equal(kept, 128, 'what was seen with the old place is forgotten');
    }
    await context.close();
  });
}

test('a page that answered a POST is entered with GET', async () => {
  const { context, tab } = await open();
  await tab.evaluate(() => {
    const form = document.createElement('form');
    form.method = 'post';
    form.append(Object.assign(document.createElement('button'), { id: 'buy', textContent: 'Buy' }));
    document.body.append(form);
  });
  await Promise.all([tab.waitForEvent('load'), tab.click('#buy')]);
  assert.deepEqual(pages(), [['POST', '/tickets?a=1']]);
  hits = [];
  await pollAndEnter(tab, 'admitted');
  assert.deepEqual(pages(), [['GET', '/tickets?a=1']]);
  await context.close();
});

test('coming back to the tab polls at once only if one is due', async () => {
  const { context, tab } = await open();
  answer = waiting(80, { retry_after: 30 });
  await poll(tab);
  hits = [];
  const visible = () => tab.evaluate(() => document.dispatchEvent(new Event('visibilitychange')));
  await tab.clock.runFor(10000);
  await visible();
  await settle(tab);
  assert.equal(polls(), 0);
  // A hidden tab's timers stand still while time goes on.
  await tab.clock.setSystemTime(await tab.evaluate(() => Date.now() + 25000));
  const response = tab.waitForResponse('**/status');
  await visible();
  await response;
  assert.equal(polls(), 1);
  hits = [];
  const again = tab.waitForResponse('**/status');
  await tab.evaluate(() => dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true })));
  await again;
  assert.equal(polls(), 1);
  await context.close();
});

test('leaving asks first, and works without a script', async () => {
  for (const javaScriptEnabled of [true, false]) {
    body = html;
    headers = {};
    hits = [];
    const context = await browser.newContext({ javaScriptEnabled });
    const tab = await context.newPage();
    await tab.goto(`${origin}/tickets`);
    const yes = tab.getByRole('button', { name: 'Yes, leave' });
    assert.equal(await yes.isVisible(), false);
    await tab.getByText('Leave the line').click();
    if (javaScriptEnabled) {
      await tab.getByRole('button', { name: 'Stay in line' }).click();
      assert.equal(await yes.isVisible(), false);
      await tab.getByText('Leave the line').click();
    } else {
      assert.equal(await tab.locator('noscript p').isVisible(), true);
    }
    await yes.click();
    await tab.waitForURL('**/leave');
    assert.deepEqual(hits.filter(([method]) => method === 'POST'), [['POST', '/__corvus/wr/drop/leave']]);
    await context.close();
  }
});

test('the Refresh header reloads only where no script runs', async () => {
  body = html;
  headers = { Refresh: '1' };
  for (const javaScriptEnabled of [false, true]) {
    hits = [];
    const context = await browser.newContext({ javaScriptEnabled });
    const tab = await context.newPage();
    await tab.goto(`${origin}/tickets`);
    if (javaScriptEnabled) {
      answer = waiting(77);
      await tab.waitForResponse('**/status'); // three seconds later
      assert.equal(pages().length, 1);
    } else {
      await tab.waitForRequest('**/tickets');
    }
    await context.close();
  }
});

test('announcements are few', async () => {
  const { context, tab } = await open();
  const heard = () => tab.locator('#heard').textContent();
  assert.match(await heard(), /^Your place in line: 128\. /);
  for (const rank of [126, 120, 110]) {
    answer = waiting(rank);
    await poll(tab);
    assert.match(await heard(), /128/);
  }
  answer = waiting(60);
  await tab.clock.runFor(40000);
  await poll(tab);
  assert.match(await heard(), /: 60\. Estimated wait: about a minute$/);
  answer = waiting(1);
  await poll(tab);
  assert.equal(await heard(), 'You are next.');
  assert.equal(await rank(tab), 'You are next');
  await context.close();
});

test('a lottery counts down, and shows places after the start', async () => {
  const { context, tab } = await open('/tickets', lottery);
  await tab.clock.runFor(1000);
  assert.match(await tab.locator('#clock').textContent(), /^12:3\d$/);
  assert.equal(await tab.locator('#line').isVisible(), false);
  answer = waiting(7);
  await poll(tab);
  assert.equal(await rank(tab), '7');
  assert.equal(await tab.locator('#line').isVisible(), true);
  assert.equal(await tab.locator('#start').isVisible(), false);
  await context.close();
});
