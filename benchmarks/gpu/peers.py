"""The rivals of the GPU benchmark: each program of `programs` as a PyTorch module.

A module's parameters have the names of the program's, so one set of random weights serves both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

Forward = Callable[[Tensor], Tensor]


class Chain(nn.Module):
    """Pre-norm blocks: layer_norm, up, gelu, down, residual."""

    def __init__(self, layers: int, hidden: int, inner: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleDict(
            {
                str(i): nn.ModuleDict(
                    {
                        "norm": nn.LayerNorm(hidden),
                        "up": nn.Linear(hidden, inner),
                        "down": nn.Linear(inner, hidden),
                    }
                )
                for i in range(layers)
            }
        )

    def forward(self, x: Tensor) -> Tensor:
        """x and the result [tokens, hidden]."""
        for block in self.blocks.values():
            x = x + block["down"](functional.gelu(block["up"](block["norm"](x))))
        return x

    def weights(self) -> dict[str, Tensor]:
        """By the program's names."""
        return {name.removeprefix("blocks."): value for name, value in self.state_dict().items()}


class Bert(nn.Module):
    """`transformers`' encoder of random weights, with PyTorch's fused attention."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        from transformers import BertConfig
        from transformers.models.bert.modeling_bert import BertEncoder

        config = BertConfig(num_hidden_layers=layers)
        config._attn_implementation = "sdpa"
        self.encoder = BertEncoder(config)

    def forward(self, x: Tensor) -> Tensor:
        """x and the result [batch, tokens, hidden]."""
        return self.encoder(x)[0]

    def weights(self) -> dict[str, Tensor]:
        """By the program's names."""
        return dict(self.encoder.state_dict())


class Fc(nn.Module):
    """One product, with bias and ReLU or without."""

    def __init__(self, outputs: int, inputs: int, bias: bool) -> None:
        super().__init__()
        self.fc = nn.Linear(inputs, outputs, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """x [rows, inputs], the result [rows, outputs]."""
        y = self.fc(x)
        return y if self.fc.bias is None else functional.relu(y)

    def weights(self) -> dict[str, Tensor]:
        """By the program's names."""
        return dict(self.state_dict())


class SwiGlu(nn.Module):
    """silu(gate(x)) * up(x)."""

    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.gate = nn.Linear(hidden, inner, bias=False)
        self.up = nn.Linear(hidden, inner, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x [tokens, hidden], the result [tokens, inner]."""
        return functional.silu(self.gate(x)) * self.up(x)

    def weights(self) -> dict[str, Tensor]:
        """By the program's names."""
        return dict(self.state_dict())


class Rows(nn.Module):
    """An operation on rows that has no product."""

    def __init__(self, function: Forward, norm: int = 0) -> None:
        super().__init__()
        self.function = function
        self.norm = nn.LayerNorm(norm) if norm else None

    def forward(self, x: Tensor) -> Tensor:
        """x and the result [rows, columns]."""
        return self.function(x) if self.norm is None else self.norm(x)

    def weights(self) -> dict[str, Tensor]:
        """By the program's names."""
        return dict(self.state_dict())


class Attention(nn.Module):
    """PyTorch's fused attention, by the kernel of its choice; it takes the fastest that it has."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.causal = causal

    def forward(self, x: Tensor) -> Tensor:
        """x [3, batch, heads, tokens, size], the result [batch, heads, tokens, size]."""
        query, key, value = x.unbind(0)
        return functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)

    def weights(self) -> dict[str, Tensor]:
        """None."""
        return {}


class Gpt2Block(nn.Module):
    """A block for one token, as GPT-2 has it; keys and values of all tokens are buffers, written in place."""

    def __init__(self, tokens: int, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.out = nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.register_buffer("keys", torch.randn(tokens, hidden))
        self.register_buffer("values", torch.randn(tokens, hidden))

    def _split(self, x: Tensor) -> Tensor:
        """[tokens, hidden] to [1, heads, tokens, size]."""
        return x.view(1, x.shape[0], self.heads, -1).transpose(1, 2)

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        """x and the result [1, hidden]."""
        query, key, value = self.qkv(self.norm1(x)).chunk(3, -1)
        keys, values = self.keys.index_copy_(0, position, key), self.values.index_copy_(0, position, value)
        attended = functional.scaled_dot_product_attention(*map(self._split, (query, keys, values)))
        x = x + self.out(attended.transpose(1, 2).reshape(x.shape))
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    """Blocks of GPT-2 for one token, whose place in the state is a buffer too."""

    def __init__(self, layers: int, tokens: int = 512, hidden: int = 768, heads: int = 12) -> None:
        super().__init__()
        self.blocks = nn.ModuleDict({str(i): Gpt2Block(tokens, hidden, heads) for i in range(layers)})
        self.register_buffer("position", torch.tensor([tokens // 2 + 1]))

    def forward(self, x: Tensor) -> Tensor:
        """x and the result [1, hidden]."""
        for block in self.blocks.values():
            x = block(x, self.position)
        return x

    def weights(self) -> dict[str, Tensor]:
        """By the program's names, keys and values among them."""
        named = {name.removeprefix("blocks."): value for name, value in self.state_dict().items()}
        del named["position"]
        return named


class Moves(nn.Module):
    """An operation on x and on tensors that it keeps; those in `given` are inputs of our program."""

    def __init__(self, function: Callable[..., Tensor], given: tuple[str, ...] = (), **kept: Tensor) -> None:
        super().__init__()
        self.function = function
        self.given = given
        for name, value in kept.items():
            self.register_buffer(name, value)

    def forward(self, x: Tensor) -> Tensor:
        """Whatever the function makes of x and, in order, of what is kept."""
        return self.function(x, *self.buffers())

    def weights(self) -> dict[str, Tensor]:
        """By the program's names."""
        return {name: value for name, value in self.state_dict().items() if name not in self.given}


def _gather() -> nn.Module:
    return Moves(lambda x, i: x.index_select(0, i), i=torch.randint(65536, (65536,)))


def _scatter_set() -> nn.Module:
    """Each row once: PyTorch does not say which of several updates stays."""
    kept = {"i": torch.randperm(65536), "u": torch.randn(65536, 1024)}
    return Moves(lambda x, i, u: x.index_copy(0, i, u), ("i",), **kept)


def _scatter_add() -> nn.Module:
    """By the faster of PyTorch's two ways."""
    kept = {"i": torch.randint(65536, (65536,)), "u": torch.randn(65536, 1024)}
    return Moves(lambda x, i, u: x.index_put((i,), u, accumulate=True), ("i",), **kept)


@dataclass(frozen=True)
class Peer:
    """How a row's rival is made, and what it takes; `buffers` of it are inputs of the program beside x."""

    module: Callable[[], nn.Module]
    shape: tuple[int, ...]
    dtype: torch.dtype
    buffers: tuple[str, ...] = ()


PEERS: dict[str, Peer] = {
    "mlp_chain": Peer(lambda: Chain(12, 768, 3072), (1, 768), torch.float16),
    "bert_1x128": Peer(lambda: Bert(12), (1, 128, 768), torch.float16),
    "bert_8x128": Peer(lambda: Bert(12), (8, 128, 768), torch.float16),
    "gemm_bias_relu_4096": Peer(lambda: Fc(4096, 4096, True), (4096, 4096), torch.bfloat16),
    "gemm_4096": Peer(lambda: Fc(4096, 4096, False), (4096, 4096), torch.bfloat16),
    "gemm_8192": Peer(lambda: Fc(8192, 8192, False), (8192, 8192), torch.bfloat16),
    "swiglu_2048": Peer(lambda: SwiGlu(4096, 11008), (2048, 4096), torch.bfloat16),
    "pointwise_256MB": Peer(
        lambda: Rows(lambda x: functional.gelu(x * 0.5 + 1.0, approximate="tanh")),
        (16384, 4096),
        torch.float32,
    ),
    "softmax_256MB": Peer(lambda: Rows(lambda x: torch.softmax(x, -1)), (16384, 4096), torch.float32),
    "layer_norm_256MB": Peer(lambda: Rows(lambda x: x, norm=4096), (16384, 4096), torch.float32),
    "attention_512": Peer(lambda: Attention(False), (3, 8, 12, 512, 64), torch.float16),
    "attention_512_causal": Peer(lambda: Attention(True), (3, 8, 12, 512, 64), torch.float16),
    "gpt2_block": Peer(lambda: Gpt2(1), (1, 768), torch.float16, ("position",)),
    "gpt2_12_blocks": Peer(lambda: Gpt2(12), (1, 768), torch.float16, ("position",)),
    "gather_256MB": Peer(_gather, (65536, 1024), torch.float32),
    "scatter_set_256MB": Peer(_scatter_set, (65536, 1024), torch.float32, ("i",)),
    "scatter_add_256MB": Peer(_scatter_add, (65536, 1024), torch.float32, ("i",)),
    "topk_256MB": Peer(lambda: Moves(lambda x: x.topk(32)[0]), (16384, 4096), torch.float32),
    "topk_long_256MB": Peer(lambda: Moves(lambda x: x.topk(64)[0]), (8, 1 << 23), torch.float32),
    "cumsum_256MB": Peer(lambda: Moves(lambda x: x.cumsum(-1)), (16384, 4096), torch.float32),
    "cumsum_long_256MB": Peer(lambda: Moves(lambda x: x.cumsum(-1)), (1 << 26,), torch.float32),
    "pad_256MB": Peer(
        lambda: Moves(lambda x: functional.pad(x, (64, 64), value=0.5)), (16384, 4096), torch.float32
    ),
}


def captured(function: Forward, x: Tensor) -> tuple[Callable[[], object], Tensor]:
    """`function` on x in a CUDA Graph of PyTorch's: what replays it, and where its result is."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            function(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = function(x)
    graph.replay()
    return graph.replay, y
