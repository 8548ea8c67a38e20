"""Agent request bodies and the provider's answers, made up but of the real shape and size."""

import json
import random

# Replaced in each request by something new of the same length (see load.rs).
MARK = "@@NEWEST-MESSAGE@@"
MODEL = "claude-opus-5"
SIZES = {"1 kB": 1_000, "10 kB": 10_000, "100 kB": 100_000, "1 MB": 1_000_000}
# How much of a body is system text and tools, as agents have it: the rest is history.
SYSTEM = {"1 kB": 450, "10 kB": 3_000, "100 kB": 9_000, "1 MB": 9_000}
TOOLS = {"1 kB": 1, "10 kB": 4, "100 kB": 20, "1 MB": 20}

_WORDS = (
    "the of to and a in is it for as with on file test line change function return value error "
    "module build run read write check cache token request answer stream byte header path"
).split()


def prose(rng, size):
    words, length = [], 0
    while length < size:
        word = rng.choice(_WORDS)
        words.append(word)
        length += len(word) + 1
    return " ".join(words)[:size]


def code(rng, size):
    """Text as tools return it: short lines, quotes, tabs, so that JSON has much to escape."""
    lines, length = [], 0
    while length < size:
        name, value = rng.choice(_WORDS), rng.randrange(10**6)
        line = f'\tlet {name}_{value} = {name}("{rng.choice(_WORDS)}", {value})?;\n'
        lines.append(line)
        length += len(line) + 6
    return "".join(lines)


def tool(rng, number, small):
    name = f"{rng.choice(_WORDS)}_{number}"
    properties = {
        word: {"type": "string", "description": prose(rng, 30 if small else 120)}
        for word in rng.sample(_WORDS, 1 if small else 5)
    }
    schema = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    return {"name": name, "description": prose(rng, 40 if small else 300), "input_schema": schema}


def request(size_name, stream):
    """A Messages request of about that size, the keys in the order in which Claude Code has them."""
    rng = random.Random(size_name)
    target = SIZES[size_name]
    small = target < 5_000
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": [{"type": "text", "text": prose(rng, 40)}]}],
        "system": [{"type": "text", "text": prose(rng, SYSTEM[size_name])}],
        "tools": [tool(rng, n, small) for n in range(TOOLS[size_name])],
        "max_tokens": 8192,
        "stream": stream,
    }
    newest = {"type": "text", "text": f"and now {MARK}"}
    turn, length = 0, len(json.dumps(body)) + len(json.dumps(newest)) + (0 if small else 400)
    while length < target:
        turn += 1
        room = target - length
        call = f"toolu_{rng.randrange(10**18):024d}"
        asked = [
            {"type": "text", "text": prose(rng, min(room, 200))},
            {"type": "tool_use", "id": call, "name": body["tools"][0]["name"], "input": {"the": str(turn)}},
        ]
        result = code(rng, min(room, rng.randrange(300, 4_000)))
        got = [{"type": "tool_result", "tool_use_id": call, "content": result}]
        body["messages"] += [
            {"role": "assistant", "content": asked},
            {"role": "user", "content": got},
        ]
        length += len(json.dumps(asked)) + len(json.dumps(got)) + 60
    last = body["messages"][-1]["content"]
    last.append(newest)
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


USAGE = {
    "input_tokens": 12,
    "cache_creation_input_tokens": 640,
    "cache_read_input_tokens": 31_000,
    "cache_creation": {"ephemeral_5m_input_tokens": 640, "ephemeral_1h_input_tokens": 0},
    "output_tokens": 187,
    "service_tier": "standard",
}
TEXT = "The test fails since the header is read before the path is checked; I change the order. "


def answer():
    """A whole answer with text and a tool call."""
    content = [
        {"type": "text", "text": TEXT * 4},
        {"type": "tool_use", "id": "toolu_01", "name": "file_0", "input": {"path": "src/main.rs"}},
    ]
    return json.dumps(
        {
            "id": "msg_01",
            "type": "message",
            "role": "assistant",
            "model": MODEL,
            "content": content,
            "stop_reason": "tool_use",
            "stop_sequence": None,
            "usage": USAGE,
        }
    )


def _event(kind, **fields):
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"


def stream_start():
    """The first event of a stream."""
    message = json.loads(answer())
    message.update(content=[], stop_reason=None, usage={**USAGE, "output_tokens": 1})
    return _event("message_start", message=message)


def stream_delta():
    """One of the many events in the middle."""
    return _event("content_block_delta", index=0, delta={"type": "text_delta", "text": TEXT})


def stream_end():
    """The last events."""
    delta = {"stop_reason": "end_turn", "stop_sequence": None}
    return (
        _event("content_block_stop", index=0)
        + _event("message_delta", delta=delta, usage=USAGE)
        + _event("message_stop")
    )


def stream():
    """A whole streamed answer."""
    block = _event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    return stream_start() + block + stream_delta() * 20 + stream_end()
