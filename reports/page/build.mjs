// node build.mjs OUTPUT: bundles the page's script with esbuild, which node_modules beside OUTPUT has. The licence of the
// chart library stays in the bundle; nothing in it names an address.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const output = process.argv[2];
const modules = join(dirname(output), 'node_modules');
const { buildSync } = createRequire(join(dirname(output), 'package.json'))('esbuild');
const licence = readFileSync(join(modules, 'uplot', 'LICENSE'), 'utf8').trim();

buildSync({
  entryPoints: [join(dirname(fileURLToPath(import.meta.url)), 'main.js')],
  outfile: output,
  bundle: true,
  minify: true,
  format: 'iife',
  target: 'es2020',
  charset: 'utf8',
  nodePaths: [modules],
  loader: { '.css': 'text' },
  legalComments: 'none',
  banner: { js: `/* Charts: uPlot. ${licence.replaceAll('*/', '* /')} */` },
  logLevel: 'warning',
});
