"""A small agent on the OpenAI Python SDK, run by tests/it/agents/openai.rs.

Environment: BASE_URL (with /v1), MODE, PROMPT, MODEL. It prints one JSON object: answers (text,
calls, tokens of the prompt as the SDK shows them), results (of the commands), and the error that
ended it, if one did (exit code 1).
"""

import json
import os
import subprocess
import sys

import openai

MODE = os.environ["MODE"]
MODEL = os.environ.get("MODEL", "gpt-6-sol")
# Long enough that a provider caches it.
SYSTEM = "You are an agent under test.\n" + "\n".join(
    f"Rule {n}: when step {n} is asked for, do it once, report what came out, then go on." for n in range(1, 401)
)
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
ABOUT = "Run a command in a shell."
CHAT_TOOLS = [{"type": "function", "function": {"name": "bash", "description": ABOUT, "parameters": SCHEMA}}]
TOOLS = [{"type": "function", "name": "bash", "description": ABOUT, "parameters": SCHEMA}]
MAX_TURNS = 16

client = openai.OpenAI(base_url=os.environ["BASE_URL"], api_key="sk-test-key-not-a-secret")
answers = []
results = []


def shell(arguments):
    command = json.loads(arguments)["command"]
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=20)
    results.append({"command": command, "code": done.returncode})
    output = done.stdout + done.stderr
    return output if done.returncode == 0 else f"Error: exit code {done.returncode}\n{output}"


def note(text, calls, prompt):
    answers.append({"text": text, "calls": [call[1] for call in calls], "prompt": prompt})


def completion(messages):
    """Text, calls as (id, arguments), and the tokens of the prompt."""
    asked = dict(model=MODEL, messages=messages, tools=CHAT_TOOLS)
    if MODE == "chat":
        answer = client.chat.completions.create(**asked)
        message = answer.choices[0].message
        calls = [(call.id, call.function.arguments) for call in message.tool_calls or []]
        return message.content, calls, answer.usage.prompt_tokens
    if MODE == "chat_usage":
        asked["stream_options"] = {"include_usage": True}
    text, calls, prompt = "", {}, None
    for chunk in client.chat.completions.create(stream=True, **asked):
        if chunk.usage:
            prompt = chunk.usage.prompt_tokens
        if not chunk.choices:
            # Only who asks for it gets a chunk without a choice.
            assert MODE == "chat_usage", chunk
            continue
        delta = chunk.choices[0].delta
        text += delta.content or ""
        for piece in delta.tool_calls or []:
            call = calls.setdefault(piece.index, ["", ""])
            call[0] = piece.id or call[0]
            call[1] += piece.function.arguments or ""
    return text or None, [tuple(call) for call in calls.values()], prompt


def chat():
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": os.environ["PROMPT"]}]
    for _ in range(MAX_TURNS):
        text, calls, prompt = completion(messages)
        note(text, calls, prompt)
        if not calls:
            return
        wire = [{"id": i, "type": "function", "function": {"name": "bash", "arguments": a}} for i, a in calls]
        messages.append({"role": "assistant", "content": text, "tool_calls": wire})
        messages += [{"role": "tool", "tool_call_id": i, "content": shell(a)} for i, a in calls]


def response(**asked):
    asked = dict(model=MODEL, instructions=SYSTEM, tools=TOOLS, **asked)
    if MODE != "responses_stream":
        return client.responses.create(**asked)
    with client.responses.stream(**asked) as stream:
        for _ in stream:
            pass
        return stream.get_final_response()


def responses():
    items = [{"role": "user", "content": os.environ["PROMPT"]}]
    previous = None
    for _ in range(MAX_TURNS):
        held = {"previous_response_id": previous} if previous else {}
        answer = response(input=items, **held)
        calls = [(item.call_id, item.arguments) for item in answer.output if item.type == "function_call"]
        note(answer.output_text, calls, answer.usage.input_tokens)
        if not calls:
            return
        outputs = [{"type": "function_call_output", "call_id": i, "output": shell(a)} for i, a in calls]
        if MODE == "responses_held":
            items, previous = outputs, answer.id
        else:
            items += [item.to_dict() for item in answer.output] + outputs


said = {"answers": answers, "results": results}
try:
    chat() if MODE.startswith("chat") else responses()
except openai.APIStatusError as error:
    said["error"] = {"status": error.status_code, "body": error.body}
except (openai.APIError, RuntimeError) as error:
    said["error"] = {"kind": type(error).__name__}
print(json.dumps(said))
sys.exit(1 if "error" in said else 0)
