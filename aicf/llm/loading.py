"""Loads a language model: opens its file or folder, builds the program of its architecture, and compiles it."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from aicf.compilation.compiled import CompiledModel, SharedWeights
from aicf.errors import InputMismatch, InvalidIR, quoted
from aicf.frontends.gguf.reader import read_gguf
from aicf.llm.batch_state import batch_states
from aicf.llm.cache import load_or_compile
from aicf.llm.chat_template import (
    ChatTemplate,
    folder_template,
    folder_tokens,
    gguf_template,
    gguf_tokens,
)
from aicf.llm.families import family_of_architecture, family_of_model_type
from aicf.llm.families.decoder import Decoder
from aicf.llm.model import LanguageModel
from aicf.llm.programs import Programs, Sizes
from aicf.llm.sources.base import Source
from aicf.llm.sources.gguf import GgufSource
from aicf.llm.sources.gguf_tokenizer import gguf_tokenizer
from aicf.llm.tokenizer import Tokenizer
from aicf.passes.pipelines.collector import collector_paused
from aicf.runtime.deferred_weights import DeferredWeights
from aicf.runtime.tensors import Array
from aicf.support.arguments import path_from
from aicf.support.whole_numbers import is_whole

if TYPE_CHECKING:
    from aicf.compilation.sources import Policy
    from aicf.dialects.types import TensorInfo
    from aicf.frontends.builder import Graph

PREFILL = 64
"""Tokens of a prompt that one run takes."""
ELEMENTS = ("f32", "bf16", "f16")
"""Types that a model computes in."""
_ROWS = "u8"
"""The type of matrices that stay in blocks."""


def load(
    path: str | Path,
    target: str = "cpu",
    *,
    context: int | None = None,
    threads: int = 1,
    cache_dir: str | Path | None = None,
    first_context: int | None = None,
    policy: Policy | None = None,
    dtype: str | None = None,
) -> LanguageModel:
    """Loads a model from a GGUF file or a Hugging Face folder and compiles it.

    Args:
        path: The file; or the folder, with `config.json`, `tokenizer.json` and safetensors files.
        target: Of the programs.
        context: Positions of the cache of keys and values; those that the model was made for, at most 2,048, if None.
        threads: That run the programs.
        cache_dir: Folder of compiled models, shared by processes; None keeps none. It holds native code: use one that
            nobody else can write to.
        first_context: Positions that the cache begins with; it doubles, up to `context`, when a text needs more, and
            programs for it are compiled then. None begins with all.
        policy: Of the programs, see `aicf.compile`. `{"determinism": "batch_invariant"}` makes the tokens of a text
            independent of the texts that share its batch, and of how many they are; `{"packed_activations": "int8"}`
            rounds activations to 8 bits next to weights in blocks.
        dtype: Of weights, of what layers pass on, and of the cache: `f32`, `bf16` or `f16`. None is `bf16` on a
            GPU for a model whose matrices are not stored in blocks, else `f32`. Sums, norms, softmaxes, rotations and
            logits are f32 in each; matrices, those of experts as well, stay in blocks where a kernel of the target
            multiplies one with the type: on a CPU with `f32` alone.

    Raises:
        ArtifactError: the folder of compiled models cannot be made or used.
        InvalidIR: a file is missing or damaged, or a tensor or setting is missing or does not fit.
        UnsupportedOp: an architecture, a tokenizer or a scheme of numbers that is not read.
        InputMismatch: `context` is no number of positions that the model has, `first_context` none up to it, or `dtype`
            none of these types.
        PolicyError: the target or the policy is not legal.
    """
    _check_dtype(dtype)
    with collector_paused():  # a vocabulary is many objects, all of which stay
        return load_opened(
            open_model(path),
            target,
            context=context,
            threads=threads,
            cache_dir=cache_dir,
            first_context=first_context,
            policy=policy,
            dtype=dtype,
        )


def load_opened(
    opened: OpenedModel,
    target: str = "cpu",
    *,
    context: int | None = None,
    threads: int = 1,
    cache_dir: str | Path | None = None,
    first_context: int | None = None,
    policy: Policy | None = None,
    dtype: str | None = None,
) -> LanguageModel:
    """Compiles a model that is opened; see `load`."""
    _check_dtype(dtype)
    family, tokenizer, template, named_tokens = opened
    capacity = min(family.context, 2048) if context is None else context
    if not is_whole(capacity, least=1) or capacity > family.context:
        raise InputMismatch(f"context is {context}; the model has positions for 1 to {family.context:,}")
    first = capacity if first_context is None else first_context
    if not is_whole(first, least=1) or first > capacity:
        raise InputMismatch(f"first_context is {first}; the cache may begin with 1 to {capacity:,} positions")
    capacity, first = int(capacity), int(first)
    prefill = min(family.prefill or PREFILL, first)
    element = type_of(family.source, target) if dtype is None else dtype
    options = ProgramOptions(capacity, prefill, target, threads, cache_dir, policy, element)
    programs = programs_of(family, family.source.path.stem, options)
    executable = programs.of(Sizes(first))
    return LanguageModel(executable, tokenizer, capacity, prefill, template, named_tokens, programs)


def _check_dtype(dtype: str | None) -> None:
    if dtype is not None and dtype not in ELEMENTS:
        raise InputMismatch(f"dtype is {quoted(dtype)}; a model computes in {', '.join(ELEMENTS)}")


@dataclass(frozen=True)
class ProgramOptions:
    """What the programs of a model are made for, whatever the size of the cache.

    Args:
        context: Positions that the cache may grow to.
        prefill: Tokens of a prompt that one run takes.
        target, threads, cache_dir, policy: As of `load`.
        element: Type of weights, of what layers pass on, and of the cache.
    """

    context: int
    prefill: int
    target: str = "cpu"
    threads: int = 1
    cache_dir: str | Path | None = None
    policy: Policy | None = None
    element: str = "f32"


def programs_of(family: Decoder, name: str, options: ProgramOptions) -> Programs:
    """What makes the programs of a model: out of the folder of compiled models, or by compiling them.

    Args:
        family: Builds them.
        name: Of the programs.
        options: What they are made for.
    """
    source, text, element, target = family.source, "", options.element, options.target
    if options.policy is not None:
        from aicf.compilation.sources import policy_text

        text = policy_text(options.policy)

    def compiled(sizes: Sizes, shared: SharedWeights | None) -> CompiledModel:
        from aicf.compilation.compiling import compile_source
        from aicf.compilation.record import Options
        from aicf.compilation.sources import dims_text, read_model
        from aicf.frontends.text import make_context
        from aicf.inference.packing import ModelWeights
        from aicf.llm.packed_weights import keep_packed, reads_blocks

        packed = source.packed() if reads_blocks(target, element) else {}
        graph = family.decoder(
            name, sizes.capacity, element, context=options.context, is_batch=sizes.sequences > 0
        )
        module = graph.module()
        keep_packed(module, packed)
        states = family.states(sizes.capacity, element)
        if sizes.sequences:
            states = batch_states(states, sizes.sequences)
        weights = {**weights_of(source, graph, packed, offered), **states}
        dims = dims_text({"T": [sizes.sequences] if sizes.sequences else sorted({1, options.prefill})})
        asked = Options(target, text, dims, options.threads)
        return compile_source(read_model(module, make_context()), weights, asked, shared or ModelWeights())

    offered = DeferredWeights(source.names(), lambda name, dtype: _read(source, name, dtype or element))

    def made(sizes: Sizes, shared: SharedWeights | None) -> CompiledModel:
        made_of = {
            "files": source.identity(),
            "context": options.context,
            "prefill": options.prefill,
            "policy": text,
            "dtype": element,
            "sizes": [sizes.capacity, sizes.sequences],
        }
        return load_or_compile(
            options.cache_dir,
            made_of,
            target,
            options.threads,
            offered,
            lambda: compiled(sizes, shared),
            shared,
        )

    return Programs(made, is_device=target.partition(":")[0] == "cuda")


def type_of(source: Source, target: str) -> str:
    """The type that a model computes in if nobody says."""
    is_in_blocks = bool(source.packed())
    return "bf16" if target.partition(":")[0] == "cuda" and not is_in_blocks else "f32"


class OpenedModel(NamedTuple):
    """What a file or folder has of a model; weights stay where they are stored.

    Args:
        family: Builds its program.
        tokenizer: Of its text.
        template: Of its conversations; None if there is none.
        named_tokens: Texts of the tokens that a template may name.
    """

    family: Decoder
    tokenizer: Tokenizer
    template: ChatTemplate | None
    named_tokens: Mapping[str, str]


def open_model(path: str | Path) -> OpenedModel:
    """Opens a model. Raises: as `load`."""
    path = path_from(path, InputMismatch, "the model's path")
    opened = _opened(path)
    needed, rows = opened.tokenizer.text_size, opened.family.vocabulary
    if needed > rows:
        raise InvalidIR(
            f"the tokenizer has {needed:,} tokens and the model embeds {rows:,}; they are of different models",
            location=str(path),
        )
    return opened


def _opened(path: Path) -> OpenedModel:
    if path.is_dir():
        from aicf.llm.sources.folder import FolderSource, model_type
        from aicf.llm.sources.folder_tokenizer import folder_tokenizer

        family = family_of_model_type(model_type(path), str(path))
        source = FolderSource(path, family.NAMES)
        return OpenedModel(family(source), folder_tokenizer(path), folder_template(path), folder_tokens(path))
    file = read_gguf(path)
    source = GgufSource(file)
    family = family_of_architecture(source.architecture, str(path))
    return OpenedModel(family(source), gguf_tokenizer(file), gguf_template(file), gguf_tokens(file))


def _read(source: Source, name: str, dtype: str) -> Array:
    return source.rows(name) if dtype == _ROWS else source.array(name, dtype)


def weights_of(
    source: Source, graph: Graph, packed: Container[str] = (), offered: DeferredWeights | None = None
) -> dict[str, Array]:
    """The arrays of a program's parameters.

    Args:
        source: That has them.
        graph: The program, as it was built.
        packed: Parameters that stay in blocks, which the source's file backs; the others are in the program's types.
        offered: Where other programs of the model have theirs from, so that none has a copy of its own; None reads the
            source.

    Raises: as `checked_parameters`.
    """
    read = partial(_read, source) if offered is None else offered.read
    return {
        name: read(name, _ROWS if name in packed else info.element.name)
        for name, info in checked_parameters(source, graph).items()
    }


def checked_parameters(source: Source, graph: Graph) -> dict[str, TensorInfo]:
    """Shapes and types of a program's parameters, by name, all of which the source has.

    Raises:
        InvalidIR: one is missing or has another shape.
        UnsupportedOp: the source has more than the program uses.
    """
    wanted = parameters_of(graph)
    for name, info in wanted.items():
        found = source.shape(name)
        if found != info.shape:
            raise source.error(
                f"tensor '{name}' has shape {list(found)}; the model's settings ask for {list(info.shape)}"
            )
    if unused := source.unused(wanted):
        more = f" and {len(unused) - 1} more" if len(unused) > 1 else ""
        raise source.unsupported(
            f"it has a tensor '{unused[0]}'{more}, which {source.architecture} does not use; "
            "it is of another architecture"
        )
    return wanted


def parameters_of(graph: Graph) -> dict[str, TensorInfo]:
    """Shapes and types of a graph's parameters, by name."""
    from xdsl.dialects.builtin import StringAttr

    from aicf.dialects.logical import ROLE_ATTR
    from aicf.dialects.types import tensor_info
    from aicf.passes.support.interface import argument_entry, arguments_of, functions

    (function,) = functions(graph.module())
    return {
        name: tensor_info(argument.type)
        for name, argument in arguments_of(function).items()
        if argument_entry(function, argument.index)[ROLE_ATTR] == StringAttr("param")
    }
