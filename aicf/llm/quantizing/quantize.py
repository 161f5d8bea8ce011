"""`aicf.llm.quantize`: writes a model with weights in blocks, tensor by tensor, and says what that costs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

import numpy as np

from aicf.dialects.block_schemes import SCHEMES, Array
from aicf.errors import ArtifactError, InputMismatch, InvalidIR
from aicf.frontends.gguf.writer import Description, write_gguf
from aicf.frontends.gguf.writer import field as gguf_field
from aicf.llm.loading import load
from aicf.llm.perplexity import perplexity
from aicf.llm.quantizing.encoding import LARGEST, encode
from aicf.llm.quantizing.opening import open_original
from aicf.llm.quantizing.original import Original, OriginalModel
from aicf.llm.quantizing.recipe import ASKED_FOR, FILE_TYPES, Choice, check_keep, check_scheme, choose
from aicf.llm.quantizing.report import Prediction, Quantized, TensorError
from aicf.support.arguments import path_from
from aicf.support.files import reason_of, write_whole
from aicf.support.progress import Step, progress

_VERSION = 2
"""`general.quantization_version`: of the layouts of blocks."""


def quantize(
    model: str | Path,
    output: str | Path,
    scheme: str,
    *,
    keep: Mapping[str, str] = MappingProxyType({}),
    text: str | None = None,
    window: int | None = None,
    threads: int = 1,
) -> Quantized:
    """Writes a model as a GGUF file with weights in blocks.

    Each block gets the factors with the least squared error that a search finds, see `fitting`. The same model gives
    the same bytes. Tensors are read one at a time, and rounded and written piece by piece.

    Args:
        model: A GGUF file, or a Hugging Face folder.
        output: The file to write.
        scheme: Of matrices: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K or Q6_K.
        keep: Other schemes by patterns of tensor names, F16 and F32 among them: `{"blk.*.ffn_down.weight": "Q6_K"}`.
        text: Whose perplexity is measured before and after; `window` and `threads` are for it.
        window: See `perplexity`.
        threads: That the programs which measure it run on.

    Raises:
        ArtifactError: the file cannot be written.
        InputMismatch: there is no such scheme, no tensor that a pattern fits, the text is too short, or there is none
            for what is stated of it.
        InvalidIR, UnsupportedOp: as of `aicf.llm.load`; or a folder has what no file can say.
    """
    if text is None and (window is not None or threads != 1):
        raise InputMismatch(
            "window and threads are for the text whose perplexity is measured; state a text, or leave them out"
        )
    source = path_from(model, InputMismatch, "the model's path")
    target = path_from(output, InputMismatch, "the path of the output")
    check_scheme(scheme, ASKED_FOR, "scheme")
    original = open_original(source)
    check_keep(keep, original.tensors)
    work = _Work(original, scheme, [choose(each, scheme, keep) for each in original.tensors])

    def predicted(path: Path) -> float | None:
        return None if text is None else perplexity(load(path, threads=threads), text, window=window)

    before = predicted(source)
    try:
        write_whole(target, work.write)
    except OSError as error:
        raise ArtifactError(
            f"cannot write the model: {reason_of(error)}; choose a path that can be written",
            location=str(target),
        ) from error
    after = predicted(target)
    return work.report(None if before is None or after is None else Prediction(before, after))


@dataclass
class _Work:
    """One model that is written.

    Args:
        model: As it is.
        scheme: That was asked for.
        choices: Schemes of its tensors.
        errors: Of the tensors that were rounded.
    """

    model: OriginalModel
    scheme: str
    choices: Sequence[Choice]
    errors: list[TensorError] = field(default_factory=list[TensorError])

    @property
    def _descriptions(self) -> list[Description]:
        return [
            Description(each.name, each.shape, choice.scheme)
            for each, choice in zip(self.model.tensors, self.choices, strict=True)
        ]

    def write(self, stream: BinaryIO) -> None:
        """The whole file."""
        fields = [
            *self.model.fields,
            gguf_field("general.file_type", "I", FILE_TYPES[self.scheme]),
            gguf_field("general.quantization_version", "I", _VERSION),
        ]
        with progress("quantizing") as step:
            write_gguf(stream, fields, self._descriptions, self._tensors(step))

    def _tensors(self, step: Step) -> Iterator[Iterator[Array]]:
        """The bytes of every tensor, in pieces."""
        for original, choice in zip(self.model.tensors, self.choices, strict=True):
            step(original.name)
            yield self._pieces(original, choice)

    def _pieces(self, original: Original, choice: Choice) -> Iterator[Array]:
        """The bytes of a tensor: those that are there, if its scheme stays, else each piece rounded and measured."""
        if original.scheme == choice.scheme:
            yield from original.stored()
            return
        off = Difference()
        for numbers in original.pieces():
            if choice.scheme.name != "F32":
                _check(original.name, numbers)
            packed = encode(choice.scheme, numbers)
            off.add(numbers, choice.scheme.rows(packed))
            yield packed
        if off.largest:
            self.errors.append(off.of(original, choice))

    def report(self, prediction: Prediction | None) -> Quantized:
        """What was done."""
        tensors = self.model.tensors
        before = [Description(each.name, each.shape, each.scheme) for each in tensors]
        twice = [each for each in self.errors if SCHEMES[each.was].length > 1]
        notes = [
            f"{len(twice)} tensors were in blocks before, and are rounded a second time: a model of f16 or f32 gives "
            "smaller errors"
        ]
        return Quantized(
            self.scheme,
            sum(prod(each.shape) for each in tensors),
            sum(each.nbytes for each in before),
            sum(each.nbytes for each in self._descriptions),
            tuple(sorted(self.errors, key=lambda each: -each.relative_error)),
            prediction,
            tuple(notes if twice else ()),
        )


def _check(name: str, numbers: Array) -> None:
    """Raises InvalidIR for what no scheme of f16 factors holds."""
    largest = np.abs(numbers).max(initial=0)
    if not largest <= LARGEST:
        raise InvalidIR(
            f"tensor '{name}' has an element of magnitude {largest}, and f16 ends at {LARGEST:g}; keep it f32 "
            f"(--keep '{name}=F32'), or fetch the model again"
        )


@dataclass
class Difference:
    """How far numbers are from what they were, added up in f64."""

    squares: float = 0.0
    total: float = 0.0
    largest: float = 0.0

    def add(self, numbers: Array, rounded: Array) -> None:
        """Adds a piece: f32 of one shape both."""
        off = rounded.astype(np.float64) - numbers
        self.squares += float(np.square(off).sum())
        self.total += float(np.square(numbers, dtype=np.float64).sum())
        self.largest = max(self.largest, float(np.abs(off).max(initial=0)))

    def of(self, original: Original, choice: Choice) -> TensorError:
        """The row of a report."""
        shape, scheme = original.shape, choice.scheme
        return TensorError(
            original.name,
            original.scheme.name,
            scheme.name,
            math.sqrt(self.squares / self.total),
            self.largest,
            Description(original.name, shape, scheme).nbytes,
            choice.because,
        )
