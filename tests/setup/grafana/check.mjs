// Type-checks dashboards against Grafana's own schema: each JSON file becomes literals of the types that
// @grafana/schema has for dashboards, panels, and the options and field settings of each kind of panel;
// then the TypeScript compiler has its say.
//
//   node check.mjs NODE_MODULES FILE...

import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';

const [modules, ...files] = process.argv.slice(2);
if (!modules || files.length === 0) {
  console.error('usage: node check.mjs NODE_MODULES FILE...');
  process.exit(2);
}
const kinds = path.join(modules, '@grafana/schema/dist/types/raw/composable');
const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'grafana-schema-'));
fs.symlinkSync(path.resolve(modules), path.join(dir, 'node_modules'));

// Enums of the schema are words in JSON.
const literal =
  'type Words<T> = T extends string ? `${T}` : T extends number | boolean | null | undefined ? T : ' +
  'T extends (infer One)[] ? Words<One>[] : T extends object ? { [K in keyof T]: Words<T[K]> } : T;';

/** Where the types of a kind of panel are declared; none for the kinds without settings of their own. */
function declared(kind) {
  const at = path.join(kinds, kind, 'panelcfg/x');
  const file = fs.existsSync(at) && fs.readdirSync(at).find((name) => name.endsWith('.d.ts'));
  return file && `./node_modules/@grafana/schema/dist/types/raw/composable/${kind}/panelcfg/x/${file.replace('.d.ts', '')}`;
}

/** The schema knows annotations only as far as they are the same for all data sources. */
function common(annotations) {
  const keys = ['name', 'type', 'datasource', 'enable', 'hide', 'iconColor', 'filter', 'builtIn', 'target'];
  const list = annotations?.list?.map((one) => Object.fromEntries(keys.filter((key) => key in one).map((key) => [key, one[key]])));
  return list && { ...annotations, list };
}

const unknown = [];
const sources = files.map((file, number) => {
  const board = JSON.parse(fs.readFileSync(file, 'utf8'));
  const panels = board.panels.flatMap((one) => [one, ...(one.panels ?? [])]);
  const lines = [`// ${file}`, "import type { Dashboard, Panel, RowPanel } from '@grafana/schema';"];
  const used = [...new Set(panels.map((one) => one.type).filter((kind) => kind !== 'row'))];
  for (const kind of used) {
    const from = declared(kind);
    if (from) lines.push(`import type * as ${kind.replaceAll('-', '_')} from '${from}';`);
    else unknown.push(`${file}: there is no schema for panels of type ${kind}`);
  }
  lines.push(literal);
  const whole = { ...board, panels: undefined, annotations: common(board.annotations) };
  lines.push(`export const board: Words<Omit<Dashboard, 'panels'>> = ${JSON.stringify(whole)};`);
  panels.forEach((one, n) => {
    if (one.type === 'row') {
      lines.push(`export const row${n}: Words<RowPanel> = ${JSON.stringify(one)};`);
      return;
    }
    const { options, ...rest } = one;
    lines.push(`export const panel${n}: Words<Panel> = ${JSON.stringify(rest)};`);
    if (!declared(one.type)) return;
    const types = one.type.replaceAll('-', '_');
    lines.push(`export const options${n}: Words<${types}.Options> = ${JSON.stringify(options)};`);
    const custom = one.fieldConfig?.defaults?.custom;
    if (custom) lines.push(`export const custom${n}: Words<${types}.FieldConfig> = ${JSON.stringify(custom)};`);
  });
  const name = `board${number}.ts`;
  fs.writeFileSync(path.join(dir, name), lines.join('\n') + '\n');
  return name;
});

let failed = unknown.length > 0;
for (const line of unknown) console.log(line);
try {
  const tsc = path.join(path.resolve(modules), 'typescript/bin/tsc');
  const options = ['--noEmit', '--strict', '--skipLibCheck', '--module', 'nodenext', '--target', 'es2022', '--pretty', 'false'];
  execFileSync(process.execPath, [tsc, ...options, ...sources], { cwd: dir, stdio: 'pipe' });
} catch (error) {
  failed = true;
  console.log(files.map((file, n) => `board${n}.ts is ${file}`).join('\n'));
  console.log(error.stdout?.toString() || String(error));
}
fs.rmSync(dir, { recursive: true });
if (!failed) console.log(`${files.length} dashboards have Grafana's types`);
process.exit(failed ? 1 : 0);
