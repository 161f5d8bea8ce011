"""The programs that calibration makes of one model, and their runs on the samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from aicf.calibration.samples import SampleSet
from aicf.compilation.compiled import CompiledModel
from aicf.compilation.compiling import compile_own
from aicf.compilation.extensions import Extension
from aicf.compilation.record import Options
from aicf.compilation.sources import Source
from aicf.passes.pipelines.collector import collector_paused
from aicf.policies.policy import Policy
from aicf.runtime.tensors import Array
from aicf.support.progress import Step


@dataclass(frozen=True)
class Programs:
    """Compiles one model in several ways.

    Args:
        source: As it was read, for the sizes of the samples.
        weights: That were given.
        options: What the passes are told; the policy is another one for each program.
        passes: Of the caller.
        samples: What the programs run on.
        step: Is told what is being done.
    """

    source: Source
    weights: Mapping[str, Array]
    options: Options
    passes: Sequence[Extension]
    samples: SampleSet
    step: Step

    def compile(self, policy: Policy, *added: Extension) -> CompiledModel:
        """The program of a policy, with passes of calibration after those of the caller. Raises as `aicf.compile`."""
        passes = (*self.passes, *added)
        options = replace(self.options, policy=policy.to_line(), passes=tuple(each.text for each in passes))
        own = replace(self.source, module=self.source.module.clone())
        with collector_paused():
            return compile_own(own, self.weights, options, passes, self.source.name, self.step)

    def runs(
        self, program: CompiledModel, what: str, more: Mapping[str, Array] | None = None
    ) -> Iterator[dict[str, Array]]:
        """The outputs for each sample in turn, with inputs that the model does not have in `more`."""
        total = len(self.samples.calls)
        for number, feeds in enumerate(self.samples.calls, 1):
            self.step(f"{what}: sample {number} of {total}")
            yield program.run({**feeds, **(more or {})})
