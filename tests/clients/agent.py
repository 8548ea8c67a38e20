"""A small agent on the Anthropic Python SDK, run by tests/it/agents.rs.

Environment: BASE_URL; PROMPT (its markers steer the simulated provider); MODE, one of
  create        a hand-written tool loop, whole answers
  stream        the same, streamed
  tools         the SDK's tool runner (message threads, whole answers)
  tools_stream  the SDK's tool runner, streamed
  count         count_tokens and the model list

Prints one JSON line, the outcome as the program using the SDK sees it, without ids and times:
{"answers": [{"stop_reason", "text", "calls", "usage"}], "results": [...], "error": null | {...}}
"""

import json
import os
import subprocess
import sys

import anthropic
from anthropic import Anthropic, beta_tool

MODE = os.environ["MODE"]
PROMPT = os.environ["PROMPT"]
MODEL = os.environ.get("MODEL", "claude-opus-5")
MAX_TURNS = 16
# Long enough that a provider caches it (the minimum of the common models is 4,096 tokens or less).
SYSTEM = "You are an agent under test.\n" + "\n".join(
    f"Rule {n}: when step {n} is asked for, do it once, report what came out, then go on."
    for n in range(1, 401)
)
BASH = {
    "name": "bash",
    "description": "Run a command in a shell.",
    "input_schema": {
        "type": "object",
        "properties": {"command": {"type": "string"}},
        "required": ["command"],
    },
}

answers, results = [], []


def shell(command):
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=20
    )
    results.append({"command": command, "code": done.returncode})
    return done.returncode, done.stdout + done.stderr


def note(message):
    usage = message.usage
    answers.append(
        {
            "stop_reason": message.stop_reason,
            "text": "".join(b.text for b in message.content if b.type == "text"),
            "calls": [
                {"name": b.name, "input": b.input}
                for b in message.content
                if b.type == "tool_use"
            ],
            "usage": {"output": usage.output_tokens},
        }
    )


def loop(client):
    messages = [{"role": "user", "content": PROMPT}]
    for _ in range(MAX_TURNS):
        request = dict(
            model=MODEL, max_tokens=1024, system=SYSTEM, tools=[BASH], messages=messages
        )
        if MODE == "create":
            message = client.messages.create(**request)
        else:
            with client.messages.stream(**request) as stream:
                for _ in stream.text_stream:
                    pass
                message = stream.get_final_message()
        note(message)
        messages.append({"role": "assistant", "content": message.content})
        calls = [b for b in message.content if b.type == "tool_use"]
        if not calls:
            return
        outputs = []
        for call in calls:
            code, text = shell(str(call.input.get("command", "false")))
            outputs.append(
                {
                    "type": "tool_result",
                    "tool_use_id": call.id,
                    "content": text,
                    "is_error": code != 0,
                }
            )
        messages.append({"role": "user", "content": outputs})


@beta_tool
def bash(command: str) -> str:
    """Run a command in a shell.

    Args:
        command: the command
    """
    code, text = shell(command)
    if code:
        raise RuntimeError(text)
    return text


def runner(client):
    run = client.beta.messages.tool_runner(
        model=MODEL,
        max_tokens=1024,
        system=SYSTEM,
        tools=[bash],
        messages=[{"role": "user", "content": PROMPT}],
        max_iterations=MAX_TURNS,
        stream=MODE == "tools_stream",
    )
    for message in run:
        note(message.get_final_message() if MODE == "tools_stream" else message)


def count(client):
    counted = client.messages.count_tokens(
        model=MODEL, system=SYSTEM, messages=[{"role": "user", "content": PROMPT}]
    )
    models = sorted(m.id for m in client.models.list())
    answers.append({"counted": counted.input_tokens > 0, "models": models})


error = None
try:
    # A key that could be real by its shape; the tests look for it where it must not appear.
    client = Anthropic(
        base_url=os.environ["BASE_URL"],
        api_key="sk-ant-api03-test-key-not-a-secret",
        timeout=30,
    )
    if MODE in ("create", "stream"):
        loop(client)
    elif MODE in ("tools", "tools_stream"):
        runner(client)
    elif MODE == "count":
        count(client)
    else:
        sys.exit(f"unknown MODE {MODE}")
except anthropic.APIStatusError as caught:
    body = caught.body if isinstance(caught.body, dict) else {}
    error = {
        "class": type(caught).__name__,
        "status": caught.status_code,
        "body": body.get("error"),
    }
except Exception as caught:  # noqa: BLE001, whatever the SDK raises is the outcome
    error = {"class": type(caught).__module__ + "." + type(caught).__name__, "status": None}

print(json.dumps({"answers": answers, "results": results, "error": error}, sort_keys=True))
sys.exit(1 if error else 0)
