"""Reading a model to be calibrated, for the sizes of its samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aicf.calibration.programs import Programs
from aicf.calibration.samples import Samples, SampleSet, read_samples
from aicf.compilation.extensions import Extension
from aicf.compilation.record import Options
from aicf.compilation.sources import Model, Source, exported_model, read_weighted, source_of
from aicf.compilation.weight_arrays import Weights, read_weights
from aicf.dialects.traits import TrainingOnly
from aicf.engines.interface import Interface
from aicf.errors import PolicyError
from aicf.frontends.text import make_context
from aicf.inference.models import exported_interface, interface_of
from aicf.passes.onnx.values import parse_values
from aicf.support.progress import Step


def read_programs(
    model: Model,
    weights: Weights | None,
    samples: Samples,
    options: Options,
    passes: Sequence[Extension],
    step: Step,
) -> Programs:
    """The programs of a model.

    Args:
        options: `dims` are the sizes that were given; empty takes those of the samples.

    Raises:
        PolicyError: it is no model that calibration works on.
        InputMismatch: the samples do not fit it.
    """
    step("reading")
    given, values = read_weights(weights), parse_values(options.values)
    if (exported := exported_model(model)) is not None:
        found = _samples(samples, exported_interface(exported, values), options.dims)
        source = source_of(exported, found.dims)
        return Programs(source, given, replace(options, dims=""), passes, found, step)
    source, own = read_weighted(model, given, make_context())
    _check(source)
    found = _samples(samples, interface_of(source, values, training=options.training), options.dims)
    return Programs(source, own, replace(options, dims=found.dims), passes, found, step)


def _check(source: Source) -> None:
    """Raises PolicyError for a program whose element types are fixed."""
    if source.is_emit or source.has_groups:
        raise PolicyError(
            "calibrate: the program has groups or instructions, whose element types are fixed; give the model that it "
            "was made from"
        )
    if any(op.has_trait(TrainingOnly) for op in source.module.walk()):
        raise PolicyError(
            "calibrate: a training step computes as it is written; give the model that it trains, with its weights"
        )


def _samples(samples: Samples, interface: Interface | None, dims: str) -> SampleSet:
    if interface is None:
        raise PolicyError(
            "calibrate: the program keeps state or has several functions, so samples are no calls of their own; give "
            "one function without state"
        )
    return read_samples(samples, interface, dims)
