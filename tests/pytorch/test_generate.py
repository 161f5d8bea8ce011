"""`generate` of transformers with a static cache: the compiled model gives the tokens that eager mode gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

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


def llama() -> transformers.PreTrainedModel:
    config = transformers.LlamaConfig(
        vocab_size=100,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    return transformers.LlamaForCausalLM(config).eval()


def gpt2() -> transformers.PreTrainedModel:
    config = transformers.GPT2Config(
        vocab_size=100, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=2
    )
    return transformers.GPT2LMHeadModel(config).eval()


def test_tokens_of_a_static_cache() -> None:
    """One program reads the prompt, one makes each further token; both write the cache in place."""
    torch.manual_seed(0)
    model = llama()
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


@pytest.mark.parametrize("make", [llama, gpt2])
def test_tokens_where_generate_compiles(make: Callable[[], transformers.PreTrainedModel]) -> None:
    """With the mode `reduce-overhead`, which is the default of `CompileConfig`."""
    torch.manual_seed(0)
    model, prompt = make(), torch.randint(0, 100, (1, 7))
    options: dict[str, Any] = {"max_new_tokens": 12, "do_sample": False, "cache_implementation": "static"}
    wanted = model.generate(prompt, **options, disable_compile=True)
    config = transformers.CompileConfig(backend="aicf")
    config._compile_all_devices = True
    found = model.generate(prompt, **options, compile_config=config)
    assert torch.equal(found, wanted)
    assert sum(graph.calls for graph in aicf.pytorch.report(model).graphs) >= 11
