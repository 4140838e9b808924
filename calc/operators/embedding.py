"""What stands outside the layers: token and position tables, final norm, LM head (analytic model 2.4 of the sources)."""

from __future__ import annotations

from calc.operators.context import LayerContext
from calc.operators.operator import Collective, Operator
from calc.operators.sharding import split_columns
from calc.operators.weight import Weight, vector
from calc.profiles.model import ModelProfile


def embedding_weights(model: ModelProfile, tensor: int) -> list[Weight]:
    """Tables of the first stage: rows are split over tensor-parallel ranks."""
    found: list[Weight] = []
    width = model.embedding_size or model.hidden_size
    rows = model.embedding_rows or model.vocab_size
    if rows:
        found.append(Weight("embedding", "embedding", width, split_columns(rows, tensor), use="table"))
    if model.embedding_size and model.embedding_size != model.hidden_size:
        found.append(Weight("embedding_proj", "embedding", width, model.hidden_size))
    if model.position_embeddings:
        found.append(Weight("position_embedding", "embedding", model.hidden_size, model.position_embeddings, use="table"))
    if model.embedding_norm:
        found.append(norm_vector(model, "embedding_norm"))
    return found


def head_weights(model: ModelProfile, tensor: int) -> list[Weight]:
    """Final norm and LM head of the last stage. A tied head is read here but is the embedding's tensor."""
    found = [norm_vector(model, "final_norm")] if model.final_norm else []
    if model.vocab_size and model.has_lm_head:
        columns = split_columns(model.vocab_size, tensor)
        found.append(
            Weight(
                "lm_head",
                "lm_head",
                model.embedding_size or model.hidden_size,
                columns,
                bias=columns if model.lm_head_bias else 0,
                use="tied" if model.tie_word_embeddings else "own",
            )
        )
    return found


def norm_vector(model: ModelProfile, name: str, width: int | None = None, count: int = 1) -> Weight:
    """Gains (and biases) of ``count`` norms."""
    return vector(name, (width or model.hidden_size) * count * (2 if model.norm.bias else 1))


def operators(model: ModelProfile, ctx: LayerContext) -> tuple[list[Operator], list[Operator]]:
    """(before the layers, after the layers). The embedding table is looked up, never streamed; logits are made on the rows that
    need them: one per request in prefill."""
    tensor = ctx.sharding.tensor
    before: list[Operator] = []
    if model.vocab_size:
        table = ctx.numbers.weight("embedding")
        read = ctx.tokens * table.nominal_bits / 8 * model.hidden_size
        before.append(
            Operator(
                "embedding",
                "embedding",
                ctx.layers,
                1,
                ctx.ranks,
                {"m": ctx.tokens, "n": model.hidden_size},
                ctx.numbers.compute,
                activation_bytes=read + ctx.tokens * model.hidden_size * ctx.activation,
                weight_format=table.name,
            )
        )
        if tensor > 1:
            before.append(ctx.all_reduce(1))
    after: list[Operator] = []
    if model.final_norm:
        after.append(ctx.norm("final_norm", 1))
    head = next((w for w in head_weights(model, tensor) if w.name == "lm_head"), None)
    if head is not None:
        rows = ctx.work.logit_rows
        after.append(ctx.linear(head, rows))
        if tensor > 1:
            message = rows * (model.vocab_size or 0) * ctx.activation
            after.append(ctx.collective("logits_all_gather", Collective("all-gather", tensor, message), 1))
    return before, after
