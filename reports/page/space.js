// A search's space: a scatter of step against memory on a canvas, both axes logarithmic, that can be filtered by the plans'
// keys and by how each was settled. A point tells its plan, to a pointer and to the keyboard; the timeline of a plan that was
// kept is a click away. The line is the front of the simulated plans shown: no other has less of both.

import { quantity, seconds } from './format.js';

const LEFT = 74, RIGHT = 16, TOP = 12, BOTTOM = 34, HEIGHT = 420, NEAR = 12;
const COLOURS = ['--other', '--recompute', '--tensor'];  // of the statuses, as style.css has them for the static figure

function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// Plans with their keys' values as text, shortest step first.
export function plansOf(search) {
  const keys = Object.entries(search.answer.space);
  const text = (plan) => JSON.stringify(Object.entries(plan).sort());
  const kept = new Map(search.answer.plans.filter((plan) => plan.directory in search.runs)
    .map((plan) => [text(plan.plan), search.runs[plan.directory]]));
  return search.points.map(([status, step, bytes, numbers]) => {
    const values = Object.fromEntries(keys.map(([key, all], k) => [key, all[numbers[k]]]));
    return { status, step, bytes, values, run: status === 2 ? kept.get(text(values)) : undefined };
  }).filter((plan) => plan.step > 0 && plan.bytes > 0).sort((a, b) => a.step - b.step || a.bytes - b.bytes);
}

export function shownOf(plans, chosen, statuses) {
  const asked = Object.entries(chosen).filter(([, value]) => value !== '');
  return plans.filter((plan) => statuses.has(plan.status) && asked.every(([key, value]) => plan.values[key] === value));
}

// Of plans by step those simulated with less memory than all before.
export function frontOf(plans) {
  const front = [];
  for (const plan of plans) if (plan.status === 2 && (!front.length || plan.bytes < front.at(-1).bytes)) front.push(plan);
  return front;
}

export class SpaceChart {
  constructor(host, search, toRun) {
    this.host = host;
    this.search = search;
    this.toRun = toRun;
    this.plans = plansOf(search);
    this.chosenKeys = {};
    this.statuses = new Set([0, 1, 2]);
    this.at = null;
    this.build();
    this.filter();
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    for (const query of ['(prefers-color-scheme: dark)', 'print']) matchMedia(query).addEventListener('change', () => this.draw());
  }

  build() {
    this.canvas = element('canvas', { tabindex: '0', role: 'application', style: `height: ${HEIGHT}px`,
      'aria-label': 'Plans, step against memory. Arrow right and left go to the next slower and faster plan, Home to the fastest, Enter to its timeline.' });
    this.tooltip = element('div', { class: 'tooltip', hidden: '' });
    this.detail = element('div', { class: 'detail', 'aria-live': 'polite' });
    this.count = element('p', { class: 'note', 'aria-live': 'polite', id: 'space-count' });
    const controls = element('div', { class: 'controls' });
    for (const [key, values] of Object.entries(this.search.answer.space)) controls.append(this.keyChoice(key, values));
    this.search.statuses.forEach((name, status) => controls.append(this.statusChoice(name, status)));
    this.host.replaceChildren(controls, this.count, element('div', { class: 'frame' }, this.canvas, this.tooltip), this.detail);
    this.canvas.addEventListener('pointermove', (event) => this.show(this.under(event)));
    this.canvas.addEventListener('pointerleave', () => this.show(null));
    this.canvas.addEventListener('click', (event) => this.choose(this.under(event)));
    this.canvas.addEventListener('keydown', (event) => this.key(event));
  }

  keyChoice(key, values) {
    const select = element('select', { id: `space-${key.replaceAll('.', '-')}` }, element('option', { value: '' }, 'any'));
    for (const value of values) select.append(element('option', { value }, value));
    select.addEventListener('change', () => { this.chosenKeys[key] = select.value; this.filter(); });
    return element('label', {}, `${key.split('.').at(-1)} `, select);
  }

  statusChoice(name, status) {
    const box = element('input', { type: 'checkbox', id: `space-status-${status}`, checked: '' });
    box.addEventListener('change', () => { this.statuses[box.checked ? 'add' : 'delete'](status); this.filter(); });
    return element('label', {}, box, element('i', { class: `swatch plan-${status}` }), ` ${name}`);
  }

  filter() {
    this.shown = shownOf(this.plans, this.chosenKeys, this.statuses);
    this.front = frontOf(this.shown);
    this.at = null;
    this.count.textContent = `${this.shown.length.toLocaleString('en')} of ${this.plans.length.toLocaleString('en')} plans shown`;
    this.draw();
  }

  place(plan) {
    const along = (value, [low, high], from, to) => (high > low ? from + (to - from) * Math.log(value / low) / Math.log(high / low) : (from + to) / 2);
    return [along(plan.step, this.steps, LEFT, this.canvas.clientWidth - RIGHT), along(plan.bytes, this.bytes, HEIGHT - BOTTOM, TOP)];
  }

  draw() {
    const { canvas } = this, ratio = window.devicePixelRatio, style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    canvas.width = Math.round(canvas.clientWidth * ratio);
    canvas.height = Math.round(HEIGHT * ratio);
    const context = canvas.getContext('2d');
    context.scale(ratio, ratio);
    context.fillStyle = colour('--paper');
    context.fillRect(0, 0, canvas.clientWidth, HEIGHT);
    const range = (of) => this.shown.reduce(([low, high], plan) => [Math.min(low, of(plan)), Math.max(high, of(plan))], [Infinity, 0]);
    this.steps = range((plan) => plan.step);
    this.bytes = range((plan) => plan.bytes);
    this.frame(context, colour);
    if (!this.shown.length) return;
    for (const status of [0, 1, 2]) {
      context.fillStyle = colour(COLOURS[status]);
      for (const plan of this.shown) if (plan.status === status) this.dot(context, plan, status === 2 ? 4 : 2);
    }
    context.strokeStyle = colour('--tensor');
    context.beginPath();
    this.front.forEach((plan, i) => context[i ? 'lineTo' : 'moveTo'](...this.place(plan)));
    context.stroke();
    context.strokeStyle = colour('--accent');
    context.lineWidth = 2;
    if (this.at) { context.beginPath(); context.arc(...this.place(this.at), 7, 0, 7); context.stroke(); }
  }

  dot(context, plan, radius) {
    const [x, y] = this.place(plan);
    context.beginPath();
    context.arc(x, y, radius, 0, 7);
    context.fill();
  }

  // The axes' ends, and a line where a device's memory ends.
  frame(context, colour) {
    const right = this.canvas.clientWidth - RIGHT;
    context.font = '12px system-ui, sans-serif';
    context.strokeStyle = colour('--grid');
    context.strokeRect(LEFT, TOP, right - LEFT, HEIGHT - BOTTOM - TOP);
    context.fillStyle = colour('--soft');
    const write = (text, x, y, align) => { context.textAlign = align; context.fillText(text, x, y); };
    write('step, logarithmic', (LEFT + right) / 2, HEIGHT - 4, 'center');
    if (!this.shown.length) return write('no plan is like that', (LEFT + right) / 2, HEIGHT / 2, 'center');
    write(seconds(this.steps[0], 3), LEFT, HEIGHT - 18, 'left');
    write(seconds(this.steps[1], 3), right, HEIGHT - 18, 'right');
    write(quantity(this.bytes[1], 'B'), LEFT - 6, TOP + 10, 'right');
    write(quantity(this.bytes[0], 'B'), LEFT - 6, HEIGHT - BOTTOM, 'right');
    const room = this.search.answer.plans[0]?.memory.capacity_bytes ?? 0;
    if (room <= this.bytes[0] || room >= this.bytes[1]) return undefined;
    const y = this.place({ step: this.steps[0], bytes: room })[1];
    context.strokeStyle = colour('--warn');
    context.setLineDash([5, 4]);
    context.beginPath();
    context.moveTo(LEFT, y);
    context.lineTo(right, y);
    context.stroke();
    context.setLineDash([]);
    write(`a device: ${quantity(room, 'B')}`, right - 4, y - 4, 'right');
    return undefined;
  }

  under(event) {
    const box = this.canvas.getBoundingClientRect();
    let found = null, least = NEAR ** 2;
    for (const plan of this.shown) {
      const [x, y] = this.place(plan), far = (x - event.clientX + box.left) ** 2 + (y - event.clientY + box.top) ** 2;
      if (far < least || (far === least && plan.status > found.status)) [found, least] = [plan, far];
    }
    return found;
  }

  words(plan) {
    return [...Object.entries(plan.values).map(([key, value]) => [key.split('.').at(-1), value]),
      ['step', `${plan.status === 2 ? '' : 'at least '}${seconds(plan.step)}`],
      ['peak memory', `${plan.status === 2 ? '' : 'at least '}${quantity(plan.bytes, 'B')}`],
      ['settled as', this.search.statuses[plan.status]], ...(plan.run === undefined ? [] : [['timeline', 'click, or Enter']])];
  }

  show(plan) {
    if (plan === this.at) return;
    this.at = plan;
    this.tooltip.hidden = !plan;
    if (plan) {
      const [x, y] = this.place(plan);
      this.tooltip.replaceChildren(...this.words(plan).map(([name, value]) => element('div', {}, element('b', {}, name), ` ${value}`)));
      this.tooltip.style.left = `${Math.max(0, Math.min(x + 14, this.canvas.clientWidth - this.tooltip.offsetWidth - 4))}px`;
      this.tooltip.style.top = `${Math.max(0, Math.min(y + 10, HEIGHT - this.tooltip.offsetHeight))}px`;
    }
    this.draw();
  }

  choose(plan) {
    this.show(plan);
    if (!plan) return;
    this.detail.replaceChildren(element('dl', {}, ...this.words(plan).map(([name, value]) => element('div', {}, element('dt', {}, name), element('dd', {}, value)))));
    if (plan.run !== undefined) this.toRun(plan.run);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.shown.length) return;
    const now = this.shown.indexOf(this.at), last = this.shown.length - 1;
    const next = { ArrowRight: Math.min(last, now + 1), ArrowLeft: Math.max(0, now - 1), Home: 0, End: last }[event.key];
    if (next !== undefined) this.show(this.shown[next]);
    else if (event.key === 'Enter') this.choose(this.at);
    else if (event.key === 'Escape') this.show(null);
    else return;
    event.preventDefault();
  }
}
