"""Recurrent mixers from config keys: Mamba 1 and 2, Gated DeltaNet, Kimi delta attention, lightning attention."""

from __future__ import annotations

from calc.errors import UnknownNameError
from calc.numerics import canonical_dtype
from calc.profiles.importers.config import MISSING, Config
from calc.profiles.model import GatedDeltaNet, KimiDeltaAttention, LightningAttention, Mamba1, Mamba2


def mamba1(
    c: Config,
    hidden: int,
    *,
    inner: tuple[str, ...] = ("intermediate_size",),
    expand: tuple[str, ...] = ("expand", "mamba_expand"),
    rank: tuple[str, ...] = ("time_step_rank", "mamba_dt_rank", "dt_rank"),
    parameter_norms: bool = False,
) -> Mamba1:
    """Inner width from its own key or ``expand``; a rank of "auto" is a sixteenth of the hidden size."""
    dt_rank = -(-hidden // 16) if c.get(*rank) in (MISSING, None, "auto") else c.integer(*rank)
    expansion = c.number(*expand, default=2)
    width = c.optional(*inner) if inner else None
    if expansion <= 0:
        raise c.fault(expand[0], f"is {expansion}")
    return Mamba1(
        inner_size=width or int(expansion * hidden),
        state_size=c.integer("state_size", "mamba_d_state", "d_state", default=16),
        dt_rank=dt_rank,
        conv_kernel=c.integer("conv_kernel", "mamba_d_conv", "d_conv", default=4),
        conv_bias=c.flag("use_conv_bias", "mamba_conv_bias", "conv_bias", default=True),
        projection_bias=c.flag("use_bias", "mamba_proj_bias"),
        parameter_norms=parameter_norms,
    )


def mamba2(
    c: Config, hidden: int, *, gated_norm: bool = True, inner: int | None = None, projection_bias: bool | None = None
) -> Mamba2:
    """Heads times head size make the inner width, which ``expand`` must agree with where the family ties the two."""
    c.ignore("time_step_rank")  # a leftover of Mamba 1
    width = inner or int(c.number("expand", "mamba_expand", default=2) * hidden)
    size = c.get("mamba_d_head", "mamba_head_dim", "mamba_headdim", "head_dim")
    heads = c.optional("mamba_n_heads", "mamba_num_heads", "n_mamba_heads", "num_heads")
    if size in (MISSING, None, "auto"):
        if not heads or width % heads:
            raise c.fault("mamba_n_heads", f"does not divide the inner width {width:,}")
        head_dim = width // heads
    else:
        head_dim = c.integer("mamba_d_head", "mamba_head_dim", "mamba_headdim", "head_dim")
        heads = heads or max(1, width // head_dim)
    if inner is not None and heads * head_dim != inner:
        raise c.fault("mamba_d_ssm", f"is {inner:,}, but {heads:,} heads of {head_dim:,} are {heads * head_dim:,}")
    groups = c.integer("mamba_n_groups", "mamba_ngroups", "n_groups", "ngroups", default=1)
    if heads % groups:
        raise c.fault("n_groups", f"{groups:,} groups cannot share {heads:,} heads evenly")
    bias = c.flag("mamba_proj_bias", "use_bias", "add_bias_linear") if projection_bias is None else projection_bias
    return Mamba2(
        num_heads=heads,
        head_dim=head_dim,
        state_size=c.integer("mamba_d_state", "ssm_state_size", "state_size", default=128),
        num_groups=groups,
        conv_kernel=c.integer("mamba_d_conv", "conv_kernel", default=4),
        chunk=c.integer("mamba_chunk_size", "chunk_size", default=256),
        conv_bias=c.flag("mamba_conv_bias", "use_conv_bias", default=True),
        projection_bias=bias,
        gated_norm=gated_norm,
    )


def gated_delta_net(c: Config) -> GatedDeltaNet:
    """Keys of Qwen3-Next; value heads share key heads."""
    heads = c.integer("num_attention_heads", default=1)
    keys, values = c.integer("linear_num_key_heads", default=heads), c.integer("linear_num_value_heads", default=heads)
    width = c.optional("linear_key_head_dim") or max(1, int(0.75 * c.integer("hidden_size") / keys))
    if values % keys:
        raise c.fault("linear_num_value_heads", f"{values:,} value heads cannot share {keys:,} key heads evenly")
    return GatedDeltaNet(
        num_key_heads=keys,
        num_value_heads=values,
        key_head_dim=width,
        value_head_dim=c.integer("linear_value_head_dim", default=2 * width),
        conv_kernel=c.integer("linear_conv_kernel_dim", default=4),
    )


def kimi_delta(
    heads: int, head_dim: int, kernel: int, *, full_decay: bool = False, full_output: bool = False
) -> KimiDeltaAttention:
    """Gates go through the head size as rank unless they are full matrices."""
    return KimiDeltaAttention(
        num_heads=heads,
        head_dim=head_dim,
        conv_kernel=kernel,
        decay_gate_rank=None if full_decay else head_dim,
        output_gate_rank=None if full_output else head_dim,
    )


def lightning(c: Config) -> LightningAttention:
    """As many heads as full attention has queries."""
    heads = c.integer("num_attention_heads")
    head_dim = c.optional("head_dim") or max(1, c.integer("hidden_size") // heads)
    return LightningAttention(num_heads=heads, head_dim=head_dim, chunk=c.integer("block_size", default=256))


def state_dtype(c: Config) -> str | None:
    """The type that the config asks for recurrent states."""
    named = c.word("mamba_ssm_cache_dtype", "mamba_ssm_dtype", "ssm_cache_dtype")
    if named is None or named == "auto":
        return None
    try:
        return canonical_dtype(named)
    except UnknownNameError as error:
        raise c.fault("mamba_ssm_dtype", f"{named!r:.60} is an unknown dtype", error.hint) from error
