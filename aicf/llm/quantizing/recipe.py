"""Which scheme each tensor of a model gets.

As llama.cpp does it: matrices get the scheme that was asked for, the embedding and the output, in which errors weigh
most, one of more bits; vectors, learned positions and routers of experts keep the scheme that they have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from aicf.dialects.block_schemes import SCHEMES, Scheme
from aicf.errors import InputMismatch, did_you_mean
from aicf.llm.quantizing.encoding import ENCODED, bits_of
from aicf.llm.quantizing.original import Original

ASKED_FOR = tuple(name for name in ENCODED if SCHEMES[name].length > 1)
"""Schemes of `--scheme`."""

FILE_TYPES: Mapping[str, int] = {
    "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q4_K": 14, "Q5_K": 16, "Q6_K": 18,
}  # fmt: skip
"""What `general.file_type` says of a file of mostly that scheme."""

_FALLBACKS: Mapping[str, str] = {"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}
"""For rows that are no blocks of 256; what has no blocks of 32 either is F16."""
_ENDS = ("token_embd.weight", "output.weight")
_OF_ENDS = "Q6_K"
_UNROUNDED = ("position_embd.weight", "ffn_gate_inp.weight", "ffn_gate_inp_shexp.weight")
"""Ends of names: learned positions, and what chooses experts."""


@dataclass(frozen=True)
class Choice:
    """The scheme of a tensor, and why it is not the one that was asked for; empty if it is."""

    scheme: Scheme
    because: str = ""


def check_keep(keep: Mapping[str, str], originals: Sequence[Original]) -> None:
    """Raises InputMismatch for a pattern that no matrix has, and for a scheme that nothing is encoded in."""
    for pattern, name in keep.items():
        check_scheme(name, ENCODED, "keep")
        matrices = [each.name for each in originals if _is_matrix(each)]
        if not any(fnmatchcase(each, pattern) for each in matrices):
            last = f"the last one is '{matrices[-1]}'" if matrices else "the model has no matrices"
            raise InputMismatch(
                f"keep: no matrix is called '{pattern}'; {did_you_mean(pattern, matrices) or last}"
            )


def check_scheme(name: str, known: Sequence[str], what: str) -> None:
    """Raises InputMismatch for a scheme that is not known."""
    if name not in known:
        raise InputMismatch(
            f"{what}: there is no scheme '{name}'; those that are written: {', '.join(known)}"
        )


def choose(original: Original, scheme: str, keep: Mapping[str, str]) -> Choice:
    """The scheme of a tensor.

    Args:
        original: The tensor.
        scheme: That was asked for.
        keep: Other schemes by patterns of names, as of a shell; the last one that fits holds.
    """
    if not _is_matrix(original):
        return Choice(original.scheme, "it stays as it is")
    wanted = [name for pattern, name in keep.items() if fnmatchcase(original.name, pattern)]
    if wanted:
        return _that_fits(original, wanted[-1], "the pattern asks for it")
    if original.name in _ENDS and bits_of(SCHEMES[scheme]) < bits_of(SCHEMES[_OF_ENDS]):
        return _that_fits(original, _OF_ENDS, "errors weigh most here")
    return _that_fits(original, scheme, "")


def _is_matrix(original: Original) -> bool:
    """Whether a tensor is one that is rounded."""
    name = original.name
    return len(original.shape) > 1 and name.endswith(".weight") and not name.endswith(_UNROUNDED)


def _that_fits(original: Original, name: str, because: str) -> Choice:
    """The scheme, or the next one whose blocks fill the rows."""
    columns, asked = original.shape[-1], name
    while columns % SCHEMES[name].length:
        name = _FALLBACKS.get(name, "F16")
    if name == asked:
        return Choice(SCHEMES[name], because)
    return Choice(
        SCHEMES[name], f"rows of {columns} are no blocks of {SCHEMES[asked].length}, as {asked} has"
    )
