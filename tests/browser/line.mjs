// Joins, waits, reloads, opens ten tabs, goes back, and is admitted.

import assert from 'node:assert/strict';
import { checkOut, inside, rank, run, site, standing, visitor } from './browser.mjs';

await run(async (browser) => {
  const ana = await visitor(browser);
  await ana.tab.goto(`${site}/`);
  await inside(ana.tab);

  const ben = await visitor(browser);
  const address = `${site}/tickets?a=1&b=2;c=3#seats`;
  await ben.tab.goto(address);
  assert.equal(ben.tab.url(), address, 'the address is as it was typed');
  assert.equal(await ben.tab.title(), 'You are next · You are in line');
  assert.equal(await rank(ben.tab), 'You are next');
  const place = async () => {
    const cookie = (await ben.context.cookies()).find(({ name }) => name === 'corvus_q_drop');
    assert.deepEqual([cookie.httpOnly, cookie.sameSite, cookie.path], [true, 'Lax', '/']);
    const fields = cookie.value.split('.');
    return [fields[4], fields[6]].join(); // session and ticket
  };
  const first = await place();

  const eva = await visitor(browser);
  await eva.tab.goto(`${site}/`);
  assert.equal(await rank(eva.tab), '2');

  for (let i = 0; i < 3; i += 1) await ben.tab.reload();
  assert.equal(await rank(ben.tab), 'You are next');
  const tabs = await Promise.all(Array.from({ length: 10 }, async (_, n) => {
    const tab = await ben.context.newPage();
    await tab.goto(`${site}/tab/${n}`);
    return tab;
  }));
  for (const tab of tabs) assert.equal(await rank(tab), 'You are next');
  await ben.tab.goto('about:blank');
  await ben.tab.goBack();
  await ben.tab.waitForURL(address);
  assert.equal(await rank(ben.tab), 'You are next');
  assert.equal(await place(), first, 'one place, whatever the visitor does');
  const { waiting } = await standing(eva.tab);
  assert.equal(waiting, 2, 'ten tabs are one visitor');

  await checkOut(ana.tab);
  await inside(ben.tab); // by itself
  assert.equal(ben.tab.url(), address);
  await Promise.all(tabs.map((tab) => inside(tab)));
  await eva.tab.waitForFunction(() => document.querySelector('#rank')?.textContent === 'You are next');

  // One tab is enough to stay, and a place that was used is used.
  await Promise.all(tabs.map((tab) => tab.close()));
  await ben.tab.reload();
  await inside(ben.tab);
  await checkOut(ben.tab);
  await inside(eva.tab);
  await ben.tab.goto(`${site}/`);
  assert.notEqual(await place(), first);

  for (const { complaints } of [ana, ben, eva]) assert.deepEqual(complaints, []);
});
