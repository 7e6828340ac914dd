// Leaves the line, joins again at its end; leaves from inside.

import assert from 'node:assert/strict';
import { checkOut, inside, rank, run, site, standing, visitor } from './browser.mjs';

await run(async (browser) => {
  const ana = await visitor(browser);
  await ana.tab.goto(`${site}/`);
  await inside(ana.tab);
  const ben = await visitor(browser);
  await ben.tab.goto(`${site}/tickets?a=1`);
  const eva = await visitor(browser);
  await eva.tab.goto(`${site}/`);
  assert.equal(await rank(eva.tab), '2');

  await ben.tab.getByText('Leave the line').click();
  await ben.tab.getByRole('button', { name: 'Stay in line' }).click();
  assert.equal((await standing(ben.tab)).rank, 1);
  await ben.tab.getByText('Leave the line').click();
  await ben.tab.getByRole('button', { name: 'Yes, leave' }).click();
  await ben.tab.getByRole('heading', { name: 'You left the line' }).waitFor();
  assert.deepEqual(await ben.context.cookies(), [], 'nothing is left behind');
  assert.equal((await standing(eva.tab)).rank, 1);

  await ben.tab.getByRole('link').first().click();
  await ben.tab.waitForURL(`${site}/tickets?a=1`);
  assert.equal(await rank(ben.tab), '2');

  await checkOut(ana.tab);
  await inside(eva.tab);
  await checkOut(eva.tab);
  await inside(ben.tab);
  for (const { complaints } of [ana, ben, eva]) assert.deepEqual(complaints, []);
});
