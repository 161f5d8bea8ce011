"""Greedy tokens of a Llama from a GGUF file against `transformers` on the same weights, widened to f32.

    python benchmarks/llm_tokens.py model.gguf [--prompts 20] [--tokens 128] [--target cpu]

At each step the two may differ only where the two best logits of `transformers` lie within 1e-3 of each other; then the
text goes on with the token of `transformers` in both. Any other difference is an error.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import transformers
import typer

ROOT = Path(__file__).parent.parent
sys.path[0] = str(ROOT / "benchmarks" / "host")

from timing import machine, write_result  # noqa: E402

import aicf.llm  # noqa: E402
from aicf.frontends.gguf.reader import GgufFile, read_gguf  # noqa: E402
from aicf.runtime.tensors import Array  # noqa: E402

NEAR = 1e-3
QUESTIONS = (
    "What is a compiler?",
    "Write a poem about the sea.",
    "How do I bake bread?",
    "Explain recursion to a child.",
    "List five animals that can fly.",
)


def reference(file: GgufFile) -> Any:
    """The model of `transformers`, with the file's weights."""
    fields: Any = file.fields
    heads, kv_heads = (fields[f"llama.attention.{name}"] for name in ("head_count", "head_count_kv"))
    config = transformers.LlamaConfig(
        vocab_size=file.tensor("token_embd.weight").shape[0],
        hidden_size=fields["llama.embedding_length"],
        intermediate_size=fields["llama.feed_forward_length"],
        num_hidden_layers=fields["llama.block_count"],
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=fields["llama.context_length"],
        rms_norm_eps=fields["llama.attention.layer_norm_rms_epsilon"],
        rope_parameters={"rope_type": "default", "rope_theta": fields["llama.rope.freq_base"]},
        tie_word_embeddings="output.weight" not in file.tensors,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    arrays = {
        _name(name): torch.tensor(_halves(name, file.array(name), heads, kv_heads)) for name in file.tensors
    }
    missing, unexpected = model.load_state_dict(arrays, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    return model


NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def _name(name: str) -> str:
    """`transformers`' name of a tensor of a file."""
    *block, kind, end = name.split(".")
    layer = f"model.layers.{block[1]}." if block else ""
    return f"{layer}{NAMES[kind]}.{end}"


def _halves(name: str, array: Array, heads: int, kv_heads: int) -> Array:
    """Rows of queries and keys with the first elements of all rotary pairs before the second ones."""
    count = {"attn_q": heads, "attn_k": kv_heads}.get(name.split(".")[-2])
    if count is None:
        return np.ascontiguousarray(array)
    pairs = array.reshape(count, -1, 2, array.shape[1])
    return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(array.shape))


def compare(ours: aicf.llm.LanguageModel, theirs: Any, prompt: list[int], tokens: int) -> tuple[int, int]:
    """Tokens that were compared, and those that differ between logits that are near. Exits on any other difference."""
    known, near, cache, ends = list(prompt), 0, None, ours.tokenizer.ends
    feed = torch.tensor([prompt])
    for number in range(tokens):
        with torch.no_grad():
            result = theirs(feed, past_key_values=cache, use_cache=True)
        logits, cache = result.logits[0, -1].numpy(), result.past_key_values
        wanted = int(np.argmax(logits))
        answer = list(ours.tokens(known, max_tokens=1))
        found = answer[0] if answer else wanted if wanted in ends else ends[0]  # an end is not told
        if found != wanted:
            if abs(float(logits[found] - logits[wanted])) > NEAR:
                sys.exit(
                    f"token {number}: {found} where transformers has {wanted}, {logits[[found, wanted]]}"
                )
            near += 1
        if wanted in ends:
            return number + 1, near
        known.append(wanted)
        feed = torch.tensor([[wanted]])
    return tokens, near


def main(
    model: Annotated[Path, typer.Argument(help="a GGUF file")],
    prompts: Annotated[int, typer.Option(help="how many")] = 20,
    tokens: Annotated[int, typer.Option(help="most of an answer")] = 128,
    target: Annotated[str, typer.Option(help="of AICF")] = "cpu",
    output: Annotated[Path | None, typer.Option(help="a JSON file")] = None,
) -> None:
    """See the module."""
    ours, theirs = aicf.llm.load(model, target, context=tokens + 128), reference(read_gguf(model))
    assert ours.template is not None
    compared = near = 0
    for number in range(prompts):
        question = QUESTIONS[number % len(QUESTIONS)] + " Please." * (number // len(QUESTIONS))
        prompt = ours.template.prompt([{"role": "user", "content": question}])
        found = compare(ours, theirs, ours.tokenizer.encode(prompt), tokens)
        compared, near = compared + found[0], near + found[1]
        print(f"{question}: {found[0]} tokens, {found[1]} between near logits", flush=True)
    print(f"{compared} tokens are equal but for {near} between logits within {NEAR}")
    if output is not None:
        counts = {"prompts": prompts, "tokens": tokens, "compared": compared, "between_near_logits": near}
        write_result(
            output, {"machine": machine(), "model": model.name, "target": target, "near": NEAR, **counts}
        )


if __name__ == "__main__":
    typer.run(main)
