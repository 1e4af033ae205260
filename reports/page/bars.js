// Searching and thinning a row of bars. Bars are sorted by start and none overlaps the next, so their ends are sorted
// too: what a window shows is found by bisection, and what is narrower than a pixel is summed instead of drawn.

// The first bar that ends after `time`; the row's length if none does.
export function firstEndingAfter(row, time) {
  let low = 0, high = row.end.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (row.end[middle] > time) high = middle;
    else low = middle + 1;
  }
  return low;
}

// The bar at `time`, or the nearest within `slack`; -1 if there is none.
export function barAt(row, time, slack) {
  if (!row.start.length) return -1;
  const i = firstEndingAfter(row, time);
  const after = i < row.start.length ? Math.max(0, row.start[i] - time) : Infinity;
  const before = i > 0 ? time - row.end[i - 1] : Infinity;
  if (Math.min(after, before) > slack) return -1;
  return after <= before ? i : i - 1;
}

export function idleShare(run, row) {
  return run.window_s > 0 ? 1 - row.busy / run.window_s : 0;
}

// A view shows the seconds from t0 to t1; it stays within an axis {t0, t1} and is 10 ns wide at least.
export function zoomed(view, factor, at, axis) {
  const width = Math.min(Math.max((view.t1 - view.t0) * factor, 1e-8), axis.t1 - axis.t0);
  const t0 = at - ((at - view.t0) / (view.t1 - view.t0)) * width;
  return within({ t0, t1: t0 + width }, axis);
}

export function panned(view, seconds, axis) {
  return within({ t0: view.t0 + seconds, t1: view.t1 + seconds }, axis);
}

function within(view, axis) {
  const width = view.t1 - view.t0;
  const t0 = Math.min(Math.max(view.t0, axis.t0), axis.t1 - width);
  return { t0, t1: t0 + width };
}

const WIDE = 5;  // pixels from which a bar is drawn by itself, with a gap behind it

// Calls solid(x, width, class, level) for runs of pixels and wide(x, width, index) for bars that deserve their own. A
// pixel shared by bars takes the class that fills most of it; `level` says how full it is: 3 nearly, 2 half, 1 little.
export function thin(row, classOf, classes, view, pixels, solid, wide) {
  const scale = pixels / (view.t1 - view.t0);
  const share = new Float64Array(classes);
  let pixel = -1, filled = false, runX = 0, runEnd = -1, runClass = -1, runLevel = 0;
  const endRun = () => {
    if (runEnd > runX) solid(runX, runEnd - runX, runClass, runLevel);
    runEnd = -1;
  };
  const run = (x, width, kind, level) => {
    if (x === runEnd && kind === runClass && level === runLevel) runEnd += width;
    else {
      endRun();
      [runX, runEnd, runClass, runLevel] = [x, x + width, kind, level];
    }
  };
  const flush = () => {
    if (!filled) return;
    let all = 0, most = 0;
    for (let c = 0; c < classes; ++c) {
      all += share[c];
      if (share[c] > share[most]) most = c;
    }
    share.fill(0);
    filled = false;
    if (all > 0.03) run(pixel, 1, most, all > 0.7 ? 3 : all > 0.35 ? 2 : 1);
  };
  const add = (x, amount, kind) => {
    if (x !== pixel) {
      flush();
      pixel = x;
    }
    share[kind] += amount;
    filled = true;
  };
  for (let i = firstEndingAfter(row, view.t0), n = row.start.length; i < n && row.start[i] < view.t1; ++i) {
    const x0 = Math.max(0, (row.start[i] - view.t0) * scale), x1 = Math.min(pixels, (row.end[i] - view.t0) * scale);
    const kind = classOf[row.text[i]];
    if (x1 - x0 >= WIDE) {
      flush();
      endRun();
      wide(x0, x1 - x0, i, kind);
      continue;
    }
    const first = Math.floor(x0), last = Math.min(Math.floor(x1), pixels - 1);
    if (first === last) {
      add(first, x1 - x0, kind);
      continue;
    }
    add(first, first + 1 - x0, kind);
    for (let x = first + 1; x < last; ++x) add(x, 1, kind);
    add(last, x1 - last, kind);
  }
  flush();
  endRun();
}
