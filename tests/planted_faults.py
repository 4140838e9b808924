"""Planted faults: wrong laws that people really write, put in one at a time; the operator tests must notice each.

``python -m tests.planted_faults`` lists every fault with the tests that caught it; the exit status is 1 if one slipped through.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import msgspec

from calc.operators import (
    attention,
    compressed_attention,
    embedding,
    experts,
    latent_attention,
    parameters,
    recurrent,
    state_space,
)
from calc.operators import work as step_work
from calc.operators.cache_law import CacheLaw
from tests.operators import architectures as known
from tests.operators import (
    test_attention,
    test_experts,
    test_golden_cache,
    test_golden_compute,
    test_latent_attention,
    test_parameters,
    test_recurrent,
    test_step,
)
from tests.operators.builders import check_golden, mixer_operators, operator, step, total


@dataclass(frozen=True)
class Fault:
    """``plant`` makes one law wrong for as long as its context lasts; ``tests`` are the functions that ought to fail."""

    name: str
    plant: Callable[[], Any]
    tests: tuple[Callable[[], None], ...]


@contextmanager
def patched(*patches: Any) -> Iterator[None]:
    with ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield


def wrap(module: Any, name: str, change: Callable[..., Any]) -> Any:
    """Patch ``module.name`` with ``change(original, *arguments)``."""
    original = getattr(module, name)

    def replacement(*args: Any, **kwargs: Any) -> Any:
        return change(original, *args, **kwargs)

    return mock.patch.object(module, name, replacement)


# --- what is planted ---------------------------------------------------------------------------------------------------------


def latent_doubled() -> Any:
    """Latent keys and values counted as two vectors."""

    def twice(original: Any, *args: Any) -> CacheLaw:
        law: CacheLaw = original(*args)
        return replace(law, value_vectors=law.key_vectors)

    return wrap(latent_attention, "cache_law", twice)


def latent_split_over_ranks() -> Any:
    """The latent divided by the tensor parallel size."""

    def divided(original: Any, mixer: Any, hidden_size: int, tensor: int) -> CacheLaw:
        law: CacheLaw = original(mixer, hidden_size, tensor)
        ((count, width),) = law.key_vectors
        return replace(law, key_vectors=((count, width // tensor),))

    return wrap(latent_attention, "cache_law", divided)


def window_ignored() -> Any:
    """Windows take part in nothing: pairs, reads and storage are those of full attention."""

    def unbounded(original: Any, *args: Any) -> CacheLaw | None:
        law: CacheLaw | None = original(*args)
        return law and replace(law, limit=None)

    return patched(
        wrap(step_work, "window_pairs", lambda _, new, cached, window: step_work.causal_pairs(new, cached)),
        wrap(step_work, "window_keys", lambda _, new, cached, window: cached + new),
        wrap(attention, "cache_law", unbounded),
    )


def state_per_token() -> Any:
    """A recurrent state charged once per token of context."""

    def growing(original: Any, matrix: int, convolution: int, **rest: Any) -> CacheLaw:
        law: CacheLaw = original(matrix, convolution, **rest)
        return replace(law, extra_bytes_per_token=law.state_bytes(4, 2), state_elements=0, convolution_elements=0)

    return wrap(recurrent, "state_law", growing)


def state_read_only() -> Any:
    """A recurrent state read but not written back."""

    def half(original: Any, *args: Any, **kwargs: Any) -> Any:
        found = original(*args, **kwargs)
        return replace(found, state_bytes=found.state_bytes / 2)

    return wrap(recurrent, "core", half)


def convolution_keeps_all_columns() -> Any:
    """K convolution columns kept where K - 1 are needed."""

    def one_more(original: Any, mixer: Any, hidden_size: int, tensor: int) -> CacheLaw:
        return original(msgspec.structs.replace(mixer, conv_kernel=mixer.conv_kernel + 1), hidden_size, tensor)

    return wrap(state_space, "cache_law", one_more)


def experts_by_minimum() -> Any:
    """min(E, k T) experts read."""
    return mock.patch.object(experts, "distinct_experts", lambda e, k, tokens, *_: min(e, k * tokens))


def experts_as_active() -> Any:
    """k experts read at any batch."""
    return mock.patch.object(experts, "distinct_experts", lambda e, k, tokens, *_: k)


def heads_from_hidden_size() -> Any:
    """head_dim = hidden_size / heads."""

    def wrong(original: Any, mixer: Any, hidden_size: int, tensor: int) -> Any:
        width = hidden_size // mixer.num_attention_heads
        return original(msgspec.structs.replace(mixer, head_dim=width, v_head_dim=width), hidden_size, tensor)

    return wrap(attention, "weights", wrong)


def embedding_streamed() -> Any:
    """The whole embedding table read in every step."""

    def streamed(original: Any, model: Any, ctx: Any) -> Any:
        before, after = original(model, ctx)
        table = 2 * model.hidden_size * (model.vocab_size or 0)
        return [replace(o, weight_bytes=table) if o.name == "embedding" else o for o in before], after

    return wrap(embedding, "operators", streamed)


def causal_half_lost() -> Any:
    """Every new token sees every token."""
    return mock.patch.object(step_work, "causal_pairs", lambda new, cached: new * (new + cached))


def prefix_forgotten() -> Any:
    """A chunk sees itself only: s^2 / 2 whatever is cached."""
    return mock.patch.object(step_work, "causal_pairs", lambda new, cached: new * (new + 1) // 2)


def logits_for_all_tokens() -> Any:
    """The LM head applied to the whole prompt."""
    return mock.patch.object(step_work.Work, "logit_rows", property(lambda self: self.tokens))


def always_absorbed() -> Any:
    """Latent attention never expands, not even a long prompt."""

    def absorbed(original: Any, mixer: Any, heads: int, work: Any) -> Any:
        with mock.patch.object(latent_attention, "pair_flops", return_value=(0, 1, 0)):
            return original(mixer, heads, work)

    return wrap(latent_attention, "paths", absorbed)


def grouped_query_ignored() -> Any:
    """Keys and values cached for every query head."""

    def ungrouped(original: Any, mixer: Any, *args: Any) -> Any:
        return original(msgspec.structs.replace(mixer, num_key_value_heads=mixer.num_attention_heads), *args)

    return wrap(attention, "cache_law", ungrouped)


def shared_cache_free_to_read() -> Any:
    """A layer that shares another's cache charged no read."""

    def free(original: Any, mixer: Any, *args: Any, **kwargs: Any) -> Any:
        found = original(mixer, *args, **kwargs)
        return replace(found, kv_read_bytes=0) if mixer.kv_source == "shared" else found

    return wrap(attention, "core", free)


def compressed_entries_per_token() -> Any:
    """Compressed entries counted for every token instead of one in ``ratio``."""

    def dense(original: Any, *args: Any) -> Any:
        return tuple(replace(law, tokens_per_entry=1) for law in original(*args))

    return wrap(compressed_attention, "cache_law", dense)


def shared_blocks_held_per_depth() -> Any:
    """Blocks that several depths share counted at each of them."""

    def alone(original: Any, model: Any, names: Any, *args: Any) -> Any:
        kinds = {n: msgspec.structs.replace(k, shared_weights=None) for n, k in model.layer_kinds.items()}
        return original(msgspec.structs.replace(model, layer_kinds=kinds), names, *args)

    return wrap(parameters, "layer_weights", alone)


def cross_keys_made_every_step() -> Any:
    """Encoder keys and values projected again in each decode step."""

    def again(original: Any, count: Any, context_len: Any, new_tokens: Any = 1) -> Any:
        done = original(count, context_len, new_tokens)
        return replace(done, groups=tuple(replace(g, writes_source=True) for g in done.groups))

    return wrap(step_work, "decode", again)


# --- the tests that ought to notice --------------------------------------------------------------------------------------------


def _windows_bound_decode() -> None:
    full, sliding = known.GPT_OSS_120B.layer_kinds["full"].mixers[0], known.GPT_OSS_120B.layer_kinds["sliding"].mixers[0]
    reads = [operator(mixer_operators(m, step_work.decode(1, 4096), hidden_size=2880), "attention") for m in (full, sliding)]
    assert reads[0].kv_read_bytes == 32 * reads[1].kv_read_bytes


def _head_width_of_gpt_oss() -> None:
    check_golden("params.gpt_oss_120b", parameters.count_parameters(known.GPT_OSS_120B).total)


def _causal_prefill_of_70b() -> None:
    operators = step(known.LLAMA_70B, step_work.prefill(1, 8192))
    check_golden("time.prefill.llama_70b.8192.attn", total(operators, "flops", "attention"))
    linear = [o for o in operators if o.op_class == "gemm" and o.name != "lm_head"]
    check_golden("time.prefill.llama_70b.8192.linear", total(linear, "flops"))


def _chunk_on_a_prefix() -> None:
    chunk = step_work.Work("prefill", (step_work.Requests(1, 2048, 6144),))
    mixer = known.LLAMA_8B.layer_kinds["layer"].mixers[0]
    check_golden("pairs.causal.S2048.P6144", float(operator(mixer_operators(mixer, chunk), "attention").shape["pairs"]))


def _group_sizes() -> None:
    test_golden_cache.test_per_head_caches()


def _shared_layers_read() -> None:
    from calc.profiles.model import FullAttention

    test_attention.test_layers_that_share_a_cache_store_nothing_and_still_read_it(FullAttention)


def _states_of_mamba2() -> None:
    test_recurrent.test_states_are_read_and_written_back_once_per_step(test_recurrent.MAMBA2, "fp32")


FAULTS = (
    Fault("latent keys and values doubled", latent_doubled, (test_golden_cache.test_latent_caches,)),
    Fault(
        "latent cache divided by tensor parallelism",
        latent_split_over_ranks,
        (test_golden_cache.test_latent_cache_is_whole_on_every_rank,),
    ),
    Fault("window ignored", window_ignored, (test_golden_cache.test_windows_and_chunks, _windows_bound_decode)),
    Fault(
        "state charged per token",
        state_per_token,
        (test_golden_cache.test_states_do_not_depend_on_the_context, test_golden_cache.test_delta_rule_states),
    ),
    Fault("state read but not written", state_read_only, (_states_of_mamba2,)),
    Fault("K convolution columns", convolution_keeps_all_columns, (test_golden_cache.test_other_states,)),
    Fault("min(E, kT) experts", experts_by_minimum, (test_golden_compute.test_mixtral_weights_per_decode_step,)),
    Fault(
        "k experts at any batch",
        experts_as_active,
        (test_experts.test_one_token_reads_k_experts_and_many_read_all, test_golden_compute.test_mixtral_weights_per_decode_step),
    ),
    Fault("head size = hidden / heads", heads_from_hidden_size, (_head_width_of_gpt_oss,)),
    Fault("embedding streamed", embedding_streamed, (test_step.test_the_embedding_is_looked_up_and_the_head_is_read,)),
    Fault("causal half lost", causal_half_lost, (_causal_prefill_of_70b, test_golden_compute.test_toy_prefill)),
    Fault("cached prefix forgotten", prefix_forgotten, (_chunk_on_a_prefix,)),
    Fault("logits for all tokens", logits_for_all_tokens, (test_step.test_the_embedding_is_looked_up_and_the_head_is_read,)),
    Fault("latent attention always absorbed", always_absorbed, (test_latent_attention.test_prefill_expands_and_decode_absorbs,)),
    Fault("grouped-query attention ignored", grouped_query_ignored, (_group_sizes,)),
    Fault("shared cache free to read", shared_cache_free_to_read, (_shared_layers_read,)),
    Fault("compressed entries per token", compressed_entries_per_token, (test_golden_cache.test_compressed_caches,)),
    Fault(
        "shared blocks held at every depth",
        shared_blocks_held_per_depth,
        (test_parameters.test_shared_blocks_are_held_once_and_read_at_every_depth,),
    ),
    Fault(
        "cross-attention keys made every step",
        cross_keys_made_every_step,
        (test_attention.test_cross_keys_are_made_once_per_request_from_the_source,),
    ),
)


def failing(tests: tuple[Callable[[], None], ...]) -> list[str]:
    """Names of the tests whose assertion fails as things are; any other error is a fault of the plant itself."""
    found = []
    for test in tests:
        try:
            test()
        except AssertionError:
            found.append(test.__name__)
    return found


def caught_by(fault: Fault) -> list[str]:
    """Names of the tests that notice a fault."""
    with fault.plant():
        return failing(fault.tests)


def main() -> int:
    """Plant every fault in turn and print which tests caught it."""
    missed = 0
    for fault in FAULTS:
        healthy, caught = failing(fault.tests), caught_by(fault)
        missed += bool(healthy) or not caught
        verdict = "fails without the fault" if healthy else "caught" if caught else "MISSED"
        print(f"{fault.name:45} {verdict}: {', '.join(healthy or caught)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
