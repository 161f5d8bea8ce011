"""Searches pages of text by meaning: python examples/search.py FOLDER "how do I save a model?" [PAGE.md ...]

FOLDER has an encoder of sentences, such as all-MiniLM-L6-v2 from Hugging Face. Pages are those of the documentation, if
none are given.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

import aicf.llm

DOCS = Path(__file__).parents[1] / "docs"
BEST = 3


def paragraphs(page: Path) -> Iterator[str]:
    """The paragraphs of a page, each with the heading that it is under."""
    heading = page.stem
    for block in page.read_text("utf-8").split("\n\n"):
        text = " ".join(block.split())
        if text.startswith("#"):
            heading = text.lstrip("# ")
        elif text:
            yield f"{heading}: {text}"


def search(folder: Path, question: str, pages: Sequence[Path]) -> list[tuple[float, Path, str]]:
    """The paragraphs that are closest to a question: similarity, page and text, the best first."""
    found = [(page, text) for page in pages for text in paragraphs(page)]
    encoder = aicf.llm.load_encoder(folder)
    vectors = encoder.embed([text for _, text in found])
    similarities = vectors @ encoder.embed([question])[0]
    return [(float(similarities[at]), *found[at]) for at in np.argsort(-similarities)[:BEST]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("question")
    parser.add_argument("pages", type=Path, nargs="*", default=sorted(DOCS.glob("*.md")))
    given = parser.parse_args()
    for similarity, page, text in search(given.folder, given.question, given.pages):
        print(f"{similarity:.2f}  {page.name}  {text[:100]}")


if __name__ == "__main__":
    main()
