"""The numbers of a policy that products of 8 bits need: ranges, smoothing factors and corrections, from runs of f32."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from aicf.calibration.histograms import Histogram
from aicf.calibration.observe_products import ObserveProductsPass
from aicf.calibration.observe_rounding import MISSING, ObserveRoundingPass
from aicf.calibration.observed_names import Observed, observed_in
from aicf.calibration.programs import Programs
from aicf.calibration.ranges import Statistics, by_product, histograms, shortened
from aicf.calibration.request import Request
from aicf.compilation.extensions import at
from aicf.policies.policy import Policy
from aicf.policies.precision_policy import MINMAX, SYMMETRIC, PrecisionPolicy
from aicf.runtime.tensors import Array


def observe(
    programs: Programs, request: Request, start: PrecisionPolicy
) -> tuple[PrecisionPolicy, list[dict[str, Array]]]:
    """The section with ranges, smoothing and corrections, and the outputs of the f32 model for each sample.

    Raises as `calibrate`.
    """
    has_values = request.method != MINMAX
    module_pass = ObserveProductsPass(channels=bool(request.smooth), values=has_values)
    program = programs.compile(Policy(), *at("static", module_pass))
    statistics, outputs = Statistics(), list[dict[str, Array]]()
    for found in programs.runs(program, "observing"):
        statistics.add(found)
        outputs.append({name: array for name, array in found.items() if Observed.of(name) is None})
    smoothing = statistics.smoothing(request.smooth) if request.smooth else {}
    limits = statistics.limits(smoothing)
    if has_values:
        found = histograms(limits, smoothing, programs.runs(program, "counting"))
        limits = {each: _range(found[each], request) for each in limits}
    section = replace(
        start,
        ranges=by_product(limits),
        smoothing={name: tuple(map(float, factors)) for name, factors in sorted(smoothing.items())},
    )
    return (_corrected(programs, section) if request.correct_bias else section), outputs


def _range(histogram: Histogram, request: Request) -> tuple[float, float]:
    activations = request.activations if request.has_integers else SYMMETRIC  # a float has its sign apart
    return histogram.range(request.method, request.percentile, activations)


def _corrected(programs: Programs, section: PrecisionPolicy) -> PrecisionPolicy:
    """The section with the mean of what rounding takes away from each product.

    Source: M. Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction", 2019, the
    correction from means that are measured.
    """
    program = programs.compile(Policy(precision=section), *at("static", ObserveRoundingPass()))
    sums: dict[str, list[Array]] = {}
    rows = [_rows(call) for call in programs.samples.calls]
    for outputs in programs.runs(program, "correcting"):
        for each, means in observed_in(outputs).items():
            if each.kind == MISSING:
                sums.setdefault(each.product, []).append(means.astype(np.float64))
    return replace(section, corrections=dict(_means(sums, rows)))


def _rows(call: Mapping[str, Array]) -> int:
    """What a call counts for: as many elements as its inputs have."""
    return sum(array.size for array in call.values()) or 1


def _means(
    sums: Mapping[str, Sequence[Array]], rows: Sequence[int]
) -> Iterator[tuple[str, tuple[float, ...]]]:
    for product in sorted(sums):
        mean = np.average(np.stack(sums[product]), axis=0, weights=rows)
        yield product, tuple(shortened(float(each)) for each in mean)
