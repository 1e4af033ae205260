// The report page in headless Chromium: it loads without errors or requests, shows the bubble of GPipe and of 1F1B, answers
// clicks, keys and the wheel, and prints. Screenshots go to $SCREENSHOTS. Environment: REHEARSE (the program), CHROMIUM,
// PLAYWRIGHT (playwright-core's module).
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test, { after, before } from 'node:test';
import { pathToFileURL } from 'node:url';

const { chromium } = await import(pathToFileURL(process.env.PLAYWRIGHT));
const shots = process.env.SCREENSHOTS;
mkdirSync(shots, { recursive: true });

const scenario = (schedule) => `rehearse: 1
framework: rehearse
name: 4 stages, ${schedule} </script><script>window.broken = 1</script>
model: {family: gpt, layers: 8, hidden: 1024, heads: 8, kv_heads: 8, ffn_hidden: 4096, vocab: 8192, max_seq_len: 512}
cluster: {topology: dgx-a100, gpus: 8}
plan: {tensor: 2, pipeline: 4, micro_batch: 1, schedule: ${schedule}}
training: {global_batch: 8, seq_len: 512, precision: bf16}
`;

let folder, browser;
const rehearse = (...words) => execFileSync(process.env.REHEARSE, words, { cwd: folder, stdio: ['ignore', 'ignore', 'pipe'], timeout: 120000 });

before(async () => {
  folder = mkdtempSync(join(tmpdir(), 'rehearse-browser-'));
  for (const schedule of ['gpipe', '1f1b']) {
    writeFileSync(join(folder, `${schedule}.yaml`), scenario(schedule));
    rehearse('simulate', `${schedule}.yaml`, '-o', `${schedule}-result`);
  }
  rehearse('report', 'gpipe-result', '1f1b-result', '-o', 'schedules.html');
  rehearse('report', 'gpipe-result', '--static', '-o', 'static.html');
  rehearse('execute', 'gpt-tiny-2x2x2', '--steps', '5', '-o', 'measured');
  rehearse('simulate', 'gpt-tiny-2x2x2', '--calibration', 'a100-sxm-80g', '-o', 'simulated');
  rehearse('report', 'simulated', 'measured', '-o', 'both.html');
  rehearse('validate', '--throughput', join(process.env.REHEARSE_ROOT, 'scenarios/published/throughput.csv'), '--filter', 'simumax-b200', '-o', 'ledger');
  rehearse('plan', 'gpipe.yaml', '--fix', 'plan.context=1', '--fix', 'plan.schedule=1f1b', '--top', '2', '--worth', '--front', '--tokens', '1B', '-o', 'plans');
  rehearse('report', 'plans', '-o', 'search.html');
  rehearse('plan', 'gpipe.yaml', '--fix', 'plan.context=1', '--fix', 'plan.schedule=1f1b', '--gpus', '4,8,16', '-o', 'numbers');
  rehearse('report', 'numbers', '-o', 'scaling.html');
  browser = await chromium.launch({
    executablePath: process.env.CHROMIUM,
    args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
      '--disable-component-update', '--disable-sync'],
  });
});

after(async () => {
  await browser?.close();
  rmSync(folder, { recursive: true, force: true });
});

// Opens a page; close() checks that nothing was complained of or fetched meanwhile.
async function open(name, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage(), complaints = [], requests = [];
  page.on('console', (message) => { if (['error', 'warning'].includes(message.type()) && !message.text().includes('getImageData')) complaints.push(message.text()); });  // that one is of the tests' own reading
  page.on('pageerror', (error) => complaints.push(error.message));
  page.on('request', (request) => requests.push(request.url()));
  const address = pathToFileURL(join(folder, name)).href;
  await page.goto(address);
  if (options.javaScriptEnabled !== false && !['static.html', 'ledger/ledger.html'].includes(name)) await page.waitForFunction(() => window.rehearse?.timeline?.frames > 0);
  return { page, close: async () => {
    assert.deepEqual(complaints, []);
    assert.deepEqual(requests, [address]);
    assert.equal(await page.evaluate('window.broken'), undefined, 'a scenario\'s name became a script');
    await context.close();
  } };
}

const view = (page) => page.evaluate(() => ({ ...window.rehearse.timeline.view }));
const settled = (page) => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));

test('GPipe beside 1F1B: the bubble is there and both are on one axis', async () => {
  const { page, close } = await open('schedules.html');
  const model = await page.evaluate(() => window.rehearse.runs.map((run) => ({
    label: run.label, step: run.step_s, idle: run.rows.filter((row) => row.stream === 'compute').map((row) => 1 - row.busy / run.window_s),
  })));
  assert.deepEqual(model.map((run) => run.label), ['gpipe', '1f1b']);
  for (const run of model) {
    assert.equal(run.idle.length, 4);
    // A pipeline of 4 stages and 4 micro-batches is idle (p-1)/(m+p-1) = 3/7 of its slots, less what other work fills.
    for (const idle of run.idle) assert.ok(idle > 0.15 && idle < 0.9, `${run.label}: idle ${idle}`);
  }
  // The canvas shows it: in stage 3's first tenth of the step hardly a pixel has a bar's colour.
  const painted = await page.evaluate(() => {
    const { canvas, layout } = window.rehearse.timeline, ratio = window.devicePixelRatio;
    const share = (line, from, to) => {
      const left = 168, width = canvas.clientWidth - 168 - 78;
      const x = Math.round((left + from * width) * ratio), w = Math.round((to - from) * width * ratio);
      const { data } = canvas.getContext('2d').getImageData(x, Math.round((line.y + line.height / 2) * ratio), w, 1);
      let coloured = 0;
      for (let i = 0; i < data.length; i += 4) if (Math.max(data[i], data[i + 1], data[i + 2]) - Math.min(data[i], data[i + 1], data[i + 2]) > 60) ++coloured;
      return coloured / w;
    };
    const last = layout.lines.filter((line) => line.row?.stream === 'compute')[3];
    return [share(last, 0, 0.1), share(last, 0, 1)];
  });
  assert.ok(painted[0] < 0.2, `stage 3 of gpipe waits at first: ${painted[0]}`);
  assert.ok(painted[1] > 0.2, `and works later: ${painted[1]}`);
  await page.screenshot({ path: join(shots, 'schedules.png'), fullPage: true });
  await page.locator('#timelines').screenshot({ path: join(shots, 'timeline.png') });
  await close();
});

test('buttons, wheel, drag and keys move the view', async () => {
  const { page, close } = await open('schedules.html');
  const whole = await view(page);
  await page.click('#timeline-zoom-in');
  const near = await view(page);
  assert.ok(Math.abs((near.t1 - near.t0) / (whole.t1 - whole.t0) - 0.5) < 1e-9);
  await page.click('#timeline-later');
  assert.ok((await view(page)).t0 > near.t0);
  await page.click('#timeline-reset');
  assert.deepEqual(await view(page), whole);

  const canvas = page.locator('#timeline canvas');
  await canvas.scrollIntoViewIfNeeded();
  const box = await canvas.boundingBox();
  await page.mouse.move(box.x + 500, box.y + 60);
  await page.mouse.wheel(0, -400);
  await page.waitForTimeout(100);
  assert.deepEqual(await view(page), whole, 'the wheel scrolls the page until the timeline has been clicked');
  await canvas.focus();
  const place = await canvas.boundingBox();
  await page.mouse.move(place.x + 500, place.y + 60);
  await page.mouse.wheel(0, -400);
  await page.waitForFunction((width) => window.rehearse.timeline.view.t1 - window.rehearse.timeline.view.t0 < width, (whole.t1 - whole.t0) * 0.9);
  const before = await view(page);
  await page.mouse.down();
  await page.mouse.move(place.x + 350, place.y + 60, { steps: 4 });
  await page.mouse.up();
  const dragged = await view(page);
  assert.ok(dragged.t0 > before.t0 && Math.abs(dragged.t1 - dragged.t0 - (before.t1 - before.t0)) < 1e-12);
  await page.mouse.dblclick(place.x + 400, place.y + 60);
  assert.deepEqual(await view(page), whole);

  await canvas.focus();
  await page.keyboard.press('+');
  const keyed = await view(page);
  assert.ok(keyed.t1 - keyed.t0 < whole.t1 - whole.t0);
  await page.keyboard.press('ArrowRight');
  assert.ok((await view(page)).t0 > keyed.t0);
  await page.keyboard.press('0');
  assert.deepEqual(await view(page), whole);
  await close();
});

test('a bar tells what it is, to a pointer and to a keyboard', async () => {
  const { page, close } = await open('schedules.html');
  const canvas = page.locator('#timeline canvas');
  await canvas.scrollIntoViewIfNeeded();
  const spot = await page.evaluate(() => {
    const timeline = window.rehearse.timeline, line = timeline.layout.lines.find((other) => other.row?.stream === 'compute');
    let longest = line.row.microBatch.findIndex((batch) => batch > 0);
    for (let i = longest; i < line.row.start.length; ++i) if (line.row.microBatch[i] > 0 && line.row.end[i] - line.row.start[i] > line.row.end[longest] - line.row.start[longest]) longest = i;
    timeline.show({ t0: line.row.start[longest] - 1e-5, t1: line.row.end[longest] + 1e-5 });
    return { y: line.y + line.height / 2, op: line.run.texts[line.row.text[longest]].op };
  });
  await settled(page);
  const box = await canvas.boundingBox();
  await page.mouse.move(box.x + 168 + (box.width - 168 - 78) / 2, box.y + spot.y);
  const tooltip = await page.locator('.tooltip').innerText();
  for (const word of [spot.op, 'duration', 'micro-batch', 'cost from', 'stage 0']) assert.ok(tooltip.includes(word), `${word} in: ${tooltip}`);
  await page.mouse.down();
  await page.mouse.up();
  assert.ok((await page.locator('.detail').innerText()).includes(spot.op));
  await page.locator('#timelines').screenshot({ path: join(shots, 'zoomed.png') });
  await canvas.focus();
  await page.keyboard.press('ArrowDown');
  const chosen = await page.locator('.detail').innerText();
  await page.keyboard.press('.');
  assert.notEqual(await page.locator('.detail').innerText(), chosen);
  await page.keyboard.press('Escape');
  assert.equal(await page.locator('.detail').innerText(), '');
  await close();
});

test('rows and colours can be chosen', async () => {
  const { page, close } = await open('schedules.html');
  const rows = () => page.evaluate(() => window.rehearse.timeline.layout.lines.filter((line) => line.row).length);
  await page.selectOption('#timeline-streams', 'compute');
  assert.equal(await rows(), 8);
  await page.selectOption('#timeline-streams', 'all');
  assert.ok(await rows() > 16);
  await page.selectOption('#timeline-colouring', 'kind');
  assert.ok((await page.locator('#timeline .legend').innerText()).includes('matrix products'));
  await settled(page);
  await close();
});

test('simulated above measured, their errors, and the loss', async () => {
  const { page, close } = await open('both.html', { colorScheme: 'dark' });
  assert.deepEqual(await page.evaluate(() => window.rehearse.runs.map((run) => run.source)), ['simulated', 'measured']);
  assert.ok((await page.locator('#errors table').innerText()).includes('gemm'));
  assert.equal(await page.evaluate(() => window.rehearse.loss.chart.data[1].length), 5);
  const steps = await page.evaluate(() => window.rehearse.loss.chart.data[0][4]);
  await page.selectOption('#loss-against', 'time');
  assert.equal(steps, 5);
  assert.ok(await page.evaluate(() => window.rehearse.loss.chart.data[0][4]) < 5);
  await page.screenshot({ path: join(shots, 'dark.png'), fullPage: true });
  await close();
});

test('a search: its space is filtered, tells its plans, and leads to their timelines', async () => {
  const { page, close } = await open('search.html');
  await page.waitForFunction(() => window.rehearse.space);
  for (const words of ['Proven', 'peak memory', 'dollars', 'What each key is worth', 'Less memory'])
    assert.ok((await page.locator('main').innerText()).includes(words), words);
  const count = () => page.evaluate(() => [window.rehearse.space.shown.length, window.rehearse.space.plans.length]);
  const [all, plans] = await count();
  const right = await page.evaluate(() => window.rehearse.space.plans.filter((plan) => plan.run !== undefined).map((plan) => plan.values['plan.tensor']));
  assert.equal(right.length, 2, 'the two plans that were kept are among the points');
  assert.ok(all === plans && all > 50, `${all} of ${plans}`);
  await page.selectOption('#space-plan-tensor', '2');
  const [tensor] = await count();
  assert.ok(tensor > 0 && tensor < all);
  assert.ok((await page.locator('#space-count').innerText()).startsWith(`${tensor} of`));
  await page.selectOption('#space-plan-tensor', '');
  await page.uncheck('#space-status-1');
  assert.ok(await page.evaluate(() => window.rehearse.space.shown.every((plan) => plan.status !== 1)));
  // The pointer upon the best plan, and a click to its timeline.
  const canvas = page.locator('#space-chart canvas');
  await canvas.scrollIntoViewIfNeeded();
  const [x, y] = await page.evaluate(() => { const { space } = window.rehearse; return space.place(space.shown.find((plan) => plan.run === 0)); });
  const box = await canvas.boundingBox();
  await page.mouse.move(box.x + x, box.y + y);
  const words = await page.locator('#space-chart .tooltip').innerText();
  for (const word of ['tensor', 'step', 'peak memory', 'simulated', 'timeline']) assert.ok(words.includes(word), `${word} in: ${words}`);
  await page.mouse.down();
  await page.mouse.up();
  assert.equal(await page.evaluate(() => window.rehearse.timeline.chosen.line.run === window.rehearse.runs[0]), true);
  assert.ok((await page.locator('#timeline .detail').innerText()).length > 0);
  // The keyboard does the same.
  await canvas.focus();
  await page.keyboard.press('Home');
  await page.keyboard.press('ArrowRight');
  assert.equal(await page.evaluate(() => window.rehearse.space.shown.indexOf(window.rehearse.space.at)), 1);
  await page.keyboard.press('Enter');
  assert.ok((await page.locator('#space-chart .detail').innerText()).includes('step'));
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth) <= 1280);
  await page.locator('#space').screenshot({ path: join(shots, 'space.png') });
  await page.screenshot({ path: join(shots, 'search.png'), fullPage: true });
  await page.emulateMedia({ media: 'print' });
  assert.equal(await page.locator('#space-chart .controls').isVisible(), false);
  await close();
});

test('numbers of GPUs: curves of speed-up and efficiency within the page', async () => {
  const { page, close } = await open('scaling.html');
  for (const words of ['Strong scaling', 'ideal: as the GPUs', 'efficiency'])
    assert.ok((await page.locator('#scaling').innerText()).includes(words), words);
  assert.equal(await page.locator('#scaling svg').count(), 2);
  assert.equal(await page.locator('#scaling svg circle').count(), 6);
  const frame = await page.locator('#scaling svg').first().boundingBox();
  for (const point of await page.locator('#scaling svg').first().locator('circle').all()) {
    const box = await point.boundingBox();
    assert.ok(box.x >= frame.x && box.x + box.width <= frame.x + frame.width && box.y >= frame.y && box.y + box.height <= frame.y + frame.height);
  }
  assert.deepEqual(await page.evaluate(() => window.rehearse.runs.map((run) => run.label)), ['4 GPUs', '8 GPUs', '16 GPUs']);
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth) <= 1280);
  await page.screenshot({ path: join(shots, 'scaling.png'), fullPage: true });
  await close();
});

test('it prints in light colours, and without controls', async () => {
  const { page, close } = await open('schedules.html', { colorScheme: 'dark' });
  await page.emulateMedia({ media: 'print' });
  assert.equal(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), 'rgb(255, 255, 255)');
  assert.equal(await page.locator('#timeline .controls').isVisible(), false);
  await settled(page);
  const corner = await page.evaluate(() => [...window.rehearse.timeline.canvas.getContext('2d').getImageData(1, 1, 1, 1).data]);
  assert.deepEqual(corner, [255, 255, 255, 255], 'the canvas is repainted for print');
  const pdf = join(shots, 'print.pdf');
  await page.pdf({ path: pdf, format: 'A4', landscape: true });
  assert.ok(statSync(pdf).size > 10000);
  await close();
});

test('without a script the static figures stand, on either page', async () => {
  for (const [name, options] of [['static.html', {}], ['schedules.html', { javaScriptEnabled: false }]]) {
    const { page, close } = await open(name, options);
    assert.ok(await page.locator('#timelines svg').first().isVisible());
    assert.equal(await page.locator('canvas').count(), 0);
    await page.screenshot({ path: join(shots, `without-script-${name}.png`), fullPage: true });
    if (options.javaScriptEnabled !== false) await close();
  }
});

test('a page narrower than its figures does not scroll sideways', async () => {
  const { page, close } = await open('schedules.html', { viewport: { width: 700, height: 900 } });
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth) <= 700);
  await close();
});

test('published runs: the page fits narrow screens, and no label of a figure lies on another or outside', async () => {
  for (const colorScheme of ['light', 'dark']) for (const width of [1280, 400]) {
    const { page, close } = await open('ledger/ledger.html', { colorScheme, viewport: { width, height: 900 } });
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), width);
    const figures = await page.evaluate(() => [...document.querySelectorAll('svg.lf-figure')].map((svg) => {
      const frame = svg.getBoundingClientRect(), boxes = [...svg.querySelectorAll('text')].map((text) => [text.textContent, text.getBoundingClientRect()]);
      const faults = boxes.filter(([, b]) => b.left < frame.left - 1 || b.right > frame.right + 1 || b.top < frame.top - 1 || b.bottom > frame.bottom + 1).map(([words]) => words);
      boxes.forEach(([words, a], i) => boxes.slice(i + 1).forEach(([others, b]) => {
        if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3) faults.push(`${words} / ${others}`);
      }));
      return { marks: svg.querySelectorAll('.lf-m, .lf-in, .lf-out').length, texts: boxes.length, faults };
    }));
    assert.equal(figures.length, 6);
    for (const figure of figures) assert.deepEqual(figure.faults, []);
    assert.deepEqual(figures.map((figure) => figure.marks), [28, 27, 27, 27, 0, 27]);
    await page.screenshot({ path: join(shots, `ledger-${colorScheme}-${width}.png`), fullPage: true });
    await close();
  }
});
