"""Damages of JSON, text, bytes and safetensors, drawn from a seeded generator: what an edit or a bad disk may leave."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

ODD_INTS = (
    0,
    1,
    -1,
    2,
    7,
    63,
    64,
    1023,
    4096,
    1 << 20,
    (1 << 31) - 1,
    1 << 31,
    1 << 32,
    1 << 40,
    (1 << 63) - 1,
    1 << 63,
)
ODD_TEXTS = (
    "",
    "x",
    "f32",
    "\n",
    "\0",
    "\ud800",
    "é\u2028",
    "'",
    "%s{}",
    "aicf_x",
    "A" * 200_000,
    "1" * 5000,
)


def odd_value(random: Random) -> Any:
    """A JSON value that few fields expect."""
    kind = random.randrange(9)
    match kind:
        case 0:
            return None
        case 1:
            return random.random() < 0.5
        case 2 | 3:
            return random.choice((1, -1)) * random.choice((*ODD_INTS, 10**30, 10**400))
        case 4:
            return random.choice((0.5, -0.0, 1e308, float("inf"), float("nan")))
        case 5:
            return random.choice(ODD_TEXTS)
        case 6:
            return []
        case 7:
            return {}
        case _:
            return [odd_value(random) for _ in range(random.randrange(4))]


def damaged_json(value: Any, random: Random) -> str:
    """The text of a JSON value with one or a few damages; some of them to the text itself."""
    if random.random() < 0.05:
        return _deep(random)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        _damage_tree(value, random)
    text = json.dumps(value)
    return damaged_text(text, random) if random.random() < 0.05 else text


def _deep(random: Random) -> str:
    depth = random.choice((1000, 100_000))
    opening, closing = random.choice((("[", "]"), ('{"a":', "}")))
    return opening * depth + "1" + closing * random.choice((0, depth))


def _damage_tree(tree: Any, random: Random) -> None:
    holder, key = _pick(tree, random)
    if holder is None:
        return
    old = holder[key]
    match random.randrange(8):
        case 0 | 1:
            holder[key] = odd_value(random)
        case 2:
            del holder[key]
        case 3:
            _repeat(holder, key, random)
        case 4 | 5:
            holder[key] = _near(old, random)
        case 6:
            _exchange(tree, holder, key, random)
        case _:
            if isinstance(holder, list):
                other = random.randrange(len(holder))
                holder[key], holder[other] = holder[other], old
            else:
                _exchange(tree, holder, key, random)


def _pick(tree: Any, random: Random) -> tuple[Any, Any]:
    """A container of the tree and a key of it; deep ones as likely as others."""
    holder, key = None, None
    while isinstance(tree, dict | list) and tree:
        holder = tree
        key = random.choice(list(tree)) if isinstance(tree, dict) else random.randrange(len(tree))
        tree = holder[key]
        if random.random() < 0.12:
            break
    return holder, key


def _repeat(holder: Any, key: Any, random: Random) -> None:
    if isinstance(holder, list):
        holder.insert(key, holder[key])
    else:
        holder[random.choice(("extra", f"{key}_", ""))] = holder[key]


def _near(value: Any, random: Random) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return random.choice((value + 1, value - 1, -value, value * 2, value // 2, value + 64, 0))
    if isinstance(value, str):
        return random.choice((value + "x", value[1:], value[::-1], value.upper()))
    if isinstance(value, float):
        return random.choice((value * 2, -value, 0.0))
    return odd_value(random)


def _exchange(tree: Any, holder: Any, key: Any, random: Random) -> None:
    """Two values of one field in two places change places, as the entries of two programs."""
    found: list[tuple[Any, Any]] = []
    _same_fields(tree, key, type(holder[key]), found)
    if found:
        other, at = random.choice(found)
        holder[key], other[at] = other[at], holder[key]


def _same_fields(tree: Any, key: Any, kind: type, found: list[tuple[Any, Any]]) -> None:
    if isinstance(tree, dict | list):
        items = tree.items() if isinstance(tree, dict) else enumerate(tree)
        for at, value in items:
            if at == key and type(value) is kind:
                found.append((tree, at))
            _same_fields(value, key, kind, found)


def damaged_text(text: str, random: Random) -> str:
    """Program text with a line, a number, a word or a few characters damaged."""
    lines = text.split("\n")
    at = random.randrange(len(lines))
    match random.randrange(6):
        case 0:
            del lines[at]
        case 1:
            lines.insert(random.randrange(len(lines)), lines[at])
        case 2:
            other = random.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        case 3 | 4:
            lines[at] = _damaged_word(lines[at], random)
        case _:
            start = random.randrange(len(text) + 1)
            return text[:start] + random.choice(ODD_TEXTS) + text[start + random.randrange(20) :]
    return "\n".join(lines)


def _damaged_word(line: str, random: Random) -> str:
    """One run of digits, or of letters, replaced."""
    wanted = str.isdigit if random.random() < 0.7 else str.isalpha
    runs = _runs(line, wanted)
    if not runs:
        return line + random.choice((" }", "{", '"', " %x"))
    start, end = random.choice(runs)
    new = (
        str(random.choice(ODD_INTS))
        if wanted is str.isdigit
        else random.choice(("f16", "i64", "x", "output"))
    )
    return line[:start] + new + line[end:]


def _runs(line: str, wanted: Callable[[str], bool]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    start = None
    for column, character in enumerate(line + "\n"):
        if wanted(character):
            start = column if start is None else start
        elif start is not None:
            runs.append((start, column))
            start = None
    return runs


def damaged_bytes(data: bytes, random: Random) -> bytes:
    """Bytes cut, flipped, or overwritten somewhere."""
    start = random.randrange(len(data) + 1)
    match random.randrange(4):
        case 0:
            return data[:start]
        case 1:
            return data + random.randbytes(random.choice((1, 8, 64)))
        case _:
            junk = random.randbytes(random.choice((1, 1, 4, 8)))
            return data[:start] + junk + data[start + len(junk) :]


def damaged_tensors(data: bytes, random: Random) -> bytes:
    """A safetensors file whose header, its length, or whose values are damaged."""
    length = int.from_bytes(data[:8], "little")
    header, values = data[8 : 8 + length], data[8 + length :]
    match random.randrange(6):
        case 0:
            return damaged_bytes(data, random)
        case 1:
            odd = random.choice((*ODD_INTS, length - 1, length + 1)) % (1 << 64)
            return odd.to_bytes(8, "little") + header + values
        case 2:
            changed = bytearray(values)
            for _ in range(random.choice((1, 8)) if values else 0):
                changed[random.randrange(len(changed))] = random.randrange(256)
            return data[: 8 + length] + bytes(changed)
        case _:
            text = damaged_json(json.loads(header), random).encode("utf-8", "surrogatepass")
            return len(text).to_bytes(8, "little") + text + values
