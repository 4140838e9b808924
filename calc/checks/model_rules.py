"""Rules over model profiles. Synthetic profiles are held to shapes only, not to published totals or sources."""

from __future__ import annotations

from collections.abc import Iterator

from calc.checks.finding import Problem
from calc.checks.registry import rule
from calc.checks.subject import Subject
from calc.checks.vocabularies import padded
from calc.profiles.model import Block, Heads, ModelProfile
from calc.profiles.reader import Place

_TOTAL_TOLERANCE = 0.005
_RESIDUAL_LIMIT = 0.02  # an amount that is only a difference explains no more than a tower or a few layers
_ACTIVE_TOLERANCE = 0.15  # cards round "3B active" and leave out embeddings


@rule(
    "M1", "error", "model", "rates",
    sentence="Parameters counted from the shapes are within 0.5 % of the published total.",
    arithmetic="counted = every tensor of the architecture (next-token layers only if stored) + what the checkpoint holds beyond "
    "it (a residual up to 2 %); |counted / parameters.total - 1| <= 0.005. Silent where several weights share one stored element.",
    example="Llama 3.1 8B with intermediate_size 11008: 6.90e9 against 8.03e9: Llama 2's width.",
)  # fmt: skip
def total(subject: Subject) -> Iterator[Problem]:
    """M1."""
    from calc.operators.parameters import count_parameters

    model: ModelProfile = subject.profile
    stated = model.parameters.total
    if model.synthetic or not stated or _is_packed(model):
        return
    counted = count_parameters(model)
    beyond = model.parameters.stored_beyond_architecture
    residual = sum(s.elements for s in beyond if s.residual)
    found = counted.total + sum(s.elements for s in beyond if not s.residual)
    found += residual if abs(residual) <= _RESIDUAL_LIMIT * stated else 0
    if model.next_token_layers and not model.next_token_layers.stored:
        found -= counted.by_part.get("next_token_layers", 0)
    ratio = found / stated
    if abs(ratio - 1) > _TOTAL_TOLERANCE:
        yield Problem(
            ("parameters", "total"),
            f"the shapes make {found:,} parameters; {stated:,} are published",
            expected=stated,
            found=found,
            ratio=ratio,
            cause=_total_cause(model, found - stated),
            remedy="compare `roofcast models show` part by part with the checkpoint's index",
            refuses=("parameters.total", "shapes"),
        )


def _is_packed(model: ModelProfile) -> bool:
    """Whether the checkpoint stores several weights in one element: its element count is then no parameter count."""
    from calc.numerics import weight_format

    return any(weight_format(name).element_bits < 8 for name in (model.storage.dtype, *model.storage.roles.values()))


def _total_cause(model: ModelProfile, surplus: int) -> str:
    table = model.hidden_size * (model.vocab_size or 0)
    if surplus < 0 and not model.towers and any("vision" in quirk or "audio" in quirk for quirk in model.quirks):
        return "a vision or audio tower left out"
    if table and abs(abs(surplus) / table - 1) < 0.02:
        return "tied embeddings counted twice" if surplus > 0 else "an LM head or embedding left out (tie_word_embeddings)"
    return "a wrong width, head count, number of layers or experts, or another model's total"


@rule(
    "M2", "error", "model", "bands",
    sentence="Active parameters are at most the total, and near the stated figure.",
    arithmetic="active = text parameters - routed experts that a token does not pass; stated active within 15 % (cards round, "
    "and some leave the embedding out).",
    example="Qwen3-30B-A3B with active 30.5e9: the total entered for the active figure.",
)  # fmt: skip
def active(subject: Subject) -> Iterator[Problem]:
    """M2."""
    from calc.operators.parameters import count_parameters

    model: ModelProfile = subject.profile
    stated, published = model.parameters.active, model.parameters.total
    if model.synthetic or not stated:
        return
    if published and stated > published:
        yield Problem(
            ("parameters", "active"),
            f"{stated:,} active of {published:,} in all",
            expected=f"<= {published}",
            found=stated,
            ratio=stated / published,
            cause="active and total swapped",
            remedy="enter the parameters that one token passes",
        )
        return
    counted = count_parameters(model)
    tables = counted.by_part.get("embedding", 0) + counted.by_part.get("lm_head", 0)
    low, high = (counted.active - tables) * (1 - _ACTIVE_TOLERANCE), counted.active * (1 + _ACTIVE_TOLERANCE)
    if not low <= stated <= high:
        yield Problem(
            ("parameters", "active"),
            f"a token passes {counted.active:,} parameters; {stated:,} are stated",
            expected=counted.active,
            found=stated,
            ratio=stated / counted.active,
            cause="another num_experts_per_token, shared experts left out, or the total",
            remedy="check num_experts_per_token and the shared experts",
            rests_on=("shapes",),
        )


@rule(
    "M3", "error", "model", "rates",
    sentence="KV bytes per token follow from the layers and agree with the stated figure.",
    arithmetic="slope at large context in 16 bit: sum over layers that grow without bound of 2 x KV heads x head size x 2 bytes "
    "(latent attention: rank + rope dimension); 0.5 % of tolerance.",
    example="Llama 3.1 8B: 32 layers x 2 x 8 x 128 x 2 bytes = 131072; 524288 counts query heads.",
)  # fmt: skip
def kv_bytes(subject: Subject) -> Iterator[Problem]:
    """M3."""
    from calc.memory.kv_cache import index_keys_in_16bit, rank_caches
    from calc.operators.numbers import plan
    from calc.operators.sharding import Sharding

    model: ModelProfile = subject.profile
    stated = model.parameters.kv_bytes_per_token
    if stated is None:
        return
    numbers = plan("bf16", {}, compute="bf16", kv_cache="bf16", state_dtype=model.state_dtype)
    cache = rank_caches(model, Sharding(), numbers)[0]
    found = cache.bytes_per_token + index_keys_in_16bit(model, cache)
    if abs(found - stated) > _TOTAL_TOLERANCE * max(stated, 1):
        yield Problem(
            ("parameters", "kv_bytes_per_token"),
            f"the layers keep {found:,.0f} bytes per token; {stated:,} are stated",
            expected=found,
            found=stated,
            ratio=stated / found if found else None,
            cause="query heads for KV heads, bounded layers counted, or another cache dtype",
            remedy="state the slope in 16 bit of layers that grow without bound",
        )


@rule(
    "M4", "error", "model", "identity",
    sentence="The pattern of layers is whole: every kind is used, and layers that read another's cache come after one that "
    "stores it.",
    arithmetic="layer_kinds - kinds in stack, encoder and next-token layers = none; a mixer with kv_source: shared needs an "
    "earlier layer with the same mixer kind that stores its own.",
    example="a kind `sliding` that no block names: the pattern lost its local layers.",
)  # fmt: skip
def pattern(subject: Subject) -> Iterator[Problem]:
    """M4."""
    model: ModelProfile = subject.profile
    blocks: list[Block] = [*model.stack, *(model.encoder.stack if model.encoder else [])]
    used = {name for block in blocks for name in block.layers}
    used |= set(model.next_token_layers.layers if model.next_token_layers else [])
    for name in model.layer_kinds:
        if name not in used:
            yield Problem(
                ("layer_kinds", name),
                f"no layer is of kind {name!r}",
                found=name,
                cause="a block of the pattern is missing",
                remedy="name it in the stack, or drop the kind",
                refuses=("stack",),
            )
    storing: set[type] = set()
    for name in dict.fromkeys(model.layers()):
        for index, mixer in enumerate(model.layer_kinds[name].mixers):
            if not isinstance(mixer, Heads):
                continue
            if mixer.kv_source == "own":
                storing.add(type(mixer))
            elif type(mixer) not in storing:
                yield Problem(
                    ("layer_kinds", name, "mixers", index, "kv_source"),
                    f"{name!r} reads a cache that no earlier layer stores",
                    found="shared",
                    expected="own, or an earlier storing layer",
                    cause="the pattern starts with the wrong block",
                    remedy="check the order of the stack",
                )


@rule(
    "M5", "error", "model", "identity",
    sentence="Heads divide: rotary dimensions fit the head, and output groups divide the heads.",
    arithmetic="rotary_dim <= head_dim and even; num_attention_heads % output_groups = 0. That KV heads divide query heads is a "
    "schema fault.",
    example="head_dim 128 with rotary_dim 256.",
)  # fmt: skip
def heads(subject: Subject) -> Iterator[Problem]:
    """M5."""
    model: ModelProfile = subject.profile
    for name, kind in model.layer_kinds.items():
        for index, mixer in enumerate(kind.mixers):
            where: Place = ("layer_kinds", name, "mixers", index)
            size, rotary = getattr(mixer, "head_dim", None), getattr(mixer, "rotary_dim", None)
            if size and rotary and (rotary > size or rotary % 2):
                yield Problem(
                    (*where, "rotary_dim"),
                    f"{rotary} rotary dimensions in a head of {size}",
                    expected=f"even, <= {size}",
                    found=rotary,
                    ratio=rotary / size,
                    cause="partial_rotary_factor applied to another width",
                    remedy="rotary_dim = head_dim x partial_rotary_factor",
                )
            groups, count = getattr(mixer, "output_groups", 1), getattr(mixer, "num_attention_heads", None)
            if count and count % groups:
                yield Problem(
                    (*where, "output_groups"),
                    f"{count} heads do not divide into {groups} groups",
                    expected=f"a divisor of {count}",
                    found=groups,
                    cause="groups and ranks swapped",
                    remedy="check output_groups",
                )


@rule(
    "M6", "warning", "model", "identity",
    sentence="vocab_size is the width of the embedding, not the tokenizer's count, where the family pads.",
    arithmetic="known tokenizers: Qwen2 151643 or 151665 tokens in 151936 or 152064 rows, Llama 3 128000 in 128256, Phi-4 100277 "
    "in 100352, … (calc/checks/vocabularies.py); embedding_rows >= vocab_size.",
    example="Qwen2.5-7B with vocab_size 151665: the checkpoint has 152064 rows, 1.4 M parameters more.",
)  # fmt: skip
def vocabulary(subject: Subject) -> Iterator[Problem]:
    """M6."""
    model: ModelProfile = subject.profile
    rows = padded(model.vocab_size)
    if rows and not model.synthetic:
        yield Problem(
            ("vocab_size",),
            f"{model.vocab_size} is a tokenizer's count; its models have {' or '.join(map(str, rows))} rows",
            expected=rows[0],
            found=model.vocab_size,
            ratio=(model.vocab_size or 0) / rows[0],
            cause="len(tokenizer) instead of config.vocab_size",
            remedy="enter config.json's vocab_size",
            refuses=("vocab_size", "shapes"),
        )
    if model.embedding_rows and model.vocab_size and model.embedding_rows < model.vocab_size:
        yield Problem(
            ("embedding_rows",),
            f"{model.embedding_rows} rows for {model.vocab_size} tokens",
            expected=f">= {model.vocab_size}",
            found=model.embedding_rows,
            ratio=model.embedding_rows / model.vocab_size,
            cause="the two swapped",
            remedy="rows >= vocab_size",
        )


@rule(
    "M7", "error", "model", "provenance",
    sentence="A published model names its sources with dates.",
    arithmetic="at least one source; each has a date (of the page, or when it was seen), arithmetic and unread ones excepted.",
    example="a profile whose only trace is the Hub id.",
)  # fmt: skip
def sources(subject: Subject) -> Iterator[Problem]:
    """M7."""
    model: ModelProfile = subject.profile
    if model.synthetic:
        return
    if not model.sources:
        yield Problem(
            ("sources",),
            "no source",
            cause="not recorded",
            remedy="name the config.json that the shapes were read from, with its date",
        )
    for index, source in enumerate(model.sources):
        if not source.date and source.access not in ("arithmetic", "unread", "reconstructed"):
            yield Problem(
                ("sources", index), "the source has no date", cause="not recorded", remedy="state its date, or when it was seen"
            )
