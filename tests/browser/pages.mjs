// Every page visitors meet, on a phone and a desktop, light and dark: it fits, is accessible to the
// keyboard, breaks none of its own policy. Pictures go to CORVUS_PICTURES.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { run, visitor } from './browser.mjs';

const port = new URL(process.env.CORVUS_URL).port;
const folder = process.env.CORVUS_PICTURES;

// [picture, host, path, settings]
const pages = [
  ['waiting', 'waiting.test'],
  ['waiting-next', 'next.test'],
  ['waiting-own-words', 'words.test'],
  ['waiting-paused', 'paused.test'],
  ['lottery', 'lottery.test'],
  ['full', 'full.test'],
  ['closed', 'closed.test'],
  ['not-open', 'early.test'],
  ['left', 'next.test', '/__corvus/wr/next/leave'],
  ['error-502', 'broken.test'],
  ['error-404', 'nobody.test'],
  ['shop', 'shop.test'],
  ['shop-goods', 'shop.test', '/goods/balcony'],
];

await run(async (browser) => {
  for (const [device, viewport] of [['phone', { width: 360, height: 740 }], ['desktop', { width: 1280, height: 800 }]]) {
    for (const colorScheme of ['light', 'dark']) {
      const { context, tab, complaints } = await visitor(browser, { viewport, colorScheme });
      for (const [name, host, path = '/'] of pages) {
        const address = `http://${host}:${port}`;
        if (name === 'left') {
          await tab.goto(`${address}/`);
          await tab.getByText('Leave the line').click();
          await tab.getByRole('button', { name: 'Yes, leave' }).click();
          await tab.waitForURL(address + path);
        } else {
          await tab.goto(address + path);
        }
        const wide = await tab.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(wide <= 0, `${name} on a ${device} is ${wide} px too wide`);
        assert.equal(await tab.locator('h1').count(), 1, `${name} has one heading`);
        await tab.screenshot({ path: join(folder, `${name}-${device}-${colorScheme}.png`) });
      }
      assert.deepEqual(complaints, []);
      await context.close();

      const blocked = await visitor(browser, { viewport, colorScheme });
      await blocked.context.route('**', async (route) => {
        const headers = { ...await route.request().allHeaders() };
        delete headers.cookie;
        await route.continue({ headers });
      });
      await blocked.context.setExtraHTTPHeaders({ cookie: '' });
      await blocked.tab.goto(`http://waiting.test:${port}/?__corvus_c=1`);
      await blocked.tab.screenshot({ path: join(folder, `cookies-needed-${device}-${colorScheme}.png`) });
      await blocked.context.close();
    }
  }
});
