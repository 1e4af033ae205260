// Loss against step or time, by uPlot. Time is the end of each step (steps.csv); of a run without that file it is steps
// times the median step.

import uPlot from 'uplot';
import css from 'uplot/dist/uPlot.min.css';

const COLOURS = ['forward', 'tensor', 'backward', 'data'];

const timed = (run) => run.loss_s.length === run.loss.length;

export class LossChart {
  constructor(host, runs) {
    this.runs = runs.filter((run) => run.loss.length > 1);
    this.host = host;
    this.against = 'step';
    document.head.append(Object.assign(document.createElement('style'), { textContent: css }));
    this.plot = document.createElement('div');
    host.replaceChildren(this.choice(), this.plot);
    this.draw();
    new ResizeObserver(() => this.chart.setSize(this.size())).observe(this.plot);
    for (const query of ['(prefers-color-scheme: dark)', 'print']) matchMedia(query).addEventListener('change', () => this.draw());
  }

  choice() {
    const label = document.createElement('label'), select = document.createElement('select');
    select.id = 'loss-against';
    for (const [value, text] of [['step', 'step'], ['time', this.runs.every(timed) ? 'time' : 'time, at the median step where no other is known']]) select.append(new Option(text, value));
    select.addEventListener('change', () => {
      this.against = select.value;
      this.draw();
    });
    label.append('Against ', select);
    const controls = document.createElement('div');
    controls.className = 'controls';
    controls.append(label);
    return controls;
  }

  size() {
    return { width: Math.max(320, this.plot.clientWidth), height: 260 };
  }

  // Runs of different step times have different abscissas; uPlot joins them and leaves gaps out.
  data() {
    const tables = this.runs.map((run) => {
      if (this.against === 'step') return [run.loss.map((_, i) => i + 1), run.loss];
      if (!timed(run)) return [run.loss.map((_, i) => (i + 1) * run.step_s), run.loss];
      const known = run.loss.map((_, i) => i).filter((i) => run.loss_s[i] !== null);  // of a resumed run those since then
      return [known.map((i) => run.loss_s[i]), known.map((i) => run.loss[i])];
    });
    return tables.length === 1 ? tables[0] : uPlot.join(tables);
  }

  draw() {
    const style = getComputedStyle(document.documentElement), colour = (name) => style.getPropertyValue(`--${name}`).trim();
    const axis = { stroke: colour('soft'), grid: { stroke: colour('grid'), width: 1 }, ticks: { stroke: colour('grid'), width: 1 } };
    const series = this.runs.map((run, i) => ({
      label: run.label, stroke: colour(COLOURS[i % COLOURS.length]), width: 2, spanGaps: true, points: { show: run.loss.length < 60, size: 4 },
      value: (_, value) => (value == null ? '' : value.toFixed(4)),
    }));
    this.chart?.destroy();
    this.chart = new uPlot({
      ...this.size(),
      scales: { x: { time: false } },
      series: [{ label: this.against === 'step' ? 'step' : 'seconds', value: (_, v) => (v == null ? '' : String(Number(v.toPrecision(5)))) }, ...series],
      axes: [{ ...axis, label: this.against === 'step' ? 'step' : 'seconds', labelSize: 22 }, { ...axis, size: 56 }],
    }, this.data(), this.plot);
  }
}
