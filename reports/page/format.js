// Numbers for people.

const UNITS = [[1, 's'], [1e-3, 'ms'], [1e-6, 'µs'], [1e-9, 'ns']];

export function seconds(value, digits = 4) {
  if (value === 0) return '0 s';
  const [size, name] = UNITS.find(([unit]) => Math.abs(value) >= unit) ?? UNITS.at(-1);
  return `${Number((value / size).toPrecision(digits))} ${name}`;
}

// Ticks all in the unit of the axis's end, with the decimals that their step needs.
export function tickLabel(value, step, end) {
  const [size, name] = UNITS.find(([unit]) => Math.abs(end) >= unit) ?? UNITS.at(-1);
  const decimals = Math.max(0, -Math.floor(Math.log10(step / size) + 1e-9));
  return `${(value / size).toFixed(Math.min(decimals, 12))} ${name}`;
}

// 1, 2 or 5 times a power of ten, so that about `count` steps fill `range`.
export function roundStep(range, count) {
  const rough = range / count, power = 10 ** Math.floor(Math.log10(rough));
  return power * ([1, 2, 5].find((factor) => rough <= factor * power) ?? 10);
}

export function percent(share) {
  return `${(share * 100).toFixed(1)}%`;
}

export function quantity(value, unit) {
  const scales = [[1e15, 'P'], [1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k'], [1, '']];
  const [size, prefix] = scales.find(([scale]) => Math.abs(value) >= scale) ?? scales.at(-1);
  return `${Number((value / size).toPrecision(3))} ${prefix}${unit}`;
}
