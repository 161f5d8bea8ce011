"""Well-known architectures with random weights, each at a small size and at one that is timed, and their exports."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from convnets import MobileNetV2, ResNet, randomize_norms
from torch import Tensor, nn
from transformers import BertConfig, BertModel, T5Config, T5EncoderModel, ViTConfig, ViTModel


@dataclass(frozen=True)
class Architecture:
    """A module with random weights and inputs for it.

    Attributes:
        inputs: By the name of the input, in order of the module's arguments.
        outputs: Names of the results.
    """

    module: nn.Module
    inputs: Mapping[str, Tensor]
    outputs: tuple[str, ...]

    def run(self) -> dict[str, Tensor]:
        """The results by name."""
        with torch.inference_mode():
            found = self.module(*self.inputs.values())
        results = found if isinstance(found, tuple) else (found,)
        return dict(zip(self.outputs, results, strict=True))

    def exported(self, dynamic: tuple[tuple[str, int, str], ...] = ()) -> bytes:
        """The ONNX model; `dynamic` has input, axis and name of each dimension that stays open."""
        shapes: dict[str, dict[int, torch.export.Dim]] = {name: {} for name in self.inputs}
        for name, axis, dim in dynamic:
            shapes[name][axis] = torch.export.Dim(dim)
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the exporter's own, about its packages
            program = torch.onnx.export(
                self.module,
                tuple(self.inputs.values()),
                dynamo=True,
                verbose=False,
                input_names=list(self.inputs),
                output_names=list(self.outputs),
                dynamic_shapes=tuple(shapes.values()) if dynamic else None,
            )
        assert program is not None
        buffer = io.BytesIO()
        program.save(buffer)
        return buffer.getvalue()


class _Hidden(nn.Module):
    """The last hidden state of a `transformers` model, as a plain tensor."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        found = self.model(x) if mask is None else self.model(x, mask)
        return found.last_hidden_state


class _Lstm(nn.Module):
    """Two layers in both directions, batch first."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(inputs, hidden, 2, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y, (h, c) = self.lstm(x)
        return y, h, c


def resnet(blocks: tuple[int, ...], width: int, size: int, batch: int = 1) -> Architecture:
    """A ResNet of basic blocks."""
    module = ResNet(blocks, width)
    randomize_norms(module)
    return Architecture(module.eval(), {"x": torch.randn(batch, 3, size, size)}, ("logits",))


def mobilenet_v2(size: int, batch: int = 1) -> Architecture:
    """MobileNetV2 of width 1."""
    module = MobileNetV2(classes=10)
    randomize_norms(module)
    return Architecture(module.eval(), {"x": torch.randn(batch, 3, size, size)}, ("logits",))


def vit(layers: int, width: int, heads: int, size: int, patch: int = 16) -> Architecture:
    """A vision transformer without head."""
    config = ViTConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        image_size=size,
        patch_size=patch,
    )
    module = _Hidden(ViTModel(config, add_pooling_layer=False))
    return Architecture(module.eval(), {"x": torch.randn(1, 3, size, size)}, ("hidden",))


def bert(layers: int, width: int, heads: int, tokens: int, batch: int = 1) -> Architecture:
    """A BERT encoder; every sequence but the first ends in padding."""
    config = BertConfig(
        vocab_size=1000,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
    )
    mask = torch.ones(batch, tokens, dtype=torch.int64)
    mask[1:, tokens // 2 :] = 0
    inputs = {"input_ids": torch.randint(1000, (batch, tokens)), "attention_mask": mask}
    return Architecture(_Hidden(BertModel(config, add_pooling_layer=False)).eval(), inputs, ("hidden",))


def t5_encoder(layers: int, width: int, heads: int, tokens: int) -> Architecture:
    """A T5 encoder: relative positions in buckets, RMS norms."""
    config = T5Config(
        vocab_size=1000,
        d_model=width,
        d_kv=width // heads,
        d_ff=4 * width,
        num_layers=layers,
        num_heads=heads,
        attn_implementation="eager",  # the exporter stumbles over the strides of the other one
    )
    inputs = {"input_ids": torch.randint(1000, (1, tokens))}
    return Architecture(_Hidden(T5EncoderModel(config)).eval(), inputs, ("hidden",))


def lstm(inputs: int, hidden: int, steps: int, batch: int = 2) -> Architecture:
    """Two bidirectional layers."""
    x = torch.randn(batch, steps, inputs)
    return Architecture(_Lstm(inputs, hidden).eval(), {"x": x}, ("y", "h", "c"))


SMALL: Mapping[str, Callable[[], Architecture]] = {
    "resnet": partial(resnet, (1, 1, 1, 1), 8, 32, batch=2),
    "mobilenet_v2": partial(mobilenet_v2, 32),
    "vit": partial(vit, 2, 48, 3, 32, patch=8),
    "bert": partial(bert, 2, 64, 4, 16, batch=2),
    "t5_encoder": partial(t5_encoder, 2, 64, 4, 16),
    "lstm": partial(lstm, 12, 16, 7),
}
"""Every architecture at a size that compiles in seconds."""

TIMED: Mapping[str, Callable[[], Architecture]] = {
    "resnet18 @64": partial(resnet, (2, 2, 2, 2), 64, 64),
    "vit-tiny @64": partial(vit, 12, 192, 3, 64),
    "bert-tiny": partial(bert, 2, 128, 2, 128),
}
"""Those that the CPU benchmark times."""


def make(name: str, made: Mapping[str, Callable[[], Architecture]] = SMALL) -> Architecture:
    """One architecture; the same weights and inputs each time."""
    torch.manual_seed(0)
    return made[name]()
