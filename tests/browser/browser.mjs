// What the stories share. Each gets the site's address in CORVUS_URL (a name under .test, which the
// browser finds on this machine) and ends with a status other than 0 when something is wrong.

import assert from 'node:assert/strict';
import { mkdtemp, mkdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { chromium } from 'playwright-core';

export const site = process.env.CORVUS_URL;

const options = {
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
    '--disable-background-networking', '--disable-component-update', '--disable-sync',
    '--host-resolver-rules=MAP *.test 127.0.0.1'],
};

// Runs `story` with a browser and closes it, whatever comes.
export async function run(story) {
  assert.ok(site, 'CORVUS_URL is not set');
  const browser = await chromium.launch(options);
  try {
    await story(browser);
  } finally {
    await browser.close();
  }
}

// The same with a browser whose settings block all cookies; `story` gets its only context.
export async function runWithoutCookies(story) {
  const folder = await mkdtemp(join(tmpdir(), 'corvus-profile-'));
  try {
    await mkdir(join(folder, 'Default'));
    const settings = { profile: { default_content_setting_values: { cookies: 2 } } };
    await writeFile(join(folder, 'Default', 'Preferences'), JSON.stringify(settings));
    const context = await chromium.launchPersistentContext(folder, options);
    try {
      await story(context);
    } finally {
      await context.close();
    }
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

// A visitor with a cookie jar of its own, and its first tab. `complaints` holds what the console
// says; that an answer was 429 is none.
export async function visitor(browser, settings = {}) {
  const context = await browser.newContext({ locale: 'en-GB', ...settings });
  context.setDefaultTimeout(20000);
  const complaints = [];
  context.on('console', (message) => {
    if (!message.text().startsWith('Failed to load resource')) complaints.push(message.text());
  });
  context.on('weberror', (error) => complaints.push(error.error().message));
  return { context, tab: await context.newPage(), complaints };
}

export const rank = (tab) => tab.locator('#rank').textContent();

// The site's own page; the origin shows the request that it got.
export const inside = (tab) => tab.waitForFunction(() => document.body?.innerText.includes('"target"'));

// Ends the visit as a shop does after a purchase.
export async function checkOut(tab) {
  const status = await tab.evaluate(async () => (await fetch('/release')).status);
  assert.equal(status, 200);
}

// How the queue says that this visitor stands.
export const standing = (tab) =>
  tab.evaluate(async () => (await fetch('/__corvus/wr/drop/status')).json());
