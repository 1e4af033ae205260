// The timeline that can be zoomed: one canvas for all runs on one axis of time, with buttons, keys and a pointer. State is
// a view (t0, t1), which rows, which colours, and the bar chosen; everything is repainted from it.

import { barAt, panned, zoomed } from './bars.js';
import { AXIS, LEFT, RIGHT, describe, layout, paint } from './draw.js';
import { quantity } from './format.js';
import { CLASSES, NAMES, readColours } from './theme.js';

function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

export class Timeline {
  constructor(host, runs) {
    this.host = host;
    this.runs = runs;
    const end = Math.max(...runs.map((run) => Math.max(run.last_s, run.window_s)));
    this.axis = { t0: Math.min(0, ...runs.map((run) => run.first_s)), t1: end };
    this.whole = { t0: 0, t1: end };
    this.view = this.whole;
    this.streams = runs.reduce((n, run) => n + run.rows.length, 0) > 40 ? 'compute' : 'all';
    this.colouring = 'phase';
    this.hovered = this.chosen = null;
    this.frames = 0;
    this.paintMs = 0;
    this.build();
    this.recolour();
    this.listen();
    this.arrange();
  }

  build() {
    this.canvas = element('canvas', {
      tabindex: '0', role: 'application',
      'aria-label': 'Timeline. Arrow left and right move, plus and minus zoom, 0 shows all, arrow up and down choose a row, '
        + 'comma and full stop the operation before and after.',
    });
    this.tooltip = element('div', { class: 'tooltip', hidden: '' });
    this.detail = element('div', { class: 'detail', 'aria-live': 'polite' });
    this.legend = element('ul', { class: 'legend' });
    const controls = element('div', { class: 'controls' }, this.buttons(), this.choice('colouring', 'Colours', [
      ['phase', 'phase'], ['kind', 'kind of kernel']]), this.choice('streams', 'Rows', [['compute', 'compute'], ['all', 'all streams']]));
    const hint = element('p', { class: 'note' }, 'Drag to move, double-click to see all. The wheel zooms once the timeline is '
      + 'clicked, or with Ctrl. Keys: ← → + − 0, ↑ ↓ for a row, comma and full stop for its operations.');
    this.frame = element('div', { class: 'frame' }, this.canvas, this.tooltip);
    this.host.replaceChildren(controls, this.legend, this.frame, this.detail, hint);
  }

  buttons() {
    const group = element('div', { class: 'group', role: 'group', 'aria-label': 'Zoom and move' });
    for (const [id, text, label, act] of [
      ['earlier', '←', 'Earlier', () => this.pan(-0.25)], ['later', '→', 'Later', () => this.pan(0.25)],
      ['zoom-in', '+', 'Zoom in', () => this.zoom(0.5)], ['zoom-out', '−', 'Zoom out', () => this.zoom(2)],
      ['reset', 'All', 'Show the whole step', () => this.reset()]]) {
      const button = element('button', { type: 'button', id: `timeline-${id}`, 'aria-label': label, title: label }, text);
      button.addEventListener('click', act);
      group.append(button);
    }
    return group;
  }

  choice(property, title, options) {
    const select = element('select', { id: `timeline-${property}` });
    for (const [value, text] of options) select.append(element('option', { value }, text));
    select.value = this[property];
    select.addEventListener('change', () => {
      this[property] = select.value;
      this.recolour();
      this.arrange();
    });
    return element('label', {}, `${title} `, select);
  }

  // Colours by class, and each run's texts by class.
  recolour() {
    this.colours = readColours();
    const field = this.colouring === 'phase' ? 'phaseClass' : 'kindClass';
    this.classes = new Map(this.runs.map((run) => [run, Uint8Array.from(run.texts, (text) => {
      const place = CLASSES.indexOf(text[field]);
      return place < 0 ? CLASSES.length - 1 : place;
    })]));
  }

  arrange() {
    this.layout = layout(this.runs, this.streams);
    this.hovered = null;
    this.tooltip.hidden = true;
    if (this.chosen) {
      const line = this.layout.lines.find((other) => other.row === this.chosen.line.row);
      this.chosen = line ? { line, index: this.chosen.index } : null;
    }
    this.canvas.style.height = `${this.layout.height}px`;
    this.nameClasses();
    this.request();
  }

  nameClasses() {
    const used = new Set();
    for (const { run, row } of this.layout.lines) if (row) for (const text of new Set(row.text)) used.add(this.classes.get(run)[text]);
    this.legend.replaceChildren(...[...used].sort((a, b) => a - b).map((c) =>
      element('li', {}, element('i', { class: CLASSES[c] }), NAMES[CLASSES[c]])), element('li', {}, element('i', { class: 'idle' }), 'idle'));
  }

  request() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.pending = false;
    const began = performance.now();
    paint(this.canvas, this.layout, this.view, this.classes, this.colours, [this.hovered, this.chosen]);
    this.paintMs = performance.now() - began;
    ++this.frames;
  }

  get plotWidth() {
    return Math.max(1, this.canvas.clientWidth - LEFT - RIGHT);
  }

  timeAt(x) {
    return this.view.t0 + ((x - LEFT) / this.plotWidth) * (this.view.t1 - this.view.t0);
  }

  show(view) {
    this.view = view;
    this.request();
  }

  zoom(factor, at = (this.view.t0 + this.view.t1) / 2) {
    this.show(zoomed(this.view, factor, at, this.axis));
  }

  pan(share) {
    this.show(panned(this.view, share * (this.view.t1 - this.view.t0), this.axis));
  }

  reset() {
    this.show(this.whole);
  }

  barUnder(event) {
    const box = this.canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    if (x < LEFT || x > LEFT + this.plotWidth || y < AXIS) return null;
    const line = this.layout.lines.find((other) => other.row && y >= other.y && y < other.y + other.height + 2);
    if (!line) return null;
    const index = barAt(line.row, this.timeAt(x), (2 * (this.view.t1 - this.view.t0)) / this.plotWidth);
    return index < 0 ? null : { line, index, x, y };
  }

  listen() {
    const { canvas } = this;
    new ResizeObserver(() => this.request()).observe(canvas);
    const recolour = () => {
      this.recolour();
      this.draw();
    };
    for (const query of ['(prefers-color-scheme: dark)', 'print']) matchMedia(query).addEventListener('change', recolour);
    window.addEventListener('beforeprint', () => {
      document.documentElement.classList.add('printing');
      recolour();
    });
    window.addEventListener('afterprint', () => {
      document.documentElement.classList.remove('printing');
      recolour();
    });
    canvas.addEventListener('wheel', (event) => this.onWheel(event), { passive: false });
    canvas.addEventListener('dblclick', () => this.reset());
    canvas.addEventListener('keydown', (event) => this.onKey(event));
    canvas.addEventListener('pointerdown', (event) => this.onDown(event));
    canvas.addEventListener('pointermove', (event) => this.onMove(event));
    canvas.addEventListener('pointerup', (event) => this.onUp(event));
    canvas.addEventListener('pointerleave', () => this.hover(null));
  }

  onWheel(event) {
    if (document.activeElement !== this.canvas && !event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const x = event.clientX - this.canvas.getBoundingClientRect().left;
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan((event.deltaX || event.deltaY) / this.plotWidth);
    else this.zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY * 0.002))), this.timeAt(Math.max(LEFT, x)));
  }

  onDown(event) {
    if (event.button !== 0) return;
    this.drag = { x: event.clientX, view: this.view, moved: false };
    this.canvas.setPointerCapture(event.pointerId);
  }

  onMove(event) {
    if (!this.drag) {
      this.hover(this.barUnder(event));
      return;
    }
    const moved = event.clientX - this.drag.x;
    this.drag.moved ||= Math.abs(moved) > 3;
    if (!this.drag.moved) return;
    this.hover(null);
    const { t0, t1 } = this.drag.view;
    this.show(panned(this.drag.view, (-moved * (t1 - t0)) / this.plotWidth, this.axis));
  }

  onUp(event) {
    if (this.drag && !this.drag.moved) this.choose(this.barUnder(event));
    this.drag = null;
  }

  onKey(event) {
    const act = {
      ArrowLeft: () => this.pan(-0.15), ArrowRight: () => this.pan(0.15), '+': () => this.zoom(0.6), '=': () => this.zoom(0.6),
      '-': () => this.zoom(1 / 0.6), 0: () => this.reset(), Home: () => this.reset(), ArrowUp: () => this.chooseRow(-1),
      ArrowDown: () => this.chooseRow(1), ',': () => this.chooseBar(-1), '.': () => this.chooseBar(1), Escape: () => this.choose(null),
    }[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  }

  chooseRow(direction) {
    const lines = this.layout.lines.filter((line) => line.row?.start.length);
    if (!lines.length) return;
    const at = this.chosen ? lines.indexOf(this.chosen.line) + direction : 0;
    const line = lines[Math.max(0, Math.min(lines.length - 1, at))];
    const middle = (this.view.t0 + this.view.t1) / 2;
    this.choose({ line, index: barAt(line.row, middle, Infinity) });
  }

  chooseBar(direction) {
    if (!this.chosen) {
      this.chooseRow(0);
      return;
    }
    const { line, index } = this.chosen, next = Math.max(0, Math.min(line.row.start.length - 1, index + direction));
    this.choose({ line, index: next });
    const { row } = line, { t0, t1 } = this.view;
    if (row.end[next] < t0 || row.start[next] > t1) this.show(panned(this.view, (row.start[next] + row.end[next] - t0 - t1) / 2, this.axis));
  }

  // Brings a run's rows into sight and chooses its first operation.
  reveal(number) {
    const line = this.layout.lines.find((other) => other.run === this.runs[number] && other.row?.start.length);
    if (!line) return;
    window.scrollTo({ top: window.scrollY + this.canvas.getBoundingClientRect().top + line.y - 80 });
    this.canvas.focus({ preventScroll: true });
    this.choose({ line, index: 0 });
  }

  hover(found) {
    if (found?.line === this.hovered?.line && found?.index === this.hovered?.index && !found) return;
    this.hovered = found;
    this.tooltip.hidden = !found;
    if (found) {
      const { lines } = describe(found.line.run, found.line.row, found.index);
      this.tooltip.replaceChildren(...lines.map(([name, value]) => element('div', {}, element('b', {}, name), ` ${value}`)));
      const left = Math.min(found.x + 14, this.canvas.clientWidth - this.tooltip.offsetWidth - 4);
      this.tooltip.style.left = `${Math.max(0, left)}px`;
      this.tooltip.style.top = `${found.line.y + found.line.height + 8}px`;
    }
    this.request();
  }

  choose(found) {
    this.chosen = found && { line: found.line, index: found.index };
    const parts = [];
    if (found) {
      const { text, time, lines } = describe(found.line.run, found.line.row, found.index);
      if (time > 0 && text.flops > 0 && found.line.row.ops[found.index] === 1) lines.push(['rate', quantity(text.flops / time, 'FLOP/s')]);
      if (time > 0 && text.bytes > 0 && found.line.row.ops[found.index] === 1)
        lines.push(['traffic', `${quantity(text.bytes, 'B')}, ${quantity(text.bytes / time, 'B/s')}`]);
      if (this.runs.length > 1) lines.unshift(['run', found.line.run.label]);
      for (const [name, value] of lines) parts.push(element('div', {}, element('dt', {}, name), element('dd', {}, value)));
    }
    this.detail.replaceChildren(...(parts.length ? [element('dl', {}, ...parts)] : []));
    this.request();
  }
}
