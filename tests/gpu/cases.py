"""The table of the GPU tests: programs, the kernels that must run them, and how exact they must be.

A case pins a kernel by the policy, or one of its variants (a tile, a split) by a tuning table of one row. Nothing here
needs a GPU: `prepare` compiles the same table where there is none.
"""

from __future__ import annotations

from functools import partial

from tests.gpu import programs
from tests.gpu.case_table.attention import (
    attention_cases,
    attention_gradient_cases,
    attention_step_cases,
)
from tests.gpu.case_table.blocks import blocks_cases
from tests.gpu.case_table.case import (
    ATTENTION_STEP,
    CONV_MMA,
    DROPPING,
    GENERATED,
    MULTI_TENSOR,
    SIMT,
    Case,
    program_of,
)
from tests.gpu.case_table.convolutions import (
    convolution_cases,
    depthwise_cases,
    library_call_cases,
    moment_cases,
    transposed_cases,
    weight_grad_cases,
    window_cases,
)
from tests.gpu.case_table.generated import generated_cases, indexing_cases
from tests.gpu.case_table.models import (
    batch_cases,
    model_cases,
    multi_output_cases,
    policy_cases,
    random_cases,
    single_program_cases,
)
from tests.gpu.case_table.narrow import (
    float8_cases,
    integer_convolution_cases,
    integer_product_cases,
    quantised_network_cases,
)
from tests.gpu.case_table.pools import pool_cases
from tests.gpu.case_table.products import product_cases, rounded_product_cases
from tests.gpu.case_table.training import (
    CASTS,
    METAS,
    STEP,
    UPDATES,
    casts_program,
    gradient_cases,
    metas_program,
    step_program,
    updates_program,
)
from tests.gpu.case_table.variants import variant_cases
from tests.gpu.random_ops import RANDOM_OPS
from tests.gpu.training import TRAININGS
from tests.support.cast_weights import WEIGHTS

STATELESS: dict[str, Case] = {
    **generated_cases(),
    **indexing_cases(),
    **blocks_cases(),
    **product_cases(),
    **rounded_product_cases(),
    **integer_product_cases(),
    **integer_convolution_cases(),
    **float8_cases(),
    **quantised_network_cases(),
    **variant_cases(),
    **window_cases(),
    **moment_cases(),
    **convolution_cases(),
    **library_call_cases(),
    **depthwise_cases(),
    **transposed_cases(),
    **weight_grad_cases(),
    **pool_cases(),
    **attention_cases(),
    **attention_step_cases(),
    **multi_output_cases(),
    **model_cases(),
    **gradient_cases(),
    **single_program_cases(),
    **policy_cases(),
    **batch_cases(),
    **random_cases(),
}
TOKEN = "token-of-a-decoder"
"""The case that writes a row of its state in place."""

TRAINING_CASES: dict[str, Case] = {
    f"train-{name}": Case(training.program, (MULTI_TENSOR,), options=training.options)
    for name, training in TRAININGS.items()
}
"""Steps that update parameters, states and counters; looked at by `test_training`."""

RANDOM_OP_CASES: dict[str, Case] = {
    name: Case(ops.program, (), depth=4, options=DROPPING) for name, ops in RANDOM_OPS.items()
}
"""Looked at by `test_every_op`."""

CASES: dict[str, Case] = {
    **STATELESS,
    **RANDOM_OP_CASES,
    **TRAINING_CASES,
    **attention_gradient_cases(),
    STEP: Case(step_program, (SIMT, GENERATED)),
    UPDATES: Case(updates_program, (MULTI_TENSOR,)),
    CASTS: Case(
        casts_program, (MULTI_TENSOR, CONV_MMA), {"layouts": {"*": "channels_last"}}, depth=len(WEIGHTS)
    ),
    **{
        name: Case(metas_program, (GENERATED,), options={"meta": who, "check_finite": True})
        for who, name in METAS.items()
    },
    TOKEN: Case(
        program_of(TOKEN, partial(programs.attention_step, "f16", 200, 64, state=True)), (ATTENTION_STEP,)
    ),
}
"""By name."""
