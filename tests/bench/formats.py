"""The formats that are measured: where their requests go, what they look like, and what the provider
answers. Messages is in bodies.py; Chat and Responses have the same sizes and shares of instructions,
tools and history, in the shape in which agents send them."""

import dataclasses
import json
import random
import typing

import bodies

MODEL = "gpt-5.6"
_AGENT = ["user-agent: prefixgate-bench"]
_OPENAI = ["authorization: Bearer sk-bench-key-not-a-secret", *_AGENT]


@dataclasses.dataclass(frozen=True, eq=False)
class Format:
    name: str
    path: str
    headers: list
    # The header by which a client names its session.
    session: str
    # Asks the provider of the bench for the streamed answer: every gateway passes betas on.
    wish: str
    request: typing.Callable
    answer: typing.Callable
    stream: typing.Callable
    # What each right answer holds, also one that was written anew.
    whole_has: str
    stream_has: str


def _turns(rng, room, tool):
    """Calls and results until the room is used up, as (text, id, name, input, result)."""
    turn = 0
    while room > 0:
        turn += 1
        call = f"call_{rng.randrange(10**18):024d}"
        text = bodies.prose(rng, min(room, 200))
        result = bodies.code(rng, min(room, rng.randrange(300, 4_000)))
        room -= len(text) + len(json.dumps(result)) + 300
        yield text, call, tool, json.dumps({"the": str(turn)}), result


def _start(size_name, target, tool):
    """The random source, system text, tools and the size of the rest."""
    rng = random.Random(size_name)
    system = bodies.prose(rng, bodies.SYSTEM[size_name])
    tools = [tool(bodies.tool(rng, n, target < 5_000)) for n in range(bodies.TOOLS[size_name])]
    return rng, system, tools, target - len(system) - len(json.dumps(tools)) - 500


def _dump(body):
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def _chat_request(size_name, stream):
    def tool(t):
        function = {"name": t["name"], "description": t["description"], "parameters": t["input_schema"]}
        return {"type": "function", "function": function}

    rng, system, tools, room = _start(size_name, bodies.SIZES[size_name], tool)
    messages = [{"role": "system", "content": system}, {"role": "user", "content": bodies.prose(rng, 40)}]
    for text, call, name, given, result in _turns(rng, room, tools[0]["function"]["name"]):
        asked = {"id": call, "type": "function", "function": {"name": name, "arguments": given}}
        messages += [
            {"role": "assistant", "content": text, "tool_calls": [asked]},
            {"role": "tool", "tool_call_id": call, "content": result},
        ]
    messages.append({"role": "user", "content": f"and now {bodies.MARK}"})
    body = {"model": MODEL, "messages": messages, "tools": tools, "stream": stream}
    # Without it the gateway asks, and the answer would not be that of the provider.
    return _dump(body | ({"stream_options": {"include_usage": True}} if stream else {}))


def _responses_request(size_name, stream):
    def tool(t):
        schema = {"parameters": t["input_schema"], "strict": False}
        return {"type": "function", "name": t["name"], "description": t["description"], **schema}

    def said(role, kind, text):
        return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}

    rng, system, tools, room = _start(size_name, bodies.SIZES[size_name], tool)
    items = [said("user", "input_text", bodies.prose(rng, 40))]
    for text, call, name, given, result in _turns(rng, room, tools[0]["name"]):
        items += [
            said("assistant", "output_text", text),
            {"type": "function_call", "call_id": call, "name": name, "arguments": given},
            {"type": "function_call_output", "call_id": call, "output": result},
        ]
    items.append(said("user", "input_text", f"and now {bodies.MARK}"))
    return _dump(
        {
            "model": MODEL,
            "instructions": system,
            "input": items,
            "tools": tools,
            "tool_choice": "auto",
            "parallel_tool_calls": True,
            "store": False,
            "stream": stream,
        }
    )


_CHAT_USAGE = {
    "prompt_tokens": 31_652,
    "completion_tokens": 187,
    "total_tokens": 31_839,
    "prompt_tokens_details": {"cached_tokens": 31_000, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 64, "audio_tokens": 0},
}
_RESPONSES_USAGE = {
    "input_tokens": 31_652,
    "input_tokens_details": {"cached_tokens": 31_000},
    "output_tokens": 187,
    "output_tokens_details": {"reasoning_tokens": 64},
    "total_tokens": 31_839,
}
_CALL = {"name": "file_0", "arguments": '{"path":"src/main.rs"}'}


def _chat_answer():
    call = {"id": "call_01", "type": "function", "function": _CALL}
    message = {"role": "assistant", "content": bodies.TEXT * 4, "tool_calls": [call], "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "tool_calls"}
    return json.dumps(_chat_head("chat.completion") | {"choices": [choice], "usage": _CHAT_USAGE})


def _chat_head(kind):
    return {"id": "chatcmpl-01", "object": kind, "created": 1_790_000_000, "model": MODEL}


def _chat_stream():
    def chunk(choices, usage=None):
        return f"data: {json.dumps(_chat_head('chat.completion.chunk') | {'choices': choices, 'usage': usage})}\n\n"

    def piece(delta, reason=None):
        return chunk([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}])

    texts = piece({"content": bodies.TEXT}) * 20
    begin = piece({"role": "assistant", "content": "", "refusal": None})
    return begin + texts + piece({}, "stop") + chunk([], _CHAT_USAGE) + "data: [DONE]\n\n"


def _response(status, output, usage):
    head = {"id": "resp_01", "object": "response", "created_at": 1_790_000_000, "status": status}
    fields = {"error": None, "incomplete_details": None, "model": MODEL, "output": output}
    return head | fields | {"parallel_tool_calls": True, "store": False, "usage": usage}


def _message(status, text):
    content = [{"type": "output_text", "text": text, "annotations": []}] if text else []
    return {"id": "msg_01", "type": "message", "status": status, "role": "assistant", "content": content}


def _responses_answer():
    call = {"id": "fc_01", "type": "function_call", "status": "completed", "call_id": "call_01", **_CALL}
    output = [_message("completed", bodies.TEXT * 4), call]
    return json.dumps(_response("completed", output, _RESPONSES_USAGE))


def _responses_stream():
    events = []

    def event(kind, **fields):
        data = json.dumps({"type": kind, "sequence_number": len(events), **fields})
        events.append(f"event: {kind}\ndata: {data}\n\n")

    place = {"item_id": "msg_01", "output_index": 0, "content_index": 0}
    part = {"type": "output_text", "annotations": []}
    text = bodies.TEXT * 20
    done = _message("completed", text)
    event("response.created", response=_response("in_progress", [], None))
    event("response.in_progress", response=_response("in_progress", [], None))
    event("response.output_item.added", output_index=0, item=_message("in_progress", ""))
    event("response.content_part.added", **place, part=part | {"text": ""})
    for _ in range(20):
        event("response.output_text.delta", **place, delta=bodies.TEXT)
    event("response.output_text.done", **place, text=text)
    event("response.content_part.done", **place, part=part | {"text": text})
    event("response.output_item.done", output_index=0, item=done)
    event("response.completed", response=_response("completed", [done], _RESPONSES_USAGE))
    return "".join(events)


MESSAGES = Format(
    "Messages",
    "/v1/messages",
    [
        "authorization: Bearer sk-ant-api03-bench-key-not-a-secret",
        "anthropic-version: 2023-06-01",
        *_AGENT,
    ],
    "x-claude-code-session-id",
    "anthropic-beta: bench-stream",
    bodies.request,
    bodies.answer,
    bodies.stream,
    "toolu_01",
    "message_stop",
)
CHAT = Format(
    "Chat",
    "/v1/chat/completions",
    _OPENAI,
    "x-session-id",
    "openai-beta: bench-stream",
    _chat_request,
    _chat_answer,
    _chat_stream,
    "call_01",
    "[DONE]",
)
RESPONSES = Format(
    "Responses",
    "/v1/responses",
    _OPENAI,
    "x-session-id",
    "openai-beta: bench-stream",
    _responses_request,
    _responses_answer,
    _responses_stream,
    "call_01",
    "response.completed",
)
ALL = [MESSAGES, CHAT, RESPONSES]
