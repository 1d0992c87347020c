"""A model of one small layer, for tests of how a model is run rather than of what it says.

It reads letter by letter, answers in words of its own (`w07 w31 ...`) until it is stopped, and
takes a hundredth of the time of a real one. It can't follow a schema.
"""

import struct
from random import Random

WIDTH = 32  # numbers in a row of a matrix
HIDDEN = 64
HEADS = 2
CONTEXT = 40_000
SPECIAL = (("<unk>", 2), ("<s>", 3), ("</s>", 3))
LETTERS = [chr(code) for code in range(33, 127)]
WORDS = [f"\u2581w{number:02}" for number in range(64)]
NORMAL, BYTE = 1, 6  # kinds of tokens
TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
)

_U32, _I32, _F32, _STRING, _ARRAY = 4, 5, 6, 8, 9


def _string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value):
    """A value of the file's head, with its type."""
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _string(value)
    if isinstance(value, int):
        return struct.pack("<II", _U32, value)
    if isinstance(value, float):
        return struct.pack("<If", _F32, value)
    kind, values = value
    body = (
        b"".join(map(_string, values))
        if kind == _STRING
        else struct.pack(f"<{len(values)}{'f' if kind == _F32 else 'i'}", *values)
    )
    return struct.pack("<IIQ", _ARRAY, kind, len(values)) + body


def _head(tokens, kinds):
    return {
        "general.architecture": "llama",
        "llama.context_length": CONTEXT,
        "llama.embedding_length": WIDTH,
        "llama.block_count": 1,
        "llama.feed_forward_length": HIDDEN,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": WIDTH // HEADS,
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": (_STRING, tokens),
        "tokenizer.ggml.scores": (_F32, [0.0] * len(tokens)),
        "tokenizer.ggml.token_type": (_I32, kinds),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.chat_template": TEMPLATE,
    }


def write_tiny(path):
    """Write the model to a file; the same bytes each time."""
    random = Random(7)
    tokens = [name for name, _ in SPECIAL]
    kinds = [kind for _, kind in SPECIAL]
    for names, kind in (
        ([f"<0x{byte:02X}>" for byte in range(256)], BYTE),
        (["\u2581", *LETTERS, *WORDS], NORMAL),
    ):
        tokens += names
        kinds += [kind] * len(names)

    def rows(count, width, scale=0.5):
        return [random.gauss(0, scale) for _ in range(count * width)]

    silent = len(tokens) - len(WORDS)  # the others are never the most likely
    tensors = {
        "token_embd.weight": (WIDTH, len(tokens), rows(len(tokens), WIDTH)),
        "output_norm.weight": (WIDTH, None, [1.0] * WIDTH),
        "output.weight": (
            WIDTH,
            len(tokens),
            [0.0] * (silent * WIDTH) + rows(len(WORDS), WIDTH, 1.5),
        ),
        "blk.0.attn_norm.weight": (WIDTH, None, [1.0] * WIDTH),
        "blk.0.ffn_norm.weight": (WIDTH, None, [1.0] * WIDTH),
        **{
            f"blk.0.attn_{part}.weight": (WIDTH, WIDTH, rows(WIDTH, WIDTH))
            for part in ("q", "k", "v", "output")
        },
        "blk.0.ffn_gate.weight": (WIDTH, HIDDEN, rows(HIDDEN, WIDTH)),
        "blk.0.ffn_up.weight": (WIDTH, HIDDEN, rows(HIDDEN, WIDTH)),
        "blk.0.ffn_down.weight": (HIDDEN, WIDTH, rows(WIDTH, HIDDEN)),
    }
    head = _head(tokens, kinds)
    file = bytearray(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(head)))
    for name, value in head.items():
        file += _string(name) + _value(value)
    offset = 0
    for name, (width, count, _) in tensors.items():
        sizes = [width] if count is None else [width, count]
        file += _string(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, 0, offset)
        offset += 4 * width * (count or 1)  # all are multiples of 32 bytes, as they must be
    file += bytes(-len(file) % 32)
    for _, _, values in tensors.values():
        file += struct.pack(f"<{len(values)}f", *values)
    path.write_bytes(file)
    return path
