"""What a family is: a decoder-only transformer that builds the program of one step from the settings of its source."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from aicf.llm.families import common, rope
from aicf.llm.families.common import Rotation, Step, in_f32, linear, weight
from aicf.llm.sources.base import Source
from aicf.llm.sources.names import Names
from aicf.runtime.tensors import Array

if TYPE_CHECKING:
    from aicf.frontends.builder import Graph, Value

_WIDEST_HEAD = 1 << 14


class Decoder(ABC):
    """A model of one family.

    Args:
        source: That has its settings and weights.

    Raises:
        InvalidIR: a setting or the embedding is missing, or contradicts others.
        UnsupportedOp: a setting asks for what the family does not do.
    """

    ARCHITECTURES: ClassVar[tuple[str, ...]]
    """`general.architecture` of GGUF files."""
    MODEL_TYPES: ClassVar[tuple[str, ...]]
    """`model_type` of folders."""
    NAMES: ClassVar[Names]
    """Of tensors in folders."""
    ACTIVATIONS: ClassVar[tuple[str, ...]] = ("silu",)
    """Names of what the MLP applies."""
    EPSILON: ClassVar[str] = "attention.layer_norm_rms_epsilon"
    PERIOD: ClassVar[int | None] = None
    """Which layers look at everything where a model has sliding windows: each of this number; none if None."""

    prefill: ClassVar[int | None] = None
    """Most tokens of a prompt that one run should take, if not as many as one likes."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.layers, self.width = source.size("block_count"), source.size("embedding_length")
        self.heads = source.size("attention.head_count")
        self.kv_heads = source.size("attention.head_count_kv", self.heads)
        self.head_width = source.size("attention.key_length", max(self.width // self.heads, 1))
        self.context = source.size("context_length")
        self.epsilon = source.number(self.EPSILON)
        self.vocabulary = source.shape("token_embd.weight")[0]
        stated = source.setting("is_tied")
        self.is_tied = not source.has("output.weight") if stated is None else bool(stated)
        source.shape(f"blk.{self.layers - 1}.attn_norm.weight")  # so many layers are there
        self.windows = self._windows()
        if self.heads % self.kv_heads:
            raise source.error(f"{self.heads} heads do not share {self.kv_heads} heads of keys evenly")
        if self.head_width > _WIDEST_HEAD:
            raise source.error(f"heads have {self.head_width:,} elements; at most {_WIDEST_HEAD:,} are read")
        activation = source.setting("activation")
        if activation is not None and activation not in self.ACTIVATIONS:
            raise source.unsupported(
                f"{source.called('activation')} is '{activation}'; what is read: {', '.join(self.ACTIVATIONS)}"
            )

    @abstractmethod
    def layer(self, step: Step, number: int, x: Value) -> Value:
        """One layer: x[T, width] to the same."""

    def embed(self, step: Step, embedding: Value) -> Value:
        """What the first layer takes, [T, width], of an embedding [vocabulary, width]."""
        return step.graph.gather(embedding, step.tokens, name="embedding")

    def norm(self, graph: Graph, name: str, x: Value) -> Value:
        """The norm `name` of x."""
        return common.rms_norm(graph, name, x, self.epsilon)

    def head(self, graph: Graph, x: Value, matrix: Value) -> Value:
        """Logits, f32[1, vocabulary], of the last layer's result, normed."""
        return in_f32(graph.linear(x, matrix, name="head"))

    def decoder(
        self,
        name: str,
        capacity: int,
        dtype: str = "f32",
        *,
        context: int | None = None,
        is_batch: bool = False,
    ) -> Graph:
        """The program of one step: the new tokens in, the logits of what follows the last of them out, and the token
        that is chosen by them.

        Inputs and outputs are those of `aicf.llm.token_state`. Keys and values of `capacity` positions are its state,
        with the tokens of these positions. What a norm, a softmax or a rotation computes is f32 in every type, and so
        are logits.

        Args:
            name: Of the graph.
            capacity: Positions.
            dtype: Of weights, of what layers pass on, and of the cache: `f32`, `bf16` or `f16`.
            context: Positions that the cache may grow to, by which rotations are scaled; `capacity` if None.
            is_batch: Whether it takes one token of each of T sequences, as `aicf.llm.batch_state` says, in place of T
                tokens of one text.
        """
        from aicf.frontends.builder import Graph

        graph = Graph(name)
        made = Step.of_batch if is_batch else Step.of
        step = made(graph, capacity, context or capacity)
        shape = (self.vocabulary, self.width)
        embedding = weight(graph, "token_embd.weight", shape, dtype)
        x = self.embed(step, embedding)
        for number in range(self.layers):
            x = self.layer(step, number, x)
        x = self.norm(graph, "output_norm", step.last(x))
        matrix = embedding if self.is_tied else weight(graph, "output.weight", shape, dtype)
        common.output_logits(step, self.head(graph, x, matrix))
        return graph

    def states(self, capacity: int, dtype: str = "f32") -> dict[str, Array]:
        """Empty keys and values of every layer, [capacity, kv_heads, head_width] by name, and no tokens."""
        return common.states(self.layers, capacity, self.kv_heads, self.head_width, dtype)

    def rotation(self, step: Step, *, local: bool = False) -> Rotation:
        """The rotary positions of a step, made once for all layers that share them."""
        return step.once(
            f"rotation.{local}",
            lambda: Rotation.of(
                step,
                *rope.frequencies(self.source, self.head_width, step.context, local=local),
                are_neighbours=self.source.rotates_neighbours,
            ),
        )

    def split(self, graph: Graph, x: Value, heads: int) -> Value:
        """x[T, heads * head_width] as [T, heads, head_width]."""
        return graph.reshape(x, ("T", heads, self.head_width))

    def gated_mlp(self, graph: Graph, name: str, x: Value, *, gelu: bool = False) -> Value:
        """`down(act(gate(x)) * up(x))`. Shazeer, GLU Variants Improve Transformer, 2020."""
        hidden = self.source.size("feed_forward_length")
        gate, up = (linear(graph, f"{name}.ffn_{part}", x, hidden) for part in ("gate", "up"))
        active = graph.gelu(gate, "tanh") if gelu else graph.silu(gate)
        return linear(graph, f"{name}.ffn_down", active * up, self.width)

    def _windows(self) -> tuple[int | None, ...]:
        """Positions that each layer looks back, its own among them; None if it looks at all."""
        source, everything = self.source, (None,) * self.layers
        if not source.setting("attention.sliding_window") or not source.flag("use_sliding_window", True):
            return everything
        window = source.size("attention.sliding_window")
        kinds = source.entries("layer_types")
        if kinds is not None:
            are_local = [kind == "sliding_attention" for kind in kinds]
            if len(are_local) != self.layers:
                raise source.error(
                    f"{source.called('layer_types')} has {len(are_local)} entries for {self.layers} layers"
                )
        elif self.PERIOD is None:
            first = source.number("max_window_layers", 0)
            are_local = [number >= first for number in range(self.layers)]
        else:
            are_local = self._local_layers(self.PERIOD)
        return tuple(window if is_local else None for is_local in are_local)

    def _local_layers(self, period: int) -> list[bool]:
        """Which layers have a window: all but each of a number, which the source may state, or whether each has one."""
        source, name = self.source, "attention.sliding_window_pattern"
        if isinstance(source.setting(name), list):
            stated = [bool(entry) for entry in source.entries(name) or ()]
            if len(stated) != self.layers:
                raise source.error(
                    f"{source.called(name)} has {len(stated)} entries for {self.layers} layers"
                )
            return stated
        period = source.size(name, period)
        return [(number + 1) % period != 0 for number in range(self.layers)]
