#!/usr/bin/env python3
"""A server of llama.cpp with a tiny model of random weights, which is made here.

The server is llama.cpp's own (the PyPI package xllamacpp has it compiled in); only the model is
written by this script: one layer, a vocabulary of letters and bytes, a template for chats with
tools. What it says has no sense, but the same request gives the same answer, and all else (HTTP,
streams, templates, grammars of tool calls, its cache and its counts) is the real thing.

    local_model.py [--embeddings]

It prints `listening URL` when it serves, and ends when its standard input does.
"""
import argparse
import os
import random
import struct
import sys
import tempfile

import xllamacpp

WIDTH, HEADS, INNER, CONTEXT = 32, 2, 64, 4096
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
TEMPLATE = (
    "{%- if tools %}{{ '<tools>' }}{% for tool in tools %}{{ '\n' + (tool | tojson) }}{% endfor %}"
    "{{ '\n</tools>\nCall them as <tool_call>{\"name\": ..., \"arguments\": ...}</tool_call>\n' }}{% endif -%}"
    "{%- for message in messages %}{{ '<s>' + message.role + ': ' }}"
    "{%- if message.content %}{{ message.content }}{% endif %}"
    "{%- if message.tool_calls %}{% for call in message.tool_calls %}"
    "{{ '<tool_call>\n{\"name\": \"' + call.function.name + '\", \"arguments\": ' }}"
    "{{ call.function.arguments | tojson }}{{ '}\n</tool_call>' }}"
    "{% endfor %}{% endif %}{{ '</s>\n' }}"
    "{%- endfor %}{%- if add_generation_prompt %}{{ '<s>assistant: ' }}{% endif %}"
)


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def pair(key, value):
    """A member of the head of a GGUF file."""
    if isinstance(value, bool):
        return text(key) + struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return text(key) + struct.pack("<II", 4, value)
    if isinstance(value, float):
        return text(key) + struct.pack("<If", 6, value)
    if isinstance(value, str):
        return text(key) + struct.pack("<I", 8) + text(value)
    kind, pack = {
        str: (8, text),
        float: (6, lambda v: struct.pack("<f", v)),
        int: (5, lambda v: struct.pack("<i", v)),
    }[type(value[0])]
    head = struct.pack("<IIQ", 9, kind, len(value))
    return text(key) + head + b"".join(pack(v) for v in value)


def vocabulary():
    tokens = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)]
    tokens += [(f"<0x{byte:02X}>", BYTE) for byte in range(256)]
    tokens += [(chr(code), NORMAL) for code in range(33, 127)] + [("\u2581", NORMAL)]
    return tokens


def model(path):
    tokens = vocabulary()
    head = [
        ("general.architecture", "llama"),
        ("general.name", "tiny"),
        ("llama.context_length", CONTEXT),
        ("llama.embedding_length", WIDTH),
        ("llama.block_count", 1),
        ("llama.feed_forward_length", INNER),
        ("llama.attention.head_count", HEADS),
        ("llama.attention.layer_norm_rms_epsilon", 1e-5),
        ("llama.vocab_size", len(tokens)),
        ("tokenizer.ggml.model", "llama"),
        ("tokenizer.ggml.tokens", [token for token, _ in tokens]),
        ("tokenizer.ggml.scores", [-float(place) for place in range(len(tokens))]),
        ("tokenizer.ggml.token_type", [kind for _, kind in tokens]),
        ("tokenizer.ggml.bos_token_id", 1),
        ("tokenizer.ggml.eos_token_id", 2),
        ("tokenizer.ggml.add_bos_token", False),
        ("tokenizer.ggml.add_space_prefix", False),
        ("tokenizer.chat_template", TEMPLATE),
    ]
    chance = random.Random(7)

    def weights(*dims):
        count = 1
        for size in dims:
            count *= size
        return dims, [chance.gauss(0, 0.3) for _ in range(count)]

    def said():
        """Only letters are said of the model's own accord: bytes would make broken UTF-8."""
        dims, rows = weights(WIDTH, len(tokens))
        for place, (_, kind) in enumerate(tokens):
            if kind != NORMAL:
                rows[place * WIDTH:(place + 1) * WIDTH] = [0.0] * WIDTH
        return dims, rows

    ones = ((WIDTH,), [1.0] * WIDTH)
    tensors = [
        ("token_embd.weight", weights(WIDTH, len(tokens))),
        ("output_norm.weight", ones),
        ("output.weight", said()),
        ("blk.0.attn_norm.weight", ones),
        ("blk.0.attn_q.weight", weights(WIDTH, WIDTH)),
        ("blk.0.attn_k.weight", weights(WIDTH, WIDTH)),
        ("blk.0.attn_v.weight", weights(WIDTH, WIDTH)),
        ("blk.0.attn_output.weight", weights(WIDTH, WIDTH)),
        ("blk.0.ffn_norm.weight", ones),
        ("blk.0.ffn_gate.weight", weights(WIDTH, INNER)),
        ("blk.0.ffn_up.weight", weights(WIDTH, INNER)),
        ("blk.0.ffn_down.weight", weights(INNER, WIDTH)),
    ]
    out = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(head))
    out += b"".join(pair(key, value) for key, value in head)
    data = b""
    for name, (dims, values) in tensors:
        out += text(name) + struct.pack("<I", len(dims))
        out += b"".join(struct.pack("<Q", size) for size in dims)
        out += struct.pack("<IQ", 0, len(data))
        data += struct.pack(f"<{len(values)}f", *values)
        data += bytes(-len(data) % 32)
    out += bytes(-len(out) % 32)
    with open(path, "wb") as file:
        file.write(out + data)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--embeddings", action="store_true")
    arguments = arguments.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "tiny.gguf")
        model(path)
        params = xllamacpp.CommonParams()
        params.model.path = path
        params.model_alias = ["tiny"]
        params.hostnames = ["127.0.0.1"]
        params.port = 0
        params.n_ctx = CONTEXT
        params.n_parallel = 1
        params.n_threads_http = 4
        params.cpuparams.n_threads = 1
        params.cpuparams_batch.n_threads = 1
        params.use_jinja = True
        if arguments.embeddings:
            params.embedding = True
            params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
        params.warmup = False
        params.sampling.temp = 0.0
        server = xllamacpp.Server(params)
        print("listening", server.listening_address, flush=True)
        sys.stdin.read()
    # The server's own threads need not be waited for.
    os._exit(0)


main()
