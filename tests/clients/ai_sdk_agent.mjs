// An agent on the Vercel AI SDK with an OpenAI model, run by tests/it/agents/openai.rs.
// Environment: BASE_URL (with /v1), MODE (chat or responses), PROMPT; the SDK is found in NODE_MODULES.
import { spawnSync } from 'node:child_process';
import { createRequire } from 'node:module';

const require = createRequire(`${process.env.NODE_MODULES}/`);
const { streamText, tool, stepCountIs } = require('ai');
const { createOpenAI } = require('@ai-sdk/openai');
const { z } = require('zod');

const results = [];
const bash = tool({
  description: 'Run a command in a shell.',
  inputSchema: z.object({ command: z.string() }),
  execute: async ({ command }) => {
    const done = spawnSync('bash', ['-c', command], { encoding: 'utf8', timeout: 20000 });
    results.push({ command, code: done.status });
    const output = done.stdout + done.stderr;
    return done.status === 0 ? output : `Error: exit code ${done.status}\n${output}`;
  },
});
const system =
  'You are an agent under test.\n' +
  Array.from(
    { length: 400 },
    (_, n) => `Rule ${n + 1}: when step ${n + 1} is asked for, do it once, report what came out, then go on.`,
  ).join('\n');
const openai = createOpenAI({ baseURL: process.env.BASE_URL, apiKey: 'sk-test-key-not-a-secret' });
const model = process.env.MODE === 'chat' ? openai.chat('gpt-6-sol') : openai('gpt-6-sol');
const answer = streamText({ model, system, prompt: process.env.PROMPT, tools: { bash }, stopWhen: stepCountIs(16) });
const steps = await answer.steps;
console.log(JSON.stringify({ answers: steps.map((step) => step.text), results }));
