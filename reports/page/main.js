// Starts the page: unpacks what the program put into it and replaces the static figures by ones that answer. Should that
// fail, the static ones stay and the reason stands below the timeline.

import { LossChart } from './loss.js';
import { decode, unpack } from './payload.js';
import { SpaceChart } from './space.js';
import { Timeline } from './timeline.js';

async function start() {
  const payload = document.getElementById('payload'), space = document.getElementById('space-payload');
  const runs = payload ? decode(await unpack(payload.textContent)) : [];
  const page = { runs };
  const timeline = document.getElementById('timeline'), loss = document.getElementById('loss-chart');
  if (timeline) page.timeline = new Timeline(timeline, runs);
  if (loss) page.loss = new LossChart(loss, runs);
  if (space) {
    const search = JSON.parse(new TextDecoder().decode(await unpack(space.textContent)));
    page.space = new SpaceChart(document.getElementById('space-chart'), search, (run) => page.timeline?.reveal(run));
  }
  window.rehearse = page;  // for tests, and for a reader at the console
}

start().catch((error) => {
  const note = document.createElement('p');
  note.className = 'note';
  note.textContent = `The figures stay static: ${error.message}`;
  document.getElementById('timelines')?.append(note);
  throw error;
});
