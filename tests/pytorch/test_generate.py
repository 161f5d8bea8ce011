"""`generate` of transformers with a static cache: the compiled model gives the tokens that eager mode gives."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import transformers

import aicf.pytorch

pytestmark = [
    pytest.mark.peers,
    *(pytest.mark.filterwarnings(f"ignore:.*{text}") for text in ("isinstance.treespec", "`torch.jit")),
]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def test_tokens_of_a_static_cache() -> None:
    """One program reads the prompt, one makes each further token; both write the cache in place."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=100,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    prompt = torch.randint(0, 100, (1, 7))
    options = {"max_new_tokens": 12, "do_sample": False, "cache_implementation": "static"}
    options |= {"disable_compile": True}  # by itself, with another backend
    wanted = model.generate(prompt, **options)
    model.forward = torch.compile(model.forward, backend=aicf.pytorch.aicf_backend)
    assert torch.equal(model.generate(prompt, **options), wanted)
    report = aicf.pytorch.report(model)
    assert [graph.calls for graph in report.graphs] == [1, 11] and not report.eager
    assert torch.equal(model.generate(prompt, **options), wanted)
    assert [len(graph.programs) for graph in aicf.pytorch.report(model).graphs] == [1, 1]
