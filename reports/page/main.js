// Starts the page: unpacks what the program put into it and replaces the static figures by ones that answer. Should that
// fail, the static ones stay and the reason stands below the timeline.

import { LossChart } from './loss.js';
import { decode, unpack } from './payload.js';
import { Timeline } from './timeline.js';

async function start() {
  const runs = decode(await unpack(document.getElementById('payload').textContent));
  const page = { runs };
  const timeline = document.getElementById('timeline'), loss = document.getElementById('loss-chart');
  if (timeline) page.timeline = new Timeline(timeline, runs);
  if (loss) page.loss = new LossChart(loss, runs);
  window.rehearse = page;  // for tests, and for a reader at the console
}

start().catch((error) => {
  const note = document.createElement('p');
  note.className = 'note';
  note.textContent = `The figures stay static: ${error.message}`;
  document.getElementById('timelines')?.append(note);
  throw error;
});
