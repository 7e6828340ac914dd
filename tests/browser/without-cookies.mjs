// Cookies blocked in the browser's settings: one clear page, and never a loop.

import assert from 'node:assert/strict';
import { runWithoutCookies, site } from './browser.mjs';

await runWithoutCookies(async (context) => {
  const tab = await context.newPage();
  tab.setDefaultTimeout(20000);
  let hops = [];
  tab.on('response', (response) => {
    if (response.request().isNavigationRequest()) hops.push(response.status());
  });
  await tab.goto(`${site}/tickets?a=1&b=2`);
  const heading = tab.getByRole('heading', { name: 'Cookies are needed' });
  await heading.waitFor();
  assert.deepEqual(hops, [302, 429]);
  assert.deepEqual(await context.cookies(), []);

  hops = [];
  await tab.getByRole('link').first().click();
  await heading.waitFor();
  await tab.waitForLoadState();
  assert.deepEqual(hops, [302, 429], 'trying again tries once');

  // It does not try by itself.
  hops = [];
  await new Promise((done) => { setTimeout(done, 4000); });
  assert.deepEqual(hops, []);
});
