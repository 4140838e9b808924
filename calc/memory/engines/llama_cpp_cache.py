"""llama.cpp's caches: cells of 256, unified or one stream a slot, windows apart, recurrent state per slot in fp32.

Sources: llama.cpp src/llama-kv-cache.cpp, src/llama-kv-cache-iswa.cpp, src/llama-memory-recurrent.cpp, src/llama-context.cpp
(padding of n_ctx); the fork ik_llama.cpp keeps every layer at the full context.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from calc.arrays import Number, minimum
from calc.memory.kv_cache import LayerCache, RankCache, kind_laws, shared_tokens
from calc.memory.memo import remembered
from calc.operators.cache_law import CacheLaw
from calc.operators.numbers import NumberPlan
from calc.profiles.model import LatentAttention, ModelProfile

if TYPE_CHECKING:
    from calc.memory.budget import MemoryQuestion

CELL_MULTIPLE = 256
DEFAULT_UBATCH, DEFAULT_BATCH = 512, 2048
AUTOMATIC_SLOTS = 4  # llama-server when the number of slots is left to it
#: Builds of the mainline: windows in a cache of their own; sized by the micro-batch; one cache for all slots by default.
WINDOWS_APART, WINDOWS_BY_UBATCH, LATENT_KEYS, UNIFIED_SLOTS, NEWEST_BUILD = 5427, 5554, 5136, 7000, 9000


@dataclass(frozen=True)
class Layout:
    """How the caches of a context are laid out."""

    build: int
    fork: bool  # ik_llama.cpp
    slots: int
    unified: bool
    ubatch: int
    batch: int
    swa_full: bool
    flash_attention: bool
    state_copies: int
    latent_cache: str

    @property
    def windows_apart(self) -> bool:
        """Whether windows are stored as such."""
        return not self.fork and not self.swa_full and self.build >= WINDOWS_APART

    def streams(self) -> int:
        """Separate streams of cells."""
        return 1 if self.unified else self.slots

    def cells(self, context_size: int) -> int:
        """Cells of one stream when all slots together ask for ``context_size`` tokens."""
        return padded(context_size if self.unified else -(-context_size // self.slots))

    @property
    def ahead(self) -> int:
        """Tokens that a stream of a window layer holds beyond its windows."""
        return self.ubatch if self.build >= WINDOWS_BY_UBATCH else self.batch

    def window_cells(self, window: int, cells: int) -> int:
        """Cells of one stream in a window layer."""
        return padded(min(cells, window * (self.slots if self.unified else 1) + self.ahead)) if self.windows_apart else cells


def padded(tokens: int) -> int:
    """Cells are allocated in multiples of 256."""
    return -(-tokens // CELL_MULTIPLE) * CELL_MULTIPLE


@remembered
def layer_laws(model: ModelProfile, latent_cache: str) -> list[list[LayerCache]]:
    """What each layer keeps, as llama.cpp caches it: latents as keys (and once more as values), or all heads; no index keys."""
    by_name = {name: _laws(model, name, latent_cache) for name in model.layer_counts()}
    return [by_name[name] for name in model.layers()]


def _laws(model: ModelProfile, name: str, latent_cache: str) -> list[LayerCache]:
    latent = [m for m in model.layer_kinds[name].mixers if isinstance(m, LatentAttention)]
    if not latent:
        return [LayerCache(replace(law, extra_bytes_per_token=0), 1, columns) for law, columns in kind_laws(model, name, 1)]
    mixer = latent[0]
    rank, rotary = mixer.kv_lora_rank, mixer.qk_rope_head_dim
    keys, values = ((1, rank + rotary),), (((1, rank),) if latent_cache == "key-and-value" else ())
    if latent_cache == "none":
        heads = mixer.num_attention_heads
        keys, values = ((heads, mixer.qk_nope_head_dim + rotary),), ((heads, mixer.v_head_dim),)
    kind = "full" if mixer.window is None else "sliding"
    return [LayerCache(CacheLaw(kind, keys, values, limit=mixer.window), 1)]


@dataclass(frozen=True)
class Buffers:
    """Bytes of the caches on one device (or of all devices), as the log prints them."""

    keys: float = 0
    values: float = 0
    window: float = 0  # part of keys + values in window layers
    convolution: float = 0  # R
    state: float = 0  # S
    cells: int = 0
    window_cells: int = 0

    @property
    def attention(self) -> float:
        """Keys and values."""
        return self.keys + self.values

    @property
    def total(self) -> float:
        """All caches."""
        return self.attention + self.convolution + self.state

    def __add__(self, other: Buffers) -> Buffers:
        return Buffers(
            self.keys + other.keys,
            self.values + other.values,
            self.window + other.window,
            self.convolution + other.convolution,
            self.state + other.state,
            max(self.cells, other.cells),
            max(self.window_cells, other.window_cells),
        )


def layer_buffers(laws: list[LayerCache], numbers: NumberPlan, layout: Layout, context_size: int) -> Buffers:
    """Buffers of the layers on one device for ``context_size`` tokens over all slots."""
    total = Buffers()
    cells = layout.cells(context_size)
    for layer in laws:
        law, count = layer.law, layer.count
        if law.kind == "state":
            rows = 4 * layout.slots * layout.state_copies * count
            total += Buffers(convolution=rows * law.convolution_elements, state=rows * law.state_elements)
            continue
        of_window = law.limit is not None
        held = law.fixed_tokens or (layout.window_cells(law.limit or 0, cells) if of_window else cells)
        stored = held * layout.streams() * count
        keys = stored * sum(n * numbers.keys.vector_bytes(w) for n, w in law.key_vectors)
        values = stored * sum(n * numbers.values.vector_bytes(w) for n, w in law.value_vectors)
        apart = of_window and layout.windows_apart
        total += Buffers(keys, values, keys + values if apart else 0, cells=cells, window_cells=held if apart else 0)
    return total


@dataclass(frozen=True)
class SlotPool:
    """Cache memory of one device under llama.cpp: a slot takes its cells, its window, its state."""

    cache: RankCache
    layout: Layout
    block_tokens: int = CELL_MULTIPLE

    @cached_property
    def _growing(self) -> float:
        """Bytes per token of the layers whose cache grows with the context."""
        return sum(la.count * self.cache.token_bytes(la.law) for la in self.cache.layers if la.law.grows)

    @cached_property
    def _fixed(self) -> float:
        """Bytes whatever the number of slots: what windows look ahead in one unified cache."""
        if not (self.layout.unified and self.layout.windows_apart):
            return 0.0
        bounded = (la for la in self.cache.layers if la.law.limit is not None)
        return float(sum(la.count * self.cache.token_bytes(la.law) * self.layout.ahead for la in bounded))

    @cached_property
    def _attention(self) -> list[tuple[CacheLaw, float]]:
        """(law, bytes per token) of the layers that cache tokens."""
        return [(la.law, la.count * self.cache.token_bytes(la.law)) for la in self.cache.layers if la.law.kind != "state"]

    @cached_property
    def _state(self) -> int:
        """Bytes of a slot's recurrent state."""
        laws = ((la.law, la.count) for la in self.cache.layers if la.law.kind == "state")
        return sum(n * 4 * self.layout.state_copies * (law.state_elements + law.convolution_elements) for law, n in laws)

    def blocks(self, kv_bytes: int) -> int:
        """Groups of 256 cells that find room."""
        return int(max(0, kv_bytes - self._fixed) // (self._growing * CELL_MULTIPLE)) if self._growing else 0

    def _slot_bytes(self, context: Number) -> Number:
        total: Number = self._state
        padded_context = -(-context // CELL_MULTIPLE) * CELL_MULTIPLE
        ahead = 0 if self.layout.unified else self.layout.ahead
        for law, size in self._attention:
            cells: Number = law.fixed_tokens or padded_context
            if law.limit is not None and self.layout.windows_apart:
                cells = minimum(cells, law.limit + ahead)
            total = total + size * cells
        return total

    def concurrency(self, kv_bytes: int, context: Number, prefix: int = 0) -> Number:
        """Slots of ``context`` tokens that find room; a prefix is shared within one unified cache."""
        each, free = self._slot_bytes(context), kv_bytes - self._fixed
        if prefix and self.layout.unified:
            each, free = each - shared_tokens(prefix, context) * self._growing, free - prefix * self._growing
        return max(0.0, free) / each

    def printed_concurrency(self, kv_bytes: int, length: int) -> float:
        """As above; llama.cpp prints the slots it was told."""
        return float(self.concurrency(kv_bytes, length))

    def printed_tokens(self, kv_bytes: int, length: int) -> int:
        """Cells that find room."""
        return self.blocks(kv_bytes) * CELL_MULTIPLE

    def reserved_bytes(self, context: int) -> float:
        """Bytes of one slot."""
        return float(self._slot_bytes(context))


def layout_of(question: MemoryQuestion, build: int, fork: bool) -> Layout:
    """The layout that options and build ask for."""
    options = question.options
    automatic = AUTOMATIC_SLOTS if build >= UNIFIED_SLOTS and not fork else 1
    slots, batch = options.max_num_seqs or automatic, options.max_num_batched_tokens or DEFAULT_BATCH
    unified = options.kv_unified if options.kv_unified is not None else (slots == 1 or options.max_num_seqs is None)
    latent = options.latent_cache or ("none" if not fork and build < LATENT_KEYS else "key")
    return Layout(
        build=build,
        fork=fork,
        slots=slots,
        unified=unified,
        ubatch=min(options.ubatch_size or DEFAULT_UBATCH, batch),  # llama-context.cpp, cparams.n_ubatch
        batch=batch,
        swa_full=options.swa_full,
        flash_attention=options.flash_attention if options.flash_attention is not None else (build >= UNIFIED_SLOTS),
        state_copies=1 + options.speculative_tokens,
        latent_cache=latent,
    )
