"""The schema of a model profile: a stack of layers, each a list of token mixers and a list of feed-forward parts.

Names are those of Hugging Face configs where one exists. A layer kind is written once and repeated by the stack; what differs
from layer to layer is another kind. Unknown facts are null. Widths are in elements, windows and chunks in tokens.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from calc.profiles.schema import Count, Dimension, Identifier, Positive, Source, Strict, Text

# --- token mixers -----------------------------------------------------------------------------------------------------------


class Heads(Strict, frozen=True, kw_only=True):
    """Geometry that all softmax attention over per-head keys and values shares."""

    num_attention_heads: Dimension
    num_key_value_heads: Dimension
    head_dim: Dimension
    v_head_dim: Dimension | None = None  # null: equal to head_dim
    input_size: Dimension | None = None  # null: hidden_size (Zamba2 feeds 2 x hidden_size)
    query_rank: Dimension | None = None  # low-rank query: hidden -> rank -> heads (Step-3, DeepSeek-V4)
    query_rank_norm: bool = False
    q_bias: bool = False
    k_bias: bool = False
    v_bias: bool = False
    o_bias: bool = False
    qk_norm: Literal["none", "head", "projection", "unweighted"] = "none"
    qk_norm_bias: bool = False  # LayerNorm with a bias on queries and keys
    output_gate: Literal["none", "elementwise", "head"] = "none"  # elementwise doubles the query projection (Qwen3-Next)
    output_rank: Dimension | None = None  # grouped low-rank output (DeepSeek-V4): heads -> groups x rank -> hidden
    output_groups: Dimension = 1
    sinks: bool = False  # one learned logit per head
    positions: Literal["rotary", "none", "learned", "alibi", "relative"] = "rotary"
    rotary_dim: Dimension | None = None  # null: the whole head
    causal: bool = True
    k_eq_v: bool = False  # the key projection serves as value too: no value weights, both are cached
    kv_source: Literal["own", "shared"] = "own"  # shared: stores nothing, reads the cache of the last storing layer of its kind
    kv_weights_stored: bool = True  # with shared: whether the unused key and value weights are in the checkpoint

    @property
    def value_dim(self) -> int:
        """Width of a value head."""
        return self.v_head_dim or self.head_dim


class FullAttention(Heads, frozen=True, kw_only=True, tag_field="kind", tag="full"):
    """Every token sees all earlier ones (or all, when not causal)."""


class SlidingAttention(Heads, frozen=True, kw_only=True, tag_field="kind", tag="sliding"):
    """A token sees the last ``window`` tokens, itself included."""

    window: Dimension


class ChunkedAttention(Heads, frozen=True, kw_only=True, tag_field="kind", tag="chunked"):
    """A token sees the tokens of its own chunk only (Llama 4)."""

    chunk: Dimension


class CrossAttention(Heads, frozen=True, kw_only=True, tag_field="kind", tag="cross"):
    """Decoder tokens see ``source_tokens`` encoder positions, cached once per request."""

    source_tokens: Dimension
    source_size: Dimension | None = None  # width of the encoder's output; null: hidden_size
    tanh_gate: bool = False


class BlockSparseAttention(Heads, frozen=True, kw_only=True, tag_field="kind", tag="block-sparse"):
    """Attention over the best ``topk_blocks`` blocks of ``block`` tokens, chosen by an index (MiniMax-M3)."""

    block: Dimension
    topk_blocks: Dimension
    index_heads: Dimension
    index_head_dim: Dimension
    init_blocks: Count = 0
    local_blocks: Count = 0


class NativeSparseAttention(Heads, frozen=True, kw_only=True, tag_field="kind", tag="native-sparse"):
    """Native sparse attention, arXiv 2502.11089: compressed keys of ``compressed_block`` tokens, one every ``stride``; the best
    ``selected_blocks`` blocks of ``block`` tokens; and a window."""

    compressed_block: Dimension
    stride: Dimension
    block: Dimension
    selected_blocks: Dimension
    window: Dimension
    own_keys: bool = True  # each branch has key and value projections of its own
    compressor_parameters: Count = 0  # of keys and values together, as one total


class Indexer(Strict, frozen=True, kw_only=True):
    """The lightning indexer of DeepSeek sparse attention: scores all keys in fp8, keeps ``topk``."""

    num_heads: Dimension
    head_dim: Dimension
    topk: Dimension
    role: Literal["full", "shared"] = "full"  # shared: reuses the selection of the last full one, holds no weights or keys


class LatentAttention(Strict, frozen=True, kw_only=True, tag_field="kind", tag="latent"):
    """Multi-head latent attention: one compressed vector per token is cached (DeepSeek-V2, arXiv 2405.04434)."""

    num_attention_heads: Dimension
    q_lora_rank: Dimension | None
    kv_lora_rank: Dimension
    qk_nope_head_dim: Dimension
    qk_rope_head_dim: Count
    v_head_dim: Dimension
    q_bias: bool = False
    o_bias: bool = False
    output_gate: Literal["none", "elementwise", "head"] = "none"
    indexer: Indexer | None = None
    window: Dimension | None = None


class CompressedAttention(Strict, frozen=True, kw_only=True, tag_field="kind", tag="compressed"):
    """DeepSeek-V4: a shared key-value head over a window plus entries compressed by ``ratio`` (1: window only)."""

    num_attention_heads: Dimension
    head_dim: Dimension
    rotary_dim: Dimension
    query_rank: Dimension
    output_rank: Dimension
    output_groups: Dimension
    window: Dimension
    ratio: Count
    indexer: Indexer | None = None
    sinks: bool = True


class Mamba1(Strict, frozen=True, kw_only=True, tag_field="kind", tag="mamba1"):
    """Selective state space, arXiv 2312.00752: inner width x state_size state."""

    inner_size: Dimension
    state_size: Dimension
    dt_rank: Dimension
    conv_kernel: Dimension
    conv_bias: bool = True
    projection_bias: bool = False
    parameter_norms: bool = False  # norms on dt, B and C (Jamba)


class Mamba2(Strict, frozen=True, kw_only=True, tag_field="kind", tag="mamba2"):
    """State space duality, arXiv 2405.21060: heads x head_dim x state_size state."""

    num_heads: Dimension
    head_dim: Dimension
    state_size: Dimension
    num_groups: Dimension
    conv_kernel: Dimension
    chunk: Dimension = 256
    conv_bias: bool = True
    projection_bias: bool = False
    gated_norm: bool = True


class GatedDeltaNet(Strict, frozen=True, kw_only=True, tag_field="kind", tag="gated-delta-net"):
    """Gated delta rule, arXiv 2412.06464 (Qwen3-Next): value heads x key width x value width state."""

    num_key_heads: Dimension
    num_value_heads: Dimension
    key_head_dim: Dimension
    value_head_dim: Dimension
    conv_kernel: Dimension
    chunk: Dimension = 64
    separate_gates: bool = True


class KimiDeltaAttention(Strict, frozen=True, kw_only=True, tag_field="kind", tag="kda"):
    """Kimi delta attention, arXiv 2510.26692: per-channel decay; the rank of each gate is null where it is a full matrix."""

    num_heads: Dimension
    head_dim: Dimension
    conv_kernel: Dimension
    chunk: Dimension = 64
    decay_gate_rank: Dimension | None = None
    output_gate_rank: Dimension | None = None


class LightningAttention(Strict, frozen=True, kw_only=True, tag_field="kind", tag="lightning"):
    """Linear attention with a fixed decay per head, arXiv 2501.08313 (MiniMax-01)."""

    num_heads: Dimension
    head_dim: Dimension
    chunk: Dimension = 256


class Rwkv(Strict, frozen=True, kw_only=True, tag_field="kind", tag="rwkv"):
    """RWKV-5, 6 (arXiv 2404.05892) or 7 (arXiv 2503.14456) time mixing; its channel mixing is a feed-forward part."""

    version: Literal[5, 6, 7]
    attention_size: Dimension
    head_dim: Dimension
    low_rank_parameters: Count = 0  # the low-rank matrices of versions 6 and 7, as one total
    chunk: Dimension = 64


class RgLru(Strict, frozen=True, kw_only=True, tag_field="kind", tag="rg-lru"):
    """Real-gated linear recurrent unit, arXiv 2402.19427 (RecurrentGemma): a state vector of ``width``."""

    width: Dimension
    num_heads: Dimension
    conv_kernel: Dimension


class ShortConvolution(Strict, frozen=True, kw_only=True, tag_field="kind", tag="short-conv"):
    """Gated short convolution (LFM2)."""

    conv_kernel: Dimension
    bias: bool = False


Mixer = (
    FullAttention
    | SlidingAttention
    | ChunkedAttention
    | CrossAttention
    | BlockSparseAttention
    | NativeSparseAttention
    | LatentAttention
    | CompressedAttention
    | Mamba1
    | Mamba2
    | GatedDeltaNet
    | KimiDeltaAttention
    | LightningAttention
    | Rwkv
    | RgLru
    | ShortConvolution
)

# --- feed-forward parts ------------------------------------------------------------------------------------------------------


class DenseFeedForward(Strict, frozen=True, kw_only=True, tag_field="kind", tag="dense"):
    """One feed-forward network for every token; gated (SwiGLU, GeGLU) or plain."""

    intermediate_size: Dimension
    gated: bool = True
    bias: bool = False
    input_size: Dimension | None = None  # null: hidden_size
    scalars: Count = 0  # learned scalars of the activation (xIELU holds two)


class ChannelMixing(Strict, frozen=True, kw_only=True, tag_field="kind", tag="rwkv-channel-mixing"):
    """RWKV's feed-forward: key, value and receptance (5 and 6), or key and value (7)."""

    intermediate_size: Dimension
    receptance: bool = True
    mix_vectors: Count = 2


class SharedExperts(Strict, frozen=True, kw_only=True):
    """Experts that every token passes; ``intermediate_size`` is their joint width."""

    intermediate_size: Dimension
    gated: bool = True
    gate: bool = False  # a scalar gate per token (Qwen2-MoE)


class Experts(Strict, frozen=True, kw_only=True, tag_field="kind", tag="experts"):
    """Routed experts: each token is multiplied with ``num_experts_per_token`` of ``num_experts`` feed-forward networks."""

    num_experts: Dimension
    num_experts_per_token: Dimension
    intermediate_size: Dimension
    gated: bool = True
    bias: bool = False  # on the expert matrices
    router_bias: bool = False
    correction_bias: bool = False  # one vector of num_experts for load balancing
    router: Literal["learned", "hash"] = "learned"
    zero_experts: Count = 0  # experts that compute nothing (LongCat): the router scores them too
    latent_size: Dimension | None = None  # experts work on a projection of the hidden state (Nemotron-3)
    shared: SharedExperts | None = None


FeedForward = DenseFeedForward | ChannelMixing | Experts

# --- layers, stacks, the model -----------------------------------------------------------------------------------------------


class Extra(Strict, frozen=True, kw_only=True):
    """Weights that no part above describes. ``matrix``: every token is multiplied with it; ``vector``: gains, biases, scalars;
    ``table``: looked up, a row a token."""

    name: Text
    elements: Count
    kind: Literal["matrix", "vector", "table"]
    stored_by: Literal["checkpoint", "checkpoint-and-architecture"] = "checkpoint-and-architecture"


class LayerKind(Strict, frozen=True, kw_only=True):
    """One kind of layer: its token mixers (run one after another or side by side) and feed-forward parts."""

    mixers: list[Mixer] = []
    feed_forwards: list[FeedForward] = []
    norms: Annotated[int, msgspec.Meta(ge=0, le=16)] = 2  # norms of hidden_size
    parallel: bool = False  # attention and feed-forward read the same input: one all-reduce instead of two
    reductions: Annotated[int, msgspec.Meta(ge=0, le=16)] | None = None  # all-reduces under tensor parallelism; null: by the parts
    extras: list[Extra] = []
    shared_weights: Text | None = None  # layers of the same name hold one copy of mixers and feed-forwards (Zamba2)


class Block(Strict, frozen=True, kw_only=True):
    """``layers`` (names of layer kinds) repeated ``repeat`` times."""

    repeat: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1
    layers: Annotated[list[Text], msgspec.Meta(min_length=1, max_length=4096)]


def layer_counts(stack: list[Block]) -> dict[str, int]:
    """How many layers of a stack there are of each kind, in order of first appearance."""
    counts: dict[str, int] = {}
    for block in stack:
        for name in block.layers:
            counts[name] = counts.get(name, 0) + block.repeat
    return counts


class Norm(Strict, frozen=True, kw_only=True):
    """The normalisation of the model."""

    kind: Literal["rms", "layer"] = "rms"
    bias: bool = False  # a LayerNorm's bias


class Encoder(Strict, frozen=True, kw_only=True):
    """An encoder that runs once per request; its layer kinds are those of the model."""

    stack: list[Block]
    tokens: Dimension  # positions of one input
    final_norm: bool = True
    extras: list[Extra] = []


class NextTokenLayers(Strict, frozen=True, kw_only=True):
    """Multi-token-prediction layers: ``count`` layers of ``kind`` plus ``extras`` each; loaded only when drafting."""

    count: Annotated[int, msgspec.Meta(ge=1, le=64)]
    layers: list[Text]  # names of layer kinds, the layers of one module
    extras: list[Extra] = []
    stored: bool = True


class Tower(Strict, frozen=True, kw_only=True):
    """A vision or audio tower: its parameters and, where known, the work of one image or clip."""

    modality: Literal["vision", "audio"]
    parameters: Count
    hidden_size: Dimension | None = None
    num_layers: Dimension | None = None
    tokens_per_item: Dimension | None = None  # positions that the tower itself processes
    output_tokens_per_item: Dimension | None = None  # positions that enter the language model


class Storage(Strict, frozen=True, kw_only=True):
    """How the checkpoint stores its weights: ``dtype`` for all, ``roles`` for what differs by tensor role."""

    dtype: Text
    roles: dict[
        Literal[
            "embedding", "lm_head", "attention", "linear_attention", "feed_forward", "experts", "shared_experts", "router",
            "norm", "next_token_layers", "tower",
        ],
        Text,
    ] = {}  # fmt: skip
    group_size: Dimension | None = None
    kv_cache: Text | None = None  # a checkpoint may ask for its own KV format
    scheme: Text | None = None  # what the mix of types is called where it has a name (Q4_K_M)
    total_bytes: Count | None = None  # of the checkpoint's files, where they or their index were at hand
    role_bytes: dict[Text, Count] = {}  # the same by tensor role, read from the files' headers

    @property
    def format_name(self) -> str:
        """The name of the mix, else the formats of the roles that hold most, else the one format of all."""
        heavy = [self.roles[role] for role in ("experts", "feed_forward", "attention") if role in self.roles]
        return self.scheme or " and ".join(dict.fromkeys([*heavy, self.dtype]))


class StoredBeyond(Strict, frozen=True, kw_only=True):
    """Elements that the checkpoint lists and the architecture does not need (copies, buffers, scales)."""

    what: Text
    elements: int
    residual: bool = False  # taken as the difference itself, not computed


class ParameterFacts(Strict, frozen=True, kw_only=True):
    """Published figures that the computed ones are held to."""

    total: Count | None = None  # elements of the published checkpoint
    total_source: Text | None = None
    active: Count | None = None
    active_stated: Text | None = None
    stored_beyond_architecture: list[StoredBeyond] = []
    kv_bytes_per_token: Count | None = None  # published or recorded unbounded slope in 16 bit
    stated_source: Text | None = None


class ModelProfile(Strict, frozen=True, kw_only=True):
    """A model: what its config says about shapes and storage, with sources."""

    id: Identifier
    name: Text
    hub_id: Text | None = None
    aliases: list[Text] = []
    family: Text  # model_type of the config
    synthetic: bool = False  # not a published model: rules on sources and totals do not apply
    hidden_size: Dimension
    vocab_size: Dimension | None  # null: nothing is looked up and no logits are made
    max_position_embeddings: Dimension | None = None
    tie_word_embeddings: bool = False
    has_lm_head: bool = True
    embedding_rows: Dimension | None = None  # rows of the input embedding where they differ from vocab_size
    embedding_size: Dimension | None = None  # width of the embedding where it is projected to hidden_size
    lm_head_bias: bool = False
    position_embeddings: Count = 0  # rows of a learned position table
    embedding_norm: bool = False
    norm: Norm = Norm()
    final_norm: bool = True
    layer_kinds: dict[Identifier, LayerKind]
    stack: Annotated[list[Block], msgspec.Meta(min_length=1, max_length=4096)]
    encoder: Encoder | None = None
    next_token_layers: NextTokenLayers | None = None
    towers: list[Tower] = []
    extras: list[Extra] = []
    state_dtype: Text | None = None  # dtype of recurrent states; null: fp32
    storage: Storage
    parameters: ParameterFacts = ParameterFacts()
    quirks: list[Text] = []
    licence: Text | None = None
    routing_skew: Positive | None = None
    sources: list[Source] = []

    def layers(self) -> list[str]:
        """Names of the layer kinds from first to last layer."""
        return [name for block in self.stack for name in block.layers * block.repeat]

    def layer_counts(self) -> dict[str, int]:
        """How many layers there are of each kind, in order of first appearance."""
        return layer_counts(self.stack)

    @property
    def has_experts(self) -> bool:
        """Whether any layer is a mixture of experts."""
        return any(isinstance(part, Experts) for kind in self.layer_kinds.values() for part in kind.feed_forwards)

    @property
    def num_hidden_layers(self) -> int:
        """Number of layers of the stack."""
        return sum(b.repeat * len(b.layers) for b in self.stack)
