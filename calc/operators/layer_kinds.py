"""The register of layer kinds: which module holds the weights, the cache law and the operators of each mixer and feed-forward part.

A kind that is not registered is refused: nothing is ever treated as something similar.
"""

from __future__ import annotations

from importlib import import_module
from typing import Protocol

from calc.errors import ProfileError
from calc.operators import experts
from calc.operators.cache_law import CacheLaw
from calc.operators.context import LayerContext
from calc.operators.operator import Operator
from calc.operators.weight import Weight, vector
from calc.profiles.model import Experts, Extra, FeedForward, LayerKind, Mixer, ModelProfile

#: Struct of a part → module of calc.operators that holds its laws. Modules are loaded when first needed.
MIXER_MODULES = {
    "FullAttention": "attention",
    "SlidingAttention": "attention",
    "ChunkedAttention": "attention",
    "CrossAttention": "cross_attention",
    "BlockSparseAttention": "block_sparse_attention",
    "NativeSparseAttention": "native_sparse_attention",
    "LatentAttention": "latent_attention",
    "CompressedAttention": "compressed_attention",
    "Mamba1": "state_space",
    "Mamba2": "state_space",
    "GatedDeltaNet": "delta_rule",
    "KimiDeltaAttention": "delta_rule",
    "LightningAttention": "linear_attention",
    "Rwkv": "rwkv",
    "RgLru": "rg_lru",
    "ShortConvolution": "short_convolution",
}
FEED_FORWARD_MODULES = {
    "DenseFeedForward": "feed_forward",
    "ChannelMixing": "rwkv",
    "Experts": "experts",
}


class MixerModule(Protocol):
    """What the module of a token mixer offers. ``tensor`` is the tensor parallel size; results are those of one rank."""

    def weights(self, mixer: Mixer, hidden_size: int, tensor: int) -> list[Weight]:
        """Weight tensors of one rank."""

    def cache_law(self, mixer: Mixer, hidden_size: int, tensor: int) -> CacheLaw | tuple[CacheLaw, ...] | None:
        """What the mixer keeps per sequence; several laws where it keeps several caches, None where it keeps nothing."""

    def operators(self, mixer: Mixer, ctx: LayerContext) -> list[Operator]:
        """Operators of one call, in order."""


class FeedForwardModule(Protocol):
    """What the module of a feed-forward part offers."""

    def weights(self, part: FeedForward, hidden_size: int, tensor: int) -> list[Weight]:
        """Weight tensors of one rank."""

    def operators(self, part: FeedForward, ctx: LayerContext) -> list[Operator]:
        """Operators of one call, in order."""


def _module(part: object, modules: dict[str, str]) -> object:
    name = modules.get(type(part).__name__)
    if name is None:
        kind = getattr(type(part).__struct_config__, "tag", type(part).__name__)  # type: ignore[attr-defined]
        raise ProfileError(f"no law is known for layers of kind {kind!r}", "see docs for the kinds that are supported")
    return import_module(f"calc.operators.{name}")


def mixer_module(mixer: Mixer) -> MixerModule:
    """The module that knows a token mixer."""
    return _module(mixer, MIXER_MODULES)  # type: ignore[return-value]


def feed_forward_module(part: FeedForward) -> FeedForwardModule:
    """The module that knows a feed-forward part."""
    return _module(part, FEED_FORWARD_MODULES)  # type: ignore[return-value]


def part_weights(kind: LayerKind, model: ModelProfile, tensor: int, expert_ranks: int = 1) -> list[Weight]:
    """Weights of the mixers and feed-forward parts of one layer on one rank."""
    found = [w for m in kind.mixers for w in mixer_module(m).weights(m, model.hidden_size, tensor)]
    for part in kind.feed_forwards:
        if isinstance(part, Experts):
            found += experts.weights(part, model.hidden_size, tensor, expert_ranks=expert_ranks)
        else:
            found += feed_forward_module(part).weights(part, model.hidden_size, tensor)
    return found


def own_weights(kind: LayerKind, model: ModelProfile) -> list[Weight]:
    """What each layer of a kind holds for itself even where parts are shared: norms and extras (replicated on every rank)."""
    found: list[Weight] = []
    if kind.norms:
        found.append(vector("norms", kind.norms * model.hidden_size * (2 if model.norm.bias else 1)))
    return found + [extra_weight(extra) for extra in kind.extras]


def extra_weight(extra: Extra) -> Weight:
    """Weights that no described part holds, as one tensor."""
    if extra.kind == "matrix":
        return Weight(extra.name, "extras", 1, extra.elements)
    return Weight(extra.name, "extras", 1, extra.elements, vector=True, use="table" if extra.kind == "table" else "own")


def cache_laws(kind: LayerKind, tensor: int, hidden_size: int) -> list[CacheLaw]:
    """Cache laws of the mixers of one layer on one rank."""
    found: list[CacheLaw] = []
    for mixer in kind.mixers:
        law = mixer_module(mixer).cache_law(mixer, hidden_size, tensor)
        found += [law] if isinstance(law, CacheLaw) else law or []
    return found
