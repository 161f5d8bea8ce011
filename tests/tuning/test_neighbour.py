"""Which instruction of a model stands between two measured runs on a device where instructions may start early."""

from __future__ import annotations

import pytest

from aicf.compilation.record import Options
from aicf.frontends.text import make_context
from aicf.passes.bodies.workload import target_of
from aicf.passes.support.policy import policy_of
from aicf.tuning.candidates import candidates, grouped
from aicf.tuning.plan import neighbour_of

from .programs import silent
from .test_shipped_table import programs


@pytest.mark.parametrize(
    ("name", "neighbour"),
    [("bert", "layer.0.attention.output.LayerNorm"), ("mlp_chain", None), ("softmax", None)],
)
def test_the_cheapest_instruction_whose_kernel_has_no_variants(name: str, neighbour: str | None):
    """A normalisation for the encoder. Products of one token run next to each other, and so does what is alone."""
    model = {
        "bert": lambda: programs().bert_encoder(1, 128, programs().EncoderConfig(layers=1)),
        "mlp_chain": lambda: programs().mlp_chain(layers=1),
        "softmax": lambda: programs().softmax(1024, 1024),
    }[name]()
    module = grouped(model, Options("cuda:sm_90a", "", "", 1), make_context(), silent)
    found = candidates(module, 2)
    chosen = neighbour_of(found, target_of(module), policy_of(module))
    assert (None if chosen is None else found[chosen].group.id.data) == neighbour
