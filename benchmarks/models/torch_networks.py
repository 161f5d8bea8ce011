"""Networks of PyTorch with random weights, as they are called: each at a small size for tests, and at its usual one.

The definitions are those of `transformers`; the U-Net of a diffusion model is here. Every network has inputs for a
forward pass and a scalar loss for a step of training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import transformers as tf
from torch import Tensor, nn


@dataclass(frozen=True)
class Network:
    """A module and what it is called with.

    Attributes:
        module: In evaluation mode, f32.
        inputs: By name.
        first: The result that is compared: its attribute, or "" for the result itself.
        options: Further arguments, which are no tensors.
        targets: What the module takes besides to return its own loss.
        is_training: Whether it runs in training mode.
    """

    module: nn.Module
    inputs: Mapping[str, Tensor]
    first: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    targets: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    is_training: bool = False

    @property
    def batch(self) -> Mapping[str, Tensor]:
        """What a step of training takes."""
        return {**self.inputs, **self.targets}

    def result(
        self, module: nn.Module | Callable[..., Any], inputs: Mapping[str, Tensor] | None = None
    ) -> Tensor:
        """What a form of the module gives."""
        found = module(**(inputs or self.inputs), **self.options)
        return getattr(found, self.first) if self.first else found

    def loss(
        self, module: nn.Module | Callable[..., Any], batch: Mapping[str, Tensor] | None = None
    ) -> Tensor:
        """A scalar: the module's own loss if there are targets, else one that depends on all of the result."""
        given = batch or self.batch
        if self.targets:
            return module(**given, **self.options).loss
        return weighted_square(self.result(module, given))


def weighted_square(result: Tensor) -> Tensor:
    """The mean of the squares of weighted elements: without weights it would be 1 after a layer norm, whatever the
    parameters are."""
    result = result if result.dtype == torch.float64 else result.float()
    weights = torch.linspace(-1.0, 1.0, result.shape[-1], device=result.device, dtype=result.dtype)
    return (result * weights).square().mean()


def _tokens(batch: int, length: int, vocabulary: int) -> Tensor:
    return torch.randint(0, vocabulary, (batch, length))


def _size(small: bool, width: int, layers: int, heads: int, small_layers: int = 2) -> tuple[int, int, int]:
    return (32, small_layers, 4) if small else (width, layers, heads)


def bert(small: bool, batch: int = 1, length: int = 128) -> Network:
    """BERT-base, encoder alone; small, it has one layer, for GPT-2 has two that are alike."""
    width, layers, heads = _size(small, 768, 12, 12, 1)
    vocabulary, length = (100, 12) if small else (30522, length)
    config = tf.BertConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
    )
    module = tf.BertModel(config, add_pooling_layer=False)
    mask = torch.ones(batch, length, dtype=torch.int64)
    inputs = {"input_ids": _tokens(batch, length, vocabulary), "attention_mask": mask}
    return Network(module, inputs, "last_hidden_state")


def bert_classifier(small: bool, batch: int = 1, length: int = 128) -> Network:
    """BERT-base with a head of two classes, as it is fine-tuned."""
    encoder = bert(small, batch, length)
    module = tf.BertForSequenceClassification(encoder.module.config)
    return Network(module, encoder.inputs, "logits", targets={"labels": torch.randint(0, 2, (batch,))})


def gpt2(small: bool, batch: int = 1, length: int = 64) -> Network:
    """GPT-2 small with its head."""
    width, layers, heads = _size(small, 768, 12, 12)
    vocabulary, length = (100, 12) if small else (50257, length)
    config = tf.GPT2Config(vocab_size=vocabulary, n_embd=width, n_layer=layers, n_head=heads, use_cache=False)
    module = tf.GPT2LMHeadModel(config)
    module.loss_type = "ForCausalLM"  # what it takes anyway, with a warning that breaks graphs
    tokens = _tokens(batch, length, vocabulary)
    return Network(module, {"input_ids": tokens}, "logits", targets={"labels": tokens})


def llama(small: bool, batch: int = 1, length: int = 64) -> Network:
    """A Llama of 0.1 billion parameters: rotary positions, groups of heads; small, it has one layer, as BERT."""
    width, layers, heads = _size(small, 768, 12, 12, 1)
    vocabulary, length = (100, 12) if small else (32000, length)
    config = tf.LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=(8 * width) // 3,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2 if small else 4,
        use_cache=False,
    )
    tokens = _tokens(batch, length, vocabulary)
    return Network(tf.LlamaForCausalLM(config), {"input_ids": tokens}, "logits", targets={"labels": tokens})


def t5(small: bool, batch: int = 1, length: int = 64) -> Network:
    """T5-small, encoder and decoder."""
    width, layers, heads = _size(small, 512, 6, 8)
    vocabulary, length = (100, 12) if small else (32128, length)
    config = tf.T5Config(
        vocab_size=vocabulary,
        d_model=width,
        d_kv=width // heads,
        d_ff=4 * width,
        num_layers=layers,
        num_heads=heads,
        use_cache=False,
        decoder_start_token_id=0,
    )
    inputs = {
        "input_ids": _tokens(batch, length, vocabulary),
        "decoder_input_ids": _tokens(batch, length, vocabulary),
    }
    return Network(tf.T5ForConditionalGeneration(config), inputs, "logits")


def vit(small: bool, batch: int = 1) -> Network:
    """ViT-base; small, it has one layer, as BERT."""
    width, layers, heads = _size(small, 768, 12, 12, 1)
    image, patch = (32, 8) if small else (224, 16)
    config = tf.ViTConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        image_size=image,
        patch_size=patch,
    )
    module = tf.ViTModel(config, add_pooling_layer=False)
    return Network(module, {"pixel_values": torch.randn(batch, 3, image, image)}, "last_hidden_state")


def whisper(small: bool, batch: int = 1) -> Network:
    """Whisper-base, encoder and decoder; small, each has one layer, where those of T5 have two."""
    width, layers, heads = _size(small, 512, 6, 8, 1)
    frames, length = (20, 6) if small else (1500, 32)
    config = tf.WhisperConfig(
        vocab_size=100 if small else 51865,
        d_model=width,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=4 * width,
        decoder_ffn_dim=4 * width,
        max_source_positions=frames,
        use_cache=False,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    inputs = {
        "input_features": torch.randn(batch, 80, 2 * frames),
        "decoder_input_ids": _tokens(batch, length, config.vocab_size),
    }
    return Network(tf.WhisperForConditionalGeneration(config), inputs, "logits")


def resnet(small: bool, batch: int = 1) -> Network:
    """ResNet-50."""
    image = 32 if small else 224
    config = (
        tf.ResNetConfig(
            embedding_size=8, hidden_sizes=[8, 16], depths=[1, 2], layer_type="basic", num_labels=10
        )
        if small
        else tf.ResNetConfig(num_labels=1000)
    )
    module = tf.ResNetForImageClassification(config)
    return Network(module, {"pixel_values": torch.randn(batch, 3, image, image)}, "logits")


def resnet_classifier(small: bool, batch: int = 1) -> Network:
    """ResNet-50 as it is trained: its batch norms take the statistics of the batch."""
    network = resnet(small, batch)
    labels = torch.randint(0, network.module.config.num_labels, (batch,))
    return replace(network, targets={"labels": labels}, is_training=True)


def _drop_repeated_blocks(network: Any) -> None:
    """Leaves of the residual blocks in a row one: the others are like it."""
    kept: list[Any] = []
    for block in network.layer:
        if not (kept and block.use_residual and kept[-1].use_residual):
            kept.append(block)
    network.layer = nn.ModuleList(kept)


def mobilenet(small: bool, batch: int = 1) -> Network:
    """MobileNetV2."""
    image = 32 if small else 224
    config = tf.MobileNetV2Config(image_size=image, depth_multiplier=0.25 if small else 1.0, num_labels=10)
    module = tf.MobileNetV2ForImageClassification(config)
    if small:
        _drop_repeated_blocks(module.mobilenet_v2)
    for parameter in module.parameters():
        if parameter.dim() == 4:  # its own are so small that nothing arrives at the end
            nn.init.kaiming_normal_(parameter)
    return Network(module, {"pixel_values": torch.randn(batch, 3, image, image)}, "logits")


def convnext(small: bool, batch: int = 1) -> Network:
    """ConvNeXt-tiny."""
    image = 32 if small else 224
    config = (
        tf.ConvNextConfig(hidden_sizes=[8, 16], depths=[1, 2], num_stages=2, num_labels=10)
        if small
        else tf.ConvNextConfig(num_labels=1000)
    )
    module = tf.ConvNextForImageClassification(config)
    return Network(module, {"pixel_values": torch.randn(batch, 3, image, image)}, "logits")


def swin(small: bool, batch: int = 1) -> Network:
    """Swin-tiny."""
    image = 32 if small else 224
    config = (
        tf.SwinConfig(
            image_size=32,
            patch_size=4,
            embed_dim=16,
            depths=[2, 1],
            num_heads=[2, 4],
            window_size=4,
            num_labels=10,
        )
        if small
        else tf.SwinConfig(num_labels=1000)
    )
    module = tf.SwinForImageClassification(config)
    return Network(module, {"pixel_values": torch.randn(batch, 3, image, image)}, "logits")


class _Block(nn.Module):
    """Two convolutions around a group norm and the time, with a residual."""

    def __init__(self, inputs: int, outputs: int, times: int) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(4, inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.time = nn.Linear(times, outputs)
        self.norm2 = nn.GroupNorm(4, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """[batch, outputs, height, width]."""
        h = self.conv1(nn.functional.silu(self.norm1(x)))
        h = h + self.time(nn.functional.silu(time))[:, :, None, None]
        return self.skip(x) + self.conv2(nn.functional.silu(self.norm2(h)))


class _Attention(nn.Module):
    """Attention among the positions of an image."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(4, channels)
        self.qkv = nn.Conv2d(channels, 3 * channels, 1)
        self.out = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """As x."""
        batch, channels, height, width = x.shape
        q, k, v = (
            self.qkv(self.norm(x)).reshape(batch, 3, 1, channels, height * width).transpose(-1, -2).unbind(1)
        )
        found = nn.functional.scaled_dot_product_attention(q, k, v)
        return x + self.out(found.transpose(-1, -2).reshape(batch, channels, height, width))


class UNet(nn.Module):
    """The network of a diffusion model: an image of noise and a time to the noise."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        times = 4 * channels
        self.channels = channels
        self.time = nn.Sequential(nn.Linear(channels, times), nn.SiLU(), nn.Linear(times, times))
        self.first = nn.Conv2d(3, channels, 3, padding=1)
        self.down1 = _Block(channels, channels, times)
        self.pool1 = nn.Conv2d(channels, channels, 3, stride=2, padding=1)
        self.down2 = _Block(channels, 2 * channels, times)
        self.pool2 = nn.Conv2d(2 * channels, 2 * channels, 3, stride=2, padding=1)
        self.middle1 = _Block(2 * channels, 2 * channels, times)
        self.attention = _Attention(2 * channels)
        self.middle2 = _Block(2 * channels, 2 * channels, times)
        self.up2 = _Block(4 * channels, channels, times)
        self.up1 = _Block(2 * channels, channels, times)
        self.norm = nn.GroupNorm(4, channels)
        self.last = nn.Conv2d(channels, 3, 3, padding=1)

    def forward(self, image: Tensor, time: Tensor) -> Tensor:
        """image: [batch, 3, height, width], time: [batch]; as image."""
        half = self.channels // 2
        rates = torch.exp(-9.2 * torch.arange(half, device=image.device) / half)
        angles = time[:, None] * rates
        t = self.time(torch.cat([angles.sin(), angles.cos()], -1).to(image.dtype))
        h1 = self.down1(self.first(image), t)
        h2 = self.down2(self.pool1(h1), t)
        h = self.middle2(self.attention(self.middle1(self.pool2(h2), t)), t)
        h = self.up2(torch.cat([nn.functional.interpolate(h, scale_factor=2.0), h2], 1), t)
        h = self.up1(torch.cat([nn.functional.interpolate(h, scale_factor=2.0), h1], 1), t)
        return self.last(nn.functional.silu(self.norm(h)))


def unet(small: bool, batch: int = 1) -> Network:
    """A diffusion U-Net of 3 levels."""
    image, channels = (16, 8) if small else (64, 128)
    inputs = {"image": torch.randn(batch, 3, image, image), "time": torch.rand(batch) * 100}
    return Network(UNet(channels), inputs, "")


NETWORKS: Mapping[str, Callable[..., Network]] = {
    "bert": bert,
    "gpt2": gpt2,
    "llama": llama,
    "t5": t5,
    "vit": vit,
    "whisper": whisper,
    "resnet": resnet,
    "mobilenet": mobilenet,
    "convnext": convnext,
    "swin": swin,
    "unet": unet,
}

FINE_TUNED: Mapping[str, Callable[..., Network]] = {
    "bert-classifier": bert_classifier,
    "resnet-classifier": resnet_classifier,
}
"""Networks that are measured in training alone."""


def make(name: str, small: bool, **options: int) -> Network:
    """The network of a name, in evaluation mode unless it trains, with the same weights and inputs every time."""
    torch.manual_seed(0)
    network = {**NETWORKS, **FINE_TUNED}[name](small, **options)
    network.module.train(network.is_training)
    return network
