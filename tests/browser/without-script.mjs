// Without JavaScript: the page comes again by itself, lets in, and can be left.

import assert from 'node:assert/strict';
import { checkOut, inside, rank, run, site, standing, visitor } from './browser.mjs';

await run(async (browser) => {
  const ana = await visitor(browser);
  await ana.tab.goto(`${site}/`);
  await inside(ana.tab);
  const ben = await visitor(browser, { javaScriptEnabled: false });
  await ben.tab.goto(`${site}/tickets?a=1`);
  assert.equal(ben.tab.url(), `${site}/tickets?a=1`);
  assert.equal(await rank(ben.tab), 'You are next');
  assert.equal(await ben.tab.locator('noscript p').isVisible(), true);

  await ben.tab.getByText('Leave the line').click();
  await ben.tab.getByRole('button', { name: 'Yes, leave' }).click();
  await ben.tab.getByRole('heading', { name: 'You left the line' }).waitFor();
  await ben.tab.getByRole('link').first().click();
  await ben.tab.waitForURL(`${site}/tickets?a=1`);

  // By itself, ten seconds later.
  const again = ben.tab.waitForResponse((response) => response.request().isNavigationRequest());
  assert.equal((await again).status(), 429);
  assert.equal((await standing(ana.tab)).state, 'admitted');
  await checkOut(ana.tab);
  await ben.tab.getByText('"target"').waitFor();
  assert.equal(ben.tab.url(), `${site}/tickets?a=1`);
});
