// Paints the timeline: a time axis, a heading a run, a line a row. Knows where things lie (layout) and nothing of input.

import { idleShare, thin } from './bars.js';
import { percent, roundStep, seconds, tickLabel } from './format.js';
import { CLASSES } from './theme.js';

export const LEFT = 168, RIGHT = 78, AXIS = 26;
const HEADING = 24, GAP = 2, FONT = '11px system-ui, sans-serif', LEVELS = [0, 0.3, 0.62, 1];

// The rows that are drawn, with their places in CSS pixels, and the height of it all.
export function layout(runs, streams) {
  const lines = [];
  let y = AXIS;
  const shown = runs.map((run) => run.rows.filter((row) => streams === 'all' || row.stream === 'compute'));
  const tall = shown.flat().length > 80 ? 10 : shown.flat().length > 40 ? 14 : 20;
  runs.forEach((run, r) => {
    if (runs.length > 1) {
      lines.push({ heading: run.label, y, height: HEADING });
      y += HEADING;
    }
    let stage = null;
    for (const row of shown[r]) {
      if (streams === 'all' && stage !== null && stage !== row.stage) y += 4;
      stage = row.stage;
      const height = row.stream === 'compute' ? tall : 11;
      lines.push({ run, row, y, height });
      y += height + GAP;
    }
    y += runs.length > 1 ? 8 : 0;
  });
  return { lines, height: y + 4 };
}

export function paint(canvas, { lines, height }, view, classes, colours, marks) {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth;
  const pixelWidth = Math.round(width * ratio), pixelHeight = Math.round(height * ratio);
  if (canvas.width !== pixelWidth || canvas.height !== pixelHeight) {
    canvas.width = pixelWidth;
    canvas.height = pixelHeight;
  }
  const context = canvas.getContext('2d');
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.fillStyle = colours.paper;
  context.fillRect(0, 0, pixelWidth, pixelHeight);
  const plot = { left: Math.round(LEFT * ratio), pixels: Math.max(1, Math.round((width - LEFT - RIGHT) * ratio)) };
  const axis = ticks(view, width - LEFT - RIGHT);
  paintGround(context, lines, axis, height, colours, ratio, plot);
  for (const line of lines) if (line.row) paintRow(context, line, view, classes.get(line.run), colours, ratio, plot);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.font = FONT;
  context.textBaseline = 'middle';
  paintAxis(context, axis, colours);
  for (const line of lines) paintLabels(context, line, width, colours);
  for (const mark of marks) if (mark) outline(context, mark, view, width, colours);
}

function ticks(view, width) {
  const step = roundStep(view.t1 - view.t0, Math.max(2, width / 110)), list = [];
  for (let t = Math.ceil(view.t0 / step) * step; t <= view.t1 * (1 + 1e-12); t += step) {
    list.push({ x: LEFT + ((t - view.t0) / (view.t1 - view.t0)) * width, text: tickLabel(t, step, view.t1) });
  }
  return list;
}

function paintAxis(context, axis, colours) {
  context.textAlign = 'center';
  context.fillStyle = colours.soft;
  for (const { x, text } of axis) context.fillText(text, x, 10);
}

// What idle time shows: the rows' ground with the lines of the axis on it.
function paintGround(context, lines, axis, height, colours, ratio, plot) {
  context.fillStyle = colours.ground;
  for (const { row, y, height: tall } of lines)
    if (row) context.fillRect(plot.left, Math.round(y * ratio), plot.pixels, Math.round(tall * ratio));
  context.fillStyle = colours.grid;
  for (const { x } of axis) context.fillRect(Math.round(x * ratio), (AXIS - 6) * ratio, Math.max(1, Math.floor(ratio)), (height - AXIS + 2) * ratio);
}

function nameOf(run, row, index) {
  return row.ops[index] > 1 ? `${row.ops[index]} ops` : run.texts[row.text[index]].op;
}

function paintRow(context, { run, row, y, height }, view, classOf, colours, ratio, plot) {
  const top = Math.round(y * ratio), tall = Math.round(height * ratio);
  let style = '';
  const use = (colour) => {
    if (colour !== style) context.fillStyle = style = colour;
  };
  const solid = (x, width, kind, level) => {
    use(colours.bars[kind]);
    if (level !== 3) context.globalAlpha = LEVELS[level];
    context.fillRect(plot.left + x, top, width, tall);
    if (level !== 3) context.globalAlpha = 1;
  };
  const named = [];
  const wide = (x, width, index, kind) => {
    use(colours.bars[kind]);
    context.fillRect(plot.left + x, top, width - 1, tall);
    if (width > 46 * ratio && height >= 14) named.push([x, width, index, kind]);
  };
  thin(row, classOf, CLASSES.length, view, plot.pixels, solid, wide);
  context.font = `${Math.round(11 * ratio)}px system-ui, sans-serif`;
  context.textAlign = 'left';
  context.textBaseline = 'middle';
  for (const [x, width, index, kind] of named) {
    const room = Math.floor((width - 8 * ratio) / (6.3 * ratio)), text = nameOf(run, row, index);
    context.fillStyle = colours.labels[kind];
    context.fillText(text.length <= room ? text : `${text.slice(0, Math.max(0, room - 1))}…`, plot.left + x + 4 * ratio, top + tall / 2);
  }
}

function paintLabels(context, line, width, colours) {
  const middle = line.y + line.height / 2;
  context.textAlign = 'left';
  if (line.heading) {
    context.fillStyle = colours.ink;
    context.font = `600 12px system-ui, sans-serif`;
    context.fillText(line.heading, 0, middle + 2);
    context.font = FONT;
    return;
  }
  const compute = line.row.stream === 'compute';
  context.fillStyle = compute ? colours.ink : colours.soft;
  if (compute && line.height >= 10) context.fillText(`stage ${line.row.stage}`, 0, middle);
  context.fillStyle = colours.soft;
  context.fillText(compute ? `rank ${line.row.rank}` : line.row.stream.replaceAll('_', ' '), 64, middle);
  if (compute) context.fillText(`idle ${percent(idleShare(line.run, line.row))}`, width - RIGHT + 8, middle);
}

function outline(context, { line, index }, view, width, colours) {
  const scale = (width - LEFT - RIGHT) / (view.t1 - view.t0);
  const x0 = Math.max(LEFT, LEFT + (line.row.start[index] - view.t0) * scale);
  const x1 = Math.min(width - RIGHT, LEFT + (line.row.end[index] - view.t0) * scale);
  if (x1 < LEFT || x0 > width - RIGHT) return;
  context.strokeStyle = colours.accent;
  context.lineWidth = 2;
  context.strokeRect(x0 - 1, line.y - 1, Math.max(x1 - x0, 1) + 2, line.height + 2);
}

export function describe(run, row, index) {
  const text = run.texts[row.text[index]], time = row.end[index] - row.start[index];
  const lines = [
    ['operation', `${text.body}/${text.op}`],
    ['kind', text.kind + (text.shape ? `, ${text.shape}` : '')],
    ['duration', seconds(time)],
    ['start', seconds(row.start[index], 7)],
    ['where', `stage ${row.stage}, rank ${row.rank}, ${row.stream.replaceAll('_', ' ')}`],
    ['phase', text.phase + (row.microBatch[index] > 0 ? `, micro-batch ${row.microBatch[index] - 1}` : '')],
  ];
  if (text.coverage) lines.push(['cost from', text.coverage]);
  if (row.ops[index] > 1) lines.unshift(['drawn as one', `${row.ops[index]} operations; the longest:`]);
  return { text, time, lines };
}
