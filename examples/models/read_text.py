"""Reads the text of an image with the three models of the package `rapidocr-onnxruntime`, run by AICF: where text is,
which way up, and what it says.

    python read_text.py IMAGE          by default an image with lines of text that is drawn here

The package cuts and scales images and decodes scores; only its sessions are replaced.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from rapidocr_onnxruntime import RapidOCR

import aicf

LINES = ("Static graphs replay", "IR -> compile -> capture", "42 kernels, 1 launch")


class OcrSession:
    """What `rapidocr_onnxruntime` asks of its sessions, answered by AICF: one program for each size of image."""

    def __init__(self, path: Path) -> None:
        self.session = aicf.InferenceSession(path)

    def __call__(self, images: np.ndarray) -> list[np.ndarray]:
        """The outputs for `[N, 3, H, W]`."""
        return list(self.session.run([images]).values())


def reader(**options: float) -> RapidOCR:
    """The package's reader on sessions of AICF."""
    ocr = RapidOCR(**options)
    folder = Path(sys.modules[RapidOCR.__module__].__file__ or "").parent / "models"
    ocr.text_det.infer = OcrSession(folder / "ch_PP-OCRv4_det_infer.onnx")
    ocr.text_cls.infer = OcrSession(folder / "ch_ppocr_mobile_v2.0_cls_infer.onnx")
    ocr.text_rec.session = OcrSession(folder / "ch_PP-OCRv4_rec_infer.onnx")
    return ocr


def draw(lines: Sequence[str], size: int = 32, width: int = 480) -> Image.Image:
    """Black text on white, one line under the other; `size` is the height of the letters in pixels."""
    image = Image.new("RGB", (width, (len(lines) * 2 + 1) * size), "white")
    pen, font = ImageDraw.Draw(image), ImageFont.load_default(size)
    for number, line in enumerate(lines):
        pen.text((size, (2 * number + 1) * size), line, "black", font)
    return image


def read(ocr: RapidOCR, image: Image.Image) -> list[tuple[str, float]]:
    """Each line with its score, from top to bottom."""
    found, _ = ocr(np.asarray(image)[:, :, ::-1])
    return [(text, float(score)) for _, text, score in found or []]


def main() -> None:
    """Prints what is read."""
    image = Image.open(sys.argv[1]).convert("RGB") if len(sys.argv) > 1 else draw(LINES)
    for text, score in read(reader(), image):
        print(f"{score:.3f} {text}")


if __name__ == "__main__":
    main()
