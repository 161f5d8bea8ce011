"""`aicf calibrate`: how to lower the precision of a model, found with sample inputs, as a policy for `--policy`."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import Annotated, cast

import typer

from aicf.support.dataclass_json import to_json_value
from aicf.tools.cli.arguments import (
    Dims,
    Json,
    Model,
    Policy,
    Strict,
    Target,
    Threads,
    Training,
    Tuning,
    Values,
    Weights,
    joined_dims,
)
from aicf.tools.cli.outputs import check_output


class To(Enum):
    """Values of `--to`."""

    INT8 = "int8"
    FP8 = "fp8"
    BF16 = "bf16"
    F16 = "f16"


class Rest(Enum):
    """Values of `--rest`."""

    F32 = "f32"
    BF16 = "bf16"
    F16 = "f16"


class Method(Enum):
    """Values of `--method`."""

    MINMAX = "minmax"
    PERCENTILE = "percentile"
    ENTROPY = "entropy"


class Activations(Enum):
    """Values of `--activations`."""

    ASYMMETRIC = "asymmetric"
    SYMMETRIC = "symmetric"


def calibrate_command(
    model: Model,
    samples: Annotated[
        Path,
        typer.Argument(
            metavar="SAMPLES",
            help="Inputs by name, an .npz file; the samples lie along the first dimension.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="Policy to write, .yaml or .json.", show_default=False),
    ],
    weights: Weights = None,
    target: Target = None,
    dims: Dims = None,
    values: Values = "",
    policy: Policy = None,
    tuning: Tuning = None,
    threads: Threads = 1,
    strict: Strict = False,
    training: Training = False,
    to: Annotated[
        To | None, typer.Option(help="What f32 becomes; int8 by default.", show_default=False)
    ] = None,
    rest: Annotated[
        Rest | None,
        typer.Option(help="What is no product of 8 bits becomes; f32 by default.", show_default=False),
    ] = None,
    method: Annotated[
        Method | None,
        typer.Option(help="How ranges follow from the values seen; minmax by default.", show_default=False),
    ] = None,
    percentile: Annotated[float, typer.Option(help="Percentage of the values that a range holds.")] = 99.99,
    activations: Annotated[
        Activations | None,
        typer.Option(help="Integers of what depends on inputs; asymmetric by default.", show_default=False),
    ] = None,
    smooth: Annotated[
        float, typer.Option(help="How much spread of channels is moved into weights, 0 to 1.")
    ] = 0.0,
    correct_bias: Annotated[
        bool, typer.Option("--correct-bias", help="Add the mean of what rounding takes away.")
    ] = False,
    keep: Annotated[
        str | None,
        typer.Option(
            metavar="METRIC=LOSS",
            help="How much accuracy may be lost, as in top1=0.5% or error=1%; ops stay f32 until that holds.",
            show_default=False,
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(help="The right label of each sample, an .npy file.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Find out how to lower the precision of a model, and what that costs.

    The policy that is written is for `aicf compile --policy`. What the samples cost in accuracy is printed, op by op.
    """
    from aicf.calibration import calibrate

    check_output(output, "the policy", model, samples, weights, policy, labels, tuning)
    found = calibrate(
        model,
        samples,
        to=None if to is None else to.value,
        rest=None if rest is None else rest.value,
        method=None if method is None else method.value,
        percentile=percentile,
        activations=None if activations is None else activations.value,
        smooth=smooth,
        correct_bias=correct_bias,
        keep=keep,
        labels=labels,
        weights=weights,
        target=target,
        dims=joined_dims(dims),
        values=values,
        policy=policy,
        tuning=tuning,
        threads=threads,
        strict=strict,
        training=training,
    )
    found.save(output)
    if as_json:
        print(json.dumps(cast(object, to_json_value(found.report)), indent=2))
    else:
        print(f"{output}: {found.report}")
