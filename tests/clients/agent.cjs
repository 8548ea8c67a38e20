// A small agent on the Anthropic TypeScript SDK, run by tests/it/agents.rs.
// Environment and output as in agent.py beside this file; the SDK is found by NODE_PATH.
'use strict';
const { spawnSync } = require('node:child_process');
const { Anthropic, APIError } = require('@anthropic-ai/sdk');
const { betaTool } = require('@anthropic-ai/sdk/helpers/beta/json-schema');

const MODE = process.env.MODE;
const PROMPT = process.env.PROMPT;
const MODEL = process.env.MODEL || 'claude-opus-5';
const MAX_TURNS = 16;
// Long enough that a provider caches it.
const SYSTEM =
  'You are an agent under test.\n' +
  Array.from(
    { length: 400 },
    (_, n) => `Rule ${n + 1}: when step ${n + 1} is asked for, do it once, report what came out, then go on.`,
  ).join('\n');
const SCHEMA = {
  type: 'object',
  properties: { command: { type: 'string' } },
  required: ['command'],
};
const BASH = { name: 'bash', description: 'Run a command in a shell.', input_schema: SCHEMA };

const answers = [];
const results = [];

function shell(command) {
  const done = spawnSync('bash', ['-c', command], { encoding: 'utf8', timeout: 20000 });
  results.push({ command, code: done.status });
  return [done.status, done.stdout + done.stderr];
}

function note(message) {
  answers.push({
    stop_reason: message.stop_reason,
    text: message.content.filter((b) => b.type === 'text').map((b) => b.text).join(''),
    calls: message.content
      .filter((b) => b.type === 'tool_use')
      .map((b) => ({ name: b.name, input: b.input })),
    usage: { output: message.usage.output_tokens },
  });
}

async function loop(client) {
  const messages = [{ role: 'user', content: PROMPT }];
  for (let turn = 0; turn < MAX_TURNS; turn++) {
    const request = { model: MODEL, max_tokens: 1024, system: SYSTEM, tools: [BASH], messages };
    const message =
      MODE === 'create'
        ? await client.messages.create(request)
        : await client.messages.stream(request).finalMessage();
    note(message);
    messages.push({ role: 'assistant', content: message.content });
    const calls = message.content.filter((b) => b.type === 'tool_use');
    if (calls.length === 0) return;
    messages.push({
      role: 'user',
      content: calls.map((call) => {
        const [code, text] = shell(String(call.input.command ?? 'false'));
        return { type: 'tool_result', tool_use_id: call.id, content: text, is_error: code !== 0 };
      }),
    });
  }
}

async function runner(client) {
  const bash = betaTool({
    name: 'bash',
    description: 'Run a command in a shell.',
    inputSchema: SCHEMA,
    run: async ({ command }) => {
      const [code, text] = shell(command);
      if (code) throw new Error(text);
      return text;
    },
  });
  const run = client.beta.messages.toolRunner({
    model: MODEL,
    max_tokens: 1024,
    system: SYSTEM,
    tools: [bash],
    messages: [{ role: 'user', content: PROMPT }],
    max_iterations: MAX_TURNS,
    stream: MODE === 'tools_stream',
  });
  for await (const item of run) {
    note(MODE === 'tools_stream' ? await item.finalMessage() : item);
  }
}

async function count(client) {
  const counted = await client.messages.countTokens({
    model: MODEL,
    system: SYSTEM,
    messages: [{ role: 'user', content: PROMPT }],
  });
  const models = [];
  for await (const model of client.models.list()) models.push(model.id);
  answers.push({ counted: counted.input_tokens > 0, models: models.sort() });
}

async function main() {
  const modes = { create: loop, stream: loop, tools: runner, tools_stream: runner, count };
  if (!modes[MODE]) throw new Error(`unknown MODE ${MODE}`);
  let error = null;
  try {
    // A key that could be real by its shape; the tests look for it where it must not appear.
    const client = new Anthropic({
      baseURL: process.env.BASE_URL,
      apiKey: 'sk-ant-api03-test-key-not-a-secret',
      timeout: 30000,
    });
    await modes[MODE](client);
  } catch (caught) {
    error = {
      class: caught?.constructor?.name,
      status: caught instanceof APIError ? (caught.status ?? null) : null,
      body: caught?.error?.error ?? null,
    };
  }
  console.log(JSON.stringify({ answers, results, error }));
  process.exit(error ? 1 : 0);
}
main();
