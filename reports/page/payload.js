// Undoes reports/html/payload.cpp: base64 of gzip of a header (JSON) and uint32 arrays, into runs of rows of bars with
// their times in seconds. Decompression is the browser's own.

export async function unpack(base64) {
  const packed = Uint8Array.from(atob(base64.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

const TEXT_FIELDS = ['body', 'op', 'kind', 'shape', 'phase', 'coverage', 'bytes', 'flops', 'groupSize', 'phaseClass', 'kindClass'];

export function decode(bytes) {
  const length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  if (header.format !== 1) throw new Error(`payload format ${header.format}`);
  let at = bytes.byteOffset + 4 + length;
  const take = (n) => {
    const array = new Uint32Array(bytes.buffer, at, n);
    at += 4 * n;
    return array;
  };
  for (const run of header.runs) {
    run.texts = run.texts.map((values) => Object.fromEntries(values.map((value, i) => [TEXT_FIELDS[i], value])));
    run.rows = run.rows.map((row) => decodeRow(row, run, take));
  }
  return header.runs;
}

// `busy`: seconds of the step in which the row has a bar.
function decodeRow({ stage, rank, stream, unit_s, bars }, { first_s, window_s }, take) {
  const [delta, duration, text, microBatch, ops] = [take(bars), take(bars), take(bars), take(bars), take(bars)];
  const start = new Float64Array(bars), end = new Float64Array(bars);
  let now = 0, busy = 0;
  for (let i = 0; i < bars; ++i) {
    now += delta[i];
    start[i] = first_s + now * unit_s;
    end[i] = first_s + (now + duration[i]) * unit_s;
    busy += Math.max(0, Math.min(end[i], window_s) - Math.max(start[i], 0));
  }
  return { stage, rank, stream, start, end, text, microBatch, ops, busy };
}
