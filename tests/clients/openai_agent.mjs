// A small agent on the OpenAI TypeScript SDK, run by tests/it/agents/openai.rs.
// Environment and output as in openai_agent.py beside this file, for the modes chat, chat_stream,
// responses and responses_stream; the SDK is found in NODE_MODULES.
import { spawnSync } from 'node:child_process';
import { createRequire } from 'node:module';

const require = createRequire(`${process.env.NODE_MODULES}/`);
const { OpenAI, APIError } = require('openai');

const MODE = process.env.MODE;
const MODEL = process.env.MODEL || 'gpt-6-sol';
const MAX_TURNS = 16;
// Long enough that a provider caches it.
const SYSTEM =
  'You are an agent under test.\n' +
  Array.from(
    { length: 400 },
    (_, n) => `Rule ${n + 1}: when step ${n + 1} is asked for, do it once, report what came out, then go on.`,
  ).join('\n');
const parameters = { type: 'object', properties: { command: { type: 'string' } }, required: ['command'] };
const description = 'Run a command in a shell.';
const client = new OpenAI({ baseURL: process.env.BASE_URL, apiKey: 'sk-test-key-not-a-secret' });
const answers = [];
const results = [];

function shell(args) {
  const { command } = JSON.parse(args);
  const done = spawnSync('bash', ['-c', command], { encoding: 'utf8', timeout: 20000 });
  results.push({ command, code: done.status });
  const output = done.stdout + done.stderr;
  return done.status === 0 ? output : `Error: exit code ${done.status}\n${output}`;
}

function note(text, calls, prompt) {
  answers.push({ text, calls: calls.map((call) => call.arguments), prompt });
}

async function chat() {
  const tools = [{ type: 'function', function: { name: 'bash', description, parameters } }];
  const messages = [
    { role: 'system', content: SYSTEM },
    { role: 'user', content: process.env.PROMPT },
  ];
  for (let turn = 0; turn < MAX_TURNS; turn += 1) {
    const asked = { model: MODEL, messages, tools };
    const answer =
      MODE === 'chat_stream'
        ? await client.chat.completions.stream(asked).finalChatCompletion()
        : await client.chat.completions.create(asked);
    const { message } = answer.choices[0];
    const calls = (message.tool_calls || []).map((call) => ({ id: call.id, arguments: call.function.arguments }));
    note(message.content, calls, answer.usage?.prompt_tokens ?? null);
    if (calls.length === 0) return;
    messages.push(message);
    for (const call of calls) {
      messages.push({ role: 'tool', tool_call_id: call.id, content: shell(call.arguments) });
    }
  }
}

async function responses() {
  const tools = [{ type: 'function', name: 'bash', description, parameters, strict: false }];
  const input = [{ role: 'user', content: process.env.PROMPT }];
  for (let turn = 0; turn < MAX_TURNS; turn += 1) {
    const asked = { model: MODEL, instructions: SYSTEM, tools, input };
    const answer =
      MODE === 'responses_stream'
        ? await client.responses.stream(asked).finalResponse()
        : await client.responses.create(asked);
    const calls = answer.output.filter((item) => item.type === 'function_call');
    note(answer.output_text, calls, answer.usage.input_tokens);
    if (calls.length === 0) return;
    input.push(...answer.output);
    for (const call of calls) {
      input.push({ type: 'function_call_output', call_id: call.call_id, output: shell(call.arguments) });
    }
  }
}

const said = { answers, results };
try {
  await (MODE.startsWith('chat') ? chat() : responses());
} catch (error) {
  if (!(error instanceof APIError)) throw error;
  said.error = error.status ? { status: error.status, body: error.error } : { kind: error.constructor.name };
}
console.log(JSON.stringify(said));
process.exitCode = said.error ? 1 : 0;
