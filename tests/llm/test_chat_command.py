"""`aicf chat` as a process, on a small model with a tokenizer and a template of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tests.llm.letters import ALPHABET
from tests.llm.small_llama import small_llama

pytest.importorskip("tokenizers")
pytestmark = pytest.mark.peers

RNG = np.random.default_rng(227)
END = "<|end|>"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose tokens are characters, in the alphabet of byte-level BPE."""
    tokens = [*ALPHABET.replace(" ", "\u0120").replace("\n", "\u010a")[:-2], "th", END]
    path = tmp_path_factory.mktemp("chat") / "small.gguf"
    fields = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * 79 + [3],
        "tokenizer.ggml.merges": ["t h"],
        "tokenizer.ggml.eos_token_id": 79,
        "tokenizer.chat_template": "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}",
    }
    path.write_bytes(small_llama(RNG, layers=1, is_tied=True).file(**fields))
    return path


class Conversation(NamedTuple):
    """A process that has ended, and the folder where it has put the compiled model."""

    done: subprocess.CompletedProcess[str]
    cache: Path


@pytest.fixture(scope="module")
def conversation(model: Path) -> Conversation:
    cache = model.parent / "cache"
    options = [str(model), "--max-tokens", "9", "--seed", "3", "--cache", str(cache)]
    lines = "with the\n/reset\nwith the\n" + "x" * 80 + "\n/stats\n"
    command = [sys.executable, "-m", "aicf.tools.aicf_cli", "chat", *options]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=False, timeout=300)
    return Conversation(done, cache)


def test_a_conversation_in_a_process(conversation: Conversation) -> None:
    """The second conversation is the first one, and as long as was asked; errors end answers alone."""
    done = conversation.done
    assert done.returncode == 0
    greeting, first, anew, second, *rest = done.stdout.split("> ")
    assert greeting == "small, 64 positions. /help says what a line may be.\n"
    assert anew == "(a new conversation)\n" and first == second and len(first) > 2
    assert re.match(r"prompt: 1 token in \d\.\d\d s \(.*\), 12 reused\nanswer: 8 tokens", rest[1])
    assert re.search(
        r"^error: the conversation has \d+ tokens and the cache 64 positions", done.stderr, re.MULTILINE
    )


WARM = """
import sys
from aicf.tools.aicf_cli import main
status = main(["chat", *sys.argv[1:]])
print(*sorted(sys.modules), file=sys.stderr)
sys.exit(status)
"""
UNUSED = [
    "aicf.backends.cpu.codegen",
    "aicf.llm.quantizing",
    "aicf.llm.sentences",
    "aicf.tools.cli.bench_command",
    "numba",
    "numpy.ma",
    "rich",
    "xdsl",
]
"""Modules that a chat has no use for once its model is compiled."""


def test_a_warm_start_imports_nothing_that_it_does_not_use(model: Path, conversation: Conversation) -> None:
    """It says what the process that compiled has said."""
    options = [str(model), "--max-tokens", "9", "--seed", "3", "--cache", str(conversation.cache)]
    command = [sys.executable, "-c", WARM, *options, "--prompt", "with the"]
    warm = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert warm.returncode == 0 and warm.stdout == conversation.done.stdout.split("> ")[1]
    imported = set(warm.stderr.split())
    assert [name for name in UNUSED if name in imported] == []
