"""Cases of convolutions, transposed ones, and of the gradients of their weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from aicf.frontends.builder import Graph
from tests.gpu import cudnn
from tests.gpu.batch_norms import Normed, normed, passed_back
from tests.gpu.case_table.case import (
    CONV_DEPTHWISE,
    CONV_MMA,
    CONV_MMA_TF32,
    CONV_SIMT,
    CONV_WGMMA,
    CONV_WGMMA_MOMENTS,
    Case,
    program_of,
)
from tests.gpu.case_table.products import TF32, exact_in_tf32
from tests.gpu.convolutions import (
    Convolution,
    channels_last_convolutions,
    convolutions,
    depthwise_convolutions,
    depthwise_layer,
    flattened,
    image_layer,
    random_convolutions,
)
from tests.gpu.transposed import Transposed
from tests.gpu.transposed import drawn as drawn_transposed
from tests.gpu.weight_grads import (
    bulk_weight_grads,
    random_depthwise_grads,
    random_weight_grads,
    weight_grads,
)
from tests.gpu.weight_grads import depthwise as depthwise_grad
from tests.gpu.weight_grads import layer as grad_layer


def window_cases() -> dict[str, Case]:
    """Convolutions out of bulk tensor copies: random ones, and variants that are not taken at these sizes."""
    policy = {"kernels": {"conv": CONV_WGMMA}}
    cases: dict[str, Case] = {}
    for seed in range(RANDOM_WINDOWS):
        name, dtype = f"windows-{seed}", ("f16", "bf16")[seed % 2]
        cases[name] = Case(
            program_of(name, partial(channels_last_convolutions, dtype, seed, WINDOWS_EACH)),
            (CONV_WGMMA,),
            policy,
        )
    table: dict[str, tuple[Convolution, dict[str, object]]] = {
        "split": (image_layer(1, 128, 128, 7), {"cluster_shape": [1, 1, 4]}),
        "shared-b": (image_layer(2, 72, 64, 20), {"cluster_shape": [2, 1, 1]}),
        "shared-a": (image_layer(2, 64, 256, 20), {"cluster_shape": [1, 2, 1]}),
        "wide": (image_layer(2, 64, 256, 20), {"tile": [128, 256]}),
        "narrow": (image_layer(1, 64, 256, 20, 1), {"tile": [64, 64]}),
        "steps": (image_layer(1, 64, 64, 40, 1, 2), {"tile": [128, 64]}),
        "waves": (image_layer(8, 8, 64, 60, after="relu"), {"tile": [128, 64]}),
    }
    for what, (size, taps, variant) in {
        "across": (20, 3, {}),
        "across-shared": (20, 1, {"cluster_shape": [2, 1, 1]}),
        "across-split": (7, 3, {"cluster_shape": [1, 1, 4]}),
    }.items():
        made = image_layer(2, 136, 200, size, taps)
        table[what] = (replace(made, weight_across=True, is_param=False), variant)
    name = "windows-flattened"
    cases[name] = Case(program_of(name, partial(flattened, "f16")), (CONV_WGMMA,), policy)
    for what, (made, variant) in table.items():
        name = f"windows-{what}"
        cases[name] = Case(
            program_of(name, partial(convolutions, "f16", [made])), (CONV_WGMMA,), policy, variant
        )
    return cases


def moment_cases() -> dict[str, Case]:
    """Convolutions that take the moments of what they store: tiles that the result does not fill, a last part of one
    warp's rows, blocks that do several tiles, two blocks that share a weight."""
    policy = {"layouts": {"*": "channels_last"}, "kernels": {"conv_moments": CONV_WGMMA_MOMENTS}}
    table: dict[str, tuple[str, Normed, dict[str, object]]] = {
        "small": ("f16", Normed(1, 64, 72, (9, 16), 1), {"tile": [128, 64]}),
        "waves": ("bf16", Normed(8, 64, 136, (56, 56), 1), {"tile": [64, 64]}),
        "wide": ("bf16", Normed(8, 64, 256, (28, 28), 3), {"tile": [128, 256]}),
        "shared": ("bf16", Normed(4, 128, 128, (28, 28), 3), {"cluster_shape": [2, 1, 1]}),
        "packed": ("f16", Normed(32, 512, 512, (7, 7), 3, is_param=True), {}),
    }
    cases: dict[str, Case] = {}
    for what, (dtype, made, variant) in (
        ("small", ("f16", Normed(1, 64, 72, (9, 16), 1), {"tile": [128, 64]})),
        ("waves", ("bf16", Normed(8, 64, 136, (56, 56), 1), {"tile": [64, 64]})),
        ("wide", ("bf16", Normed(8, 64, 256, (28, 28), 3), {"tile": [128, 128]})),
    ):
        name = f"channel-sums-{what}"
        build = partial(passed_back, made, dtype)
        cases[name] = Case(program_of(name, build), (CONV_WGMMA_MOMENTS,), policy, variant)
    for what, (dtype, made, variant) in table.items():
        name = f"moments-{what}"
        cases[name] = Case(
            program_of(name, partial(normed, made, dtype)), (CONV_WGMMA_MOMENTS,), policy, variant
        )
    return cases


RANDOM_WINDOWS, WINDOWS_EACH = 20, 12
"""Programs of random convolutions, and how many each has."""


def convolution_cases() -> dict[str, Case]:
    """Convolutions of any strides: random ones, and variants that are not taken at these sizes."""
    cases: dict[str, Case] = {}
    for seed in range(RANDOM_CONVOLUTIONS):
        dtype = ("f16", "bf16", "f32")[seed % 3]
        build = partial(random_convolutions, dtype, seed, CONVOLUTIONS_EACH)
        cases[f"convolve-{seed}"] = _convolved(f"convolve-{seed}", dtype, build)
    for seed in range(4):
        dtype, name = ("f32", "f64")[seed % 2], f"convolve-simt-{seed}"
        build = partial(random_convolutions, dtype, 100 + seed, CONVOLUTIONS_EACH)
        cases[name] = _convolved(name, dtype, build, kernel=CONV_SIMT)
    table: dict[str, tuple[str, Convolution, dict[str, object]]] = {
        "stem": ("f16", image_layer(2, 3, 64, 112, 7, 2, last=False), {}),
        "stem-last": ("bf16", image_layer(2, 3, 64, 112, 7, 2), {}),
        "row-major": ("f16", image_layer(2, 128, 128, 28, last=False), {"tile": [128, 64, 32]}),
        "last": ("f16", image_layer(2, 128, 128, 28), {"tile": [128, 64, 64]}),
        "wide": ("bf16", image_layer(2, 64, 200, 28), {"tile": [128, 128, 32]}),
        "cluster": ("f16", image_layer(1, 256, 96, 7), {"split_k": 4, "split_through": "cluster"}),
        "workspace": ("f16", image_layer(1, 256, 96, 7), {"split_k": 8, "split_through": "workspace"}),
        "workspace-row": (
            "bf16",
            image_layer(1, 256, 90, 7, last=False),
            {"split_k": 4, "split_through": "workspace"},
        ),
        "single": ("f16", image_layer(3, 96, 72, 14, 1, last=False), {}),
        "tf32-stem": ("f32", image_layer(2, 3, 64, 112, 7, 2, last=False), {}),
        "tf32-last": ("f32", image_layer(2, 128, 128, 28), {"tile": [128, 64, 32]}),
        "tf32-row-major": ("f32", image_layer(2, 128, 128, 28, last=False), {"tile": [128, 64, 32]}),
        "simt-last": ("f32", image_layer(2, 64, 128, 28), {"tile": [128, 128, 16]}),
        "simt-row-major": ("f32", image_layer(2, 64, 100, 28, last=False), {"tile": [128, 64, 16]}),
        "simt-split": ("f32", image_layer(1, 256, 96, 7), {"split_k": 4}),
        "tf32-workspace": ("f32", image_layer(1, 256, 96, 7), {"split_k": 8, "split_through": "workspace"}),
    }
    name = "convolve-flattened"
    cases[name] = _convolved(name, "f16", partial(flattened, "f16", 2))
    for what, (dtype, made, variant) in table.items():
        name = f"convolve-{what}"
        kernel = CONV_SIMT if what.startswith("simt") else None
        cases[name] = _convolved(name, dtype, partial(convolutions, dtype, [made]), variant or None, kernel)
    return cases


def library_call_cases() -> dict[str, Case]:
    """Convolutions and attention that cuDNN runs, by the plan that it offers."""
    cases: dict[str, Case] = {}
    for short, each in cudnn.PROGRAMS.items():
        name = f"cudnn-{short}"
        make = partial(exact_in_tf32, name, each.build) if each.rounds else program_of(name, each.build)
        # Heads that no kernel of tensor cores takes are fused where the policy asks for it.
        policy = {**each.policy, **({"attention": "cudnn"} if short.startswith("attention") else {})}
        cases[name] = Case(make, (each.kernel,), policy, {}, depth=_SUMS_DEPTH if "f32" in name else 1)
    return cases


def _convolved(
    name: str,
    dtype: str,
    build: Callable[[], Graph],
    variant: Mapping[str, object] | None = None,
    kernel: str | None = None,
) -> Case:
    kernel = kernel or (CONV_MMA_TF32 if dtype == "f32" else CONV_MMA)
    policy = {**TF32, "kernels": {"conv": kernel}}
    make = partial(exact_in_tf32, name, build) if kernel == CONV_MMA_TF32 else program_of(name, build)
    return Case(make, (kernel,), policy, variant, depth=_SUMS_DEPTH if dtype == "f32" else 1)


_SUMS_DEPTH = 4
"""Tensor cores cut sums of f32 off instead of rounding them: 144 steps of k are off by up to 7.5e-6. Sums of thousands
of products are not much closer where each is rounded."""


RANDOM_CONVOLUTIONS, CONVOLUTIONS_EACH = 15, 10
"""Programs of random convolutions, and how many each has."""


def depthwise_cases() -> dict[str, Case]:
    """Depthwise convolutions: random ones, and variants that are not taken at these sizes."""
    policy = {"kernels": {"conv": CONV_DEPTHWISE}}
    last = {**policy, "layouts": {"*": "channels_last"}}
    cases: dict[str, Case] = {}
    for seed in range(RANDOM_DEPTHWISE):
        name, dtype = f"depthwise-{seed}", ("f16", "bf16", "f32")[seed % 3]
        build = partial(depthwise_convolutions, dtype, seed, CONVOLUTIONS_EACH)
        lies = last if seed < RANDOM_DEPTHWISE // 2 else policy
        cases[name] = Case(program_of(name, build), (CONV_DEPTHWISE,), lies, depth=4)
    made = depthwise_layer
    table: dict[str, tuple[str, Convolution, dict[str, object]]] = {
        "mobile": ("f16", made(2, 64, 56), {"vector": 8, "pixels": 4}),
        "mobile-steps": ("bf16", made(2, 96, 57, 3, 2, after="silu"), {"vector": 8, "pixels": 2}),
        "next": ("f16", made(2, 96, 30, 7, after="bias"), {"vector": 8, "pixels": 4}),
        "next-f32": ("f32", made(4, 64, 29, 7, after="gelu"), {"vector": 4, "pixels": 4}),
        "speech": ("bf16", made(2, 256, 201, 31, rank=1, after="silu"), {"vector": 8, "pixels": 4}),
        "rows": ("f16", made(2, 40, 30, 5, last=False, after="residual"), {"pixels": 4, "threads": 128}),
        "residual": ("f16", made(4, 64, 31, after="residual"), {"vector": 8, "pixels": 4}),
        "twice": ("bf16", made(2, 64, 31, multiplier=2), {"vector": 8, "pixels": 2}),
        "block": ("f32", made(2, 64, 13, rank=3, after="residual"), {"vector": 4, "pixels": 2}),
    }
    for what, (dtype, layer_, variant) in table.items():
        name = f"depthwise-{what}"
        build = partial(convolutions, dtype, [layer_])
        lies = last if layer_.result_last else policy
        cases[name] = Case(program_of(name, build), (CONV_DEPTHWISE,), lies, variant, depth=4)
    return cases


def weight_grad_cases() -> dict[str, Case]:
    """Gradients of the weights of convolutions: random ones, and tiles that are not taken at these sizes."""
    cases: dict[str, Case] = {}
    random_ones: dict[str, tuple[str, str, Callable[..., Graph]]] = {
        **{f"{seed}": (MMA_GRAD, ("f16", "bf16")[seed % 2], random_weight_grads) for seed in range(6)},
        **{f"tf32-{seed}": (MMA_TF32_GRAD, "f32", random_weight_grads) for seed in range(3)},
        **{f"simt-{seed}": (SIMT_GRAD, ("f32", "f64")[seed % 2], random_weight_grads) for seed in range(4)},
        **{f"bulk-{seed}": (WGMMA_GRAD, ("f16", "bf16")[seed % 2], bulk_weight_grads) for seed in range(8)},
        **{
            f"depthwise-{seed}": (DEPTHWISE_GRAD, FLOATS[seed % len(FLOATS)], random_depthwise_grads)
            for seed in range(8)
        },
    }
    for seed, (what, (kernel, dtype, build)) in enumerate(random_ones.items()):
        made = partial(build, dtype, seed, CONVOLUTIONS_EACH)
        cases[f"weight_grad-{what}"] = _weight_grad(f"weight_grad-{what}", kernel, made, CONVOLUTIONS_EACH)
    for what, (kernel, dtype, made, variant) in _WEIGHT_GRADS.items():
        build = partial(weight_grads, dtype, [made])
        cases[f"weight_grad-{what}"] = _weight_grad(f"weight_grad-{what}", kernel, build, 1, variant)
    return cases


MMA_GRAD, MMA_TF32_GRAD = "cuda.weight_grad_mma", "cuda.weight_grad_mma_tf32"
WGMMA_GRAD, SIMT_GRAD = "cuda.weight_grad_wgmma", "cuda.weight_grad_simt"
DEPTHWISE_GRAD = "cuda.weight_grad_depthwise"
FLOATS = ("bf16", "f16", "f32", "f64")

_WEIGHT_GRADS: dict[str, tuple[str, str, Convolution, dict[str, object]]] = {
    "layer1": (WGMMA_GRAD, "bf16", grad_layer(8, 64, 64, 56), {"tile": [64, 128]}),
    "layer1-wide": (WGMMA_GRAD, "bf16", grad_layer(8, 64, 64, 56), {"tile": [64, 256]}),
    "layer2": (WGMMA_GRAD, "bf16", grad_layer(8, 128, 128, 28), {"tile": [128, 192]}),
    "layer2-shared": (WGMMA_GRAD, "f16", grad_layer(8, 128, 128, 28), {"cluster_shape": [1, 2, 1]}),
    "layer3-shared": (WGMMA_GRAD, "f16", grad_layer(8, 256, 256, 14), {"cluster_shape": [2, 1, 1]}),
    "layer4": (WGMMA_GRAD, "bf16", grad_layer(8, 512, 512, 7), {"parts": 1}),
    "steps": (WGMMA_GRAD, "bf16", grad_layer(8, 64, 128, 56, 3, 2), {"tile": [128, 128]}),
    "single": (WGMMA_GRAD, "bf16", grad_layer(8, 64, 256, 56, 1), {"tile": [64, 64]}),
    "skip": (WGMMA_GRAD, "bf16", grad_layer(8, 64, 128, 56, 1, 2), {"tile": [128, 64]}),
    "stem": (MMA_GRAD, "bf16", grad_layer(8, 3, 64, 224, 7, 2), {"tile": [64, 96, 64]}),
    "stem-row-major": (MMA_GRAD, "f16", grad_layer(4, 3, 64, 112, 7, 2, last=False), {"tile": [64, 64, 32]}),
    "row-major": (MMA_GRAD, "f16", grad_layer(4, 64, 64, 28, last=False), {"tile": [64, 64, 32]}),
    "large-tile": (MMA_GRAD, "bf16", grad_layer(4, 128, 128, 28), {"tile": [128, 128, 64]}),
    "tf32": (MMA_TF32_GRAD, "f32", grad_layer(4, 64, 64, 28), {"tile": [64, 64, 32]}),
    "simt": (SIMT_GRAD, "f32", grad_layer(4, 64, 64, 28), {"tile": [64, 64, 16]}),
    "mobile": (DEPTHWISE_GRAD, "bf16", depthwise_grad(8, 144, 56), {"pixels": 4}),
    "mobile-steps": (DEPTHWISE_GRAD, "f16", depthwise_grad(8, 96, 57, 3, 2), {"pixels": 2}),
    "mobile-rows": (DEPTHWISE_GRAD, "f32", depthwise_grad(4, 40, 30, 5, last=False), {"pixels": 4}),
}
"""Kernel, type, gradient, and the tile or parts that it is summed with."""


def _weight_grad(
    name: str,
    kernel: str,
    build: Callable[[], Graph],
    count: int,
    variant: Mapping[str, object] | None = None,
) -> Case:
    policy = {**TF32, "kernels": {f"grad_c{number}": kernel for number in range(count)}}
    make = partial(exact_in_tf32, name, build) if kernel == MMA_TF32_GRAD else program_of(name, build)
    return Case(make, (kernel,), policy, variant, depth=_SUMS_DEPTH)


def transposed_cases() -> dict[str, Case]:
    """Transposed convolutions: random ones, and tiles that are not taken at these sizes."""
    cases: dict[str, Case] = {}
    for seed in range(6):
        for what, kernel, bulk in (("bulk", TRANSPOSE_WGMMA, True), ("tiles", TRANSPOSE_MMA, False)):
            name = f"transposed-{what}-{seed}"
            cases[name] = _transposed(name, kernel, drawn_transposed(seed, bulk=bulk))
    for what, variant in _TRANSPOSED.items():
        name = f"transposed-{what}"
        cases[name] = _transposed(name, TRANSPOSE_WGMMA, _STEP, variant)
    return cases


TRANSPOSE_MMA, TRANSPOSE_WGMMA = "cuda.conv_transpose_mma", "cuda.conv_transpose_wgmma"
_STEP = Transposed("bf16", 8, 128, 128, (28, 28), (3, 3), (2, 2), (1, 1), (1, 1), True)
"""What the second stage of a residual network passes back to the first."""
_TRANSPOSED: dict[str, dict[str, object]] = {
    "step": {"tile": [128, 128]},
    "step-narrow": {"tile": [128, 64]},
    "step-shared": {"cluster_shape": [2, 1, 1]},
    "step-low": {"tile": [64, 64]},
}


def _transposed(
    name: str, kernel: str, made: Transposed, variant: Mapping[str, object] | None = None
) -> Case:
    policy = {"kernels": {"up": kernel}}
    return Case(program_of(name, made.graph), (kernel,), policy, variant, depth=_SUMS_DEPTH)


RANDOM_DEPTHWISE = 6
"""Programs of random depthwise convolutions, of `CONVOLUTIONS_EACH`."""
