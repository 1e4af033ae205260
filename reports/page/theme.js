// The colours of style.css as the canvas needs them, in the scheme that is on now. A class is what colours a bar; the same
// names are CSS classes of the static figures.

export const CLASSES = ['forward', 'recompute', 'backward', 'optimizer', 'matmul', 'attention', 'vector', 'loss', 'tensor',
  'context', 'expert', 'data', 'pipeline', 'copy', 'other'];

export const NAMES = {
  forward: 'forward', recompute: 'recomputation', backward: 'backward', optimizer: 'optimizer', matmul: 'matrix products',
  attention: 'attention', vector: 'norms and elementwise', loss: 'embedding and loss', tensor: 'tensor communication',
  context: 'context communication', expert: 'expert communication', data: 'data communication',
  pipeline: 'send and receive', copy: 'copies', other: 'other',
};

export function readColours() {
  const style = getComputedStyle(document.documentElement);
  const value = (name) => style.getPropertyValue(`--${name}`).trim();
  return {
    bars: CLASSES.map((name) => value(name)),
    labels: CLASSES.map((name) => value(`on-${name}`) || value('on-bar')),
    ink: value('ink'), soft: value('soft'), ground: value('ground'), grid: value('grid'), accent: value('accent'),
    paper: value('paper'),
  };
}
