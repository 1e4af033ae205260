// The page's modules without a browser: unpacking what the program packs, searching and thinning bars, moving the view.
import assert from 'node:assert/strict';
import test from 'node:test';
import { gzipSync } from 'node:zlib';

import { barAt, firstEndingAfter, idleShare, panned, thin, zoomed } from '../../reports/page/bars.js';
import { roundStep, seconds, tickLabel } from '../../reports/page/format.js';
import { decode, unpack } from '../../reports/page/payload.js';
import { frontOf, plansOf, shownOf } from '../../reports/page/space.js';

const row = (...bars) => ({
  start: Float64Array.from(bars, ([start]) => start), end: Float64Array.from(bars, ([, end]) => end),
  text: Uint32Array.from(bars, ([, , text = 0]) => text),
});

// What thin() draws of `bars` when 10 s are shown on 100 pixels.
function drawn(bars, view = { t0: 0, t1: 10 }) {
  const list = [];
  thin(row(...bars), [0, 1, 2], 3, view, 100, (x, width, kind, level) => list.push(['solid', x, width, kind, level]),
    (x, width, index) => list.push(['wide', Math.round(x), Math.round(width), index]));
  return list;
}

test('a payload is unpacked into times in seconds', async () => {
  const header = JSON.stringify({
    format: 1, runs: [{ label: 'a', first_s: -1, window_s: 10, texts: [['forward', 'up', 'gemm', 'm=2', 'forward', 'exact', 96, 128, 0, 'forward', 'matmul']],
      rows: [{ stage: 3, rank: 12, stream: 'compute', unit_s: 0.5, bars: 2 }] }],
  });
  const padded = header.padEnd(Math.ceil(header.length / 4) * 4, ' ');
  const words = Uint32Array.from([1, 6, /* durations */ 4, 20, /* texts */ 0, 0, /* micro-batches */ 1, 0, /* ops */ 1, 1]);
  const bytes = Buffer.concat([Buffer.from(Uint32Array.of(padded.length).buffer), Buffer.from(padded), Buffer.from(words.buffer)]);
  const [run] = decode(await unpack(gzipSync(bytes).toString('base64')));
  assert.equal(run.texts[0].kindClass, 'matmul');
  assert.deepEqual([...run.rows[0].start], [-0.5, 2.5]);
  assert.deepEqual([...run.rows[0].end], [1.5, 12.5]);
  assert.equal(run.rows[0].busy, 9, 'only what lies in the step counts');
  assert.ok(Math.abs(idleShare(run, run.rows[0]) - 0.1) < 1e-12);
});

test('a payload of another format is refused', () => {
  const header = '{"format":2,"runs":[]}  ';
  assert.throws(() => decode(new Uint8Array(Buffer.concat([Buffer.from(Uint32Array.of(header.length).buffer), Buffer.from(header)]))), /format 2/);
});

test('bars are found by their time', () => {
  const bars = row([0, 1], [2, 3], [5, 9]);
  assert.equal(firstEndingAfter(bars, 1), 1);
  assert.equal(firstEndingAfter(bars, 9), 3);
  assert.equal(barAt(bars, 2.5, 0), 1);
  assert.equal(barAt(bars, 4, 0.5), -1);
  assert.equal(barAt(bars, 4.8, 0.5), 2);
  assert.equal(barAt(bars, 3.2, 0.5), 1);
  assert.equal(barAt(row(), 1, Infinity), -1);
});

test('wide bars are drawn by themselves, narrow ones summed a pixel', () => {
  assert.deepEqual(drawn([[1, 2]]), [['wide', 10, 10, 0]]);
  // Ten bars of a hundredth in one pixel, most of them of class 1, fill it.
  const many = Array.from({ length: 10 }, (_, i) => [5 + i / 100, 5 + (i + 1) / 100, i < 3 ? 0 : 1]);
  assert.deepEqual(drawn(many), [['solid', 50, 1, 1, 3]]);
  assert.deepEqual(drawn([[5, 5.05, 2]]), [['solid', 50, 1, 2, 2]], 'a pixel half full is painted lighter');
  assert.deepEqual(drawn([[5, 5.0001, 2]]), [], 'and a speck not at all');
  assert.deepEqual(drawn([[1, 1.2, 0], [1.2, 1.4, 0]]), [['solid', 10, 4, 0, 3]], 'equal neighbours make one rectangle');
});

test('bars that the window cuts are drawn to its edges', () => {
  assert.deepEqual(drawn([[0, 4], [6, 20]], { t0: 3, t1: 8 }), [['wide', 0, 20, 0], ['wide', 60, 40, 1]]);
});

test('a hundred thousand bars make no more rectangles than pixels', () => {
  const bars = Array.from({ length: 1e5 }, (_, i) => [i / 1e4, i / 1e4 + 0.8e-4, i % 3]);
  assert.ok(drawn(bars).length <= 100);
});

test('the view keeps the place under the pointer and stays on the axis', () => {
  const axis = { t0: -1, t1: 9 };
  assert.deepEqual(zoomed({ t0: 0, t1: 8 }, 0.5, 2, axis), { t0: 1, t1: 5 });
  assert.deepEqual(zoomed({ t0: 0, t1: 8 }, 100, 2, axis), axis);
  assert.deepEqual(panned({ t0: 0, t1: 8 }, 100, axis), { t0: 1, t1: 9 });
  assert.deepEqual(panned({ t0: 0, t1: 8 }, -100, axis), { t0: -1, t1: 7 });
  const closest = zoomed({ t0: 0, t1: 1e-7 }, 1e-9, 0, axis);
  assert.ok(closest.t1 - closest.t0 >= 0.99e-8);
});

test('numbers for people', () => {
  assert.equal(seconds(0.0012345), '1.234 ms');
  assert.equal(seconds(0), '0 s');
  assert.equal(roundStep(24, 8), 5);
  assert.equal(tickLabel(10.01, 0.01, 10.05), '10.01 s');
  assert.equal(tickLabel(0.002, 0.001, 0.01), '2 ms');
});

test('a search\'s plans, those that are shown, and their front', () => {
  const search = {
    runs: { 'plan-1': 0 }, statuses: ['too large', 'bounded', 'simulated'],
    answer: { space: { 'plan.tensor': ['1', '2'] }, plans: [{ plan: { 'plan.tensor': '2' }, directory: 'plan-1' }] },
    points: [[2, 3, 10, [0]], [2, 2, 20, [1]], [1, 1, 5, [0]], [0, 0, 90, [1]]],
  };
  const plans = plansOf(search);
  assert.deepEqual(plans.map((plan) => plan.step), [1, 2, 3], 'by step; without a step there is no place for it');
  assert.deepEqual(plans.map((plan) => plan.run), [undefined, 0, undefined]);
  assert.deepEqual(shownOf(plans, { 'plan.tensor': '1' }, new Set([0, 1, 2])).map((plan) => plan.step), [1, 3]);
  assert.deepEqual(shownOf(plans, { 'plan.tensor': '' }, new Set([2])).map((plan) => plan.step), [2, 3]);
  assert.deepEqual(frontOf(plans).map((plan) => plan.step), [2, 3], 'a bound is on no front');
});
