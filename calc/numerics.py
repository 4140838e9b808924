"""Number formats: exact bytes of a tensor with its scales, and the type the device multiplies in.

Sources: OCP Microscaling v1.0 (mxfp4, mxfp8); NVIDIA Blackwell documentation (nvfp4); GPTQ arXiv 2210.17323; AWQ arXiv 2306.00978;
bitsandbytes nf4 arXiv 2305.14314; llama.cpp gguf-py/gguf/constants.py (GGUF block sizes).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from calc.errors import UnknownNameError, UsageError, did_you_mean


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """How the elements of a weight matrix [d_in, d_out] are stored.

    ``element_bits`` excludes scales. ``group_bits`` are stored once per ``group`` elements along d_in, ``channel_bits`` once per
    output channel, ``input_bits`` once per input row, ``block_bits`` once per ``block`` = (rows, columns), ``tensor_bits`` once.
    ``compute`` is the type the matrix units run in when the device has them: ``16bit`` for weight-only formats, whose peak is
    that of bf16 or fp16 whatever the bits. ``approximate`` marks mixes whose share of each type depends on the file. ``counted_bytes``
    are bytes per element as counted in the files of one checkpoint: they stand above the format's own law.
    """

    name: str
    element_bits: float
    compute: str = "16bit"
    group: int = 0
    group_bits: int = 0
    channel_bits: int = 0
    input_bits: int = 0
    block: tuple[int, int] = (0, 0)
    block_bits: int = 0
    tensor_bits: int = 0
    approximate: bool = False
    whole_model: bool = False  # quantises embedding and head too (GGUF files do)
    counted_bytes: float = 0.0  # 0: not counted

    def matrix_bytes(self, d_in: int, d_out: int) -> int:
        """Bytes of one matrix, scales included (exact integer, rounded up to a byte; to the nearest where counted)."""
        if self.counted_bytes:
            return round(self.counted_bytes * d_in * d_out)
        bits = self.element_bits * d_in * d_out + self.tensor_bits
        if self.group:
            bits += self.group_bits * -(-d_in // self.group) * d_out
        if self.block_bits:
            bits += self.block_bits * -(-d_in // self.block[0]) * -(-d_out // self.block[1])
        bits += self.channel_bits * d_out + self.input_bits * d_in
        return int(-(-bits // 8))

    @property
    def nominal_bits(self) -> float:
        """Bits per weight for a large matrix, scales by group and block included."""
        if self.counted_bytes:
            return 8 * self.counted_bytes
        bits = self.element_bits
        if self.group:
            bits += self.group_bits / self.group
        if self.block_bits:
            bits += self.block_bits / (self.block[0] * self.block[1])
        return bits


def _grouped(name: str, bits: int, group: int, group_bits: int, **kw: object) -> NumberFormat:
    return NumberFormat(name, bits, group=group, group_bits=group_bits, **kw)  # type: ignore[arg-type]


def _gguf(name: str, elements: int, block_bytes: int) -> NumberFormat:
    # A GGUF block is stored whole: all of its bits are charged per block along the row.
    return NumberFormat(name, 0, group=elements, group_bits=8 * block_bytes, whole_model=True)


#: Average bits per weight of GGUF mixes: llama.cpp tools/quantize/README, Llama-3.1-8B. The true share depends on the file.
_GGUF_MIXES = {
    "q2_k_s": 2.9697, "q2_k_m": 3.1593, "q3_k_s": 3.6429, "q3_k_m": 3.9960, "q3_k_l": 4.2979, "q4_k_s": 4.6672, "q4_k_m": 4.8944,
    "q5_k_s": 5.5704, "q5_k_m": 5.7036, "iq2_m": 2.9294, "iq3_xs": 3.4977, "iq3_m": 3.7628,
}  # fmt: skip

_GGUF_BLOCKS = {
    "q1_0": (128, 18), "tq1_0": (256, 54), "tq2_0": (256, 66), "iq1_s": (256, 50), "iq1_m": (256, 56), "iq2_xxs": (256, 66),
    "iq2_xs": (256, 74), "iq2_s": (256, 82), "q2_k": (256, 84), "iq3_xxs": (256, 98), "iq3_s": (256, 110), "q3_k": (256, 110),
    "iq4_xs": (256, 136), "q4_0": (32, 18), "iq4_nl": (32, 18), "q4_k": (256, 144), "q4_1": (32, 20), "q5_0": (32, 22),
    "q5_k": (256, 176), "q5_1": (32, 24), "q6_k": (256, 210), "q8_0": (32, 34), "q8_k": (256, 292),
}  # fmt: skip

_FORMATS: dict[str, NumberFormat] = {
    f.name: f
    for f in (
        NumberFormat("fp64", 64, compute="fp64"),
        NumberFormat("fp32", 32, compute="fp32"),
        NumberFormat("bf16", 16),
        NumberFormat("fp16", 16),
        NumberFormat("fp8", 8, compute="fp8"),
        NumberFormat("fp8-channel", 8, compute="fp8", channel_bits=32),
        NumberFormat("fp8-block", 8, compute="fp8", block=(128, 128), block_bits=32),
        NumberFormat("int8", 8, compute="int8", channel_bits=32),
        NumberFormat("w8a16", 8, channel_bits=16),
        _grouped("gptq", 4, 128, 16 + 4, input_bits=32),
        *(_grouped(f"gptq-{bits}bit", bits, 128, 16 + bits, input_bits=32) for bits in (2, 3, 8)),
        _grouped("awq", 4, 128, 16 + 4),
        _grouped("w4a16", 4, 128, 16),
        _grouped("w8a16-group", 8, 128, 16),
        *(_grouped(f"mlx-{bits}bit", bits, 64, 16 + 16, whole_model=True) for bits in (3, 4, 5, 6, 8)),
        _grouped("nf4", 4, 64, 32),
        _grouped("nf4-double", 4, 64, 8, block=(64, 256), block_bits=32),
        _grouped("mxfp4", 4, 32, 8, compute="fp4"),
        _grouped("mxfp8", 8, 32, 8, compute="fp8"),
        _grouped("nvfp4", 4, 16, 8, tensor_bits=32, compute="fp4"),
        _grouped("fp4-block", 4, 32, 8, compute="fp8"),
        *(_gguf(n, e, b) for n, (e, b) in _GGUF_BLOCKS.items()),
        *(NumberFormat(n, b, approximate=True, whole_model=True) for n, b in _GGUF_MIXES.items()),
    )
}
_ALIASES = {
    "float32": "fp32", "float": "fp32", "f32": "fp32", "float16": "fp16", "half": "fp16", "f16": "fp16", "bfloat16": "bf16",
    "float64": "fp64", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "float8_e4m3fn": "fp8", "float8_e5m2": "fp8", "none": "bf16",
    "w8a8": "int8", "bnb": "nf4", "bitsandbytes": "nf4", "modelopt": "nvfp4", "q4_k_xl": "q4_k_m",
}  # fmt: skip


def weight_format(name: str, group_size: int | None = None) -> NumberFormat:
    """The storage format of a weight matrix by name; ``group_size`` replaces that of a grouped format."""
    key = name.lower()
    key = _ALIASES.get(key, key)
    found = _FORMATS.get(key)
    if found is None:
        found = _FORMATS.get(key.replace("-", "_")) or _FORMATS.get(key.replace("_", "-"))
    if found is None:
        raise UnknownNameError(
            f"unknown weight format {name!r}", did_you_mean(name, _FORMATS) or "known: " + ", ".join(sorted(_FORMATS))
        )
    return replace(found, group=group_size) if group_size and found.group else found


def weight_format_names() -> list[str]:
    """All names that ``weight_format`` accepts without aliases."""
    return list(_FORMATS)


@dataclass(frozen=True, slots=True)
class CacheFormat:
    """How key or value vectors are stored: ``vector_bytes(width)`` for one head of one token, scales included."""

    name: str
    element_bits: int
    block: int = 0  # elements that share block_bytes of scale
    block_bytes: int = 0
    vector_bytes_extra: int = 0  # scale stored once per head and token
    packed: tuple[tuple[int, int], ...] = ()  # (width, bytes) of layouts that mix types within a vector; no other width exists

    def vector_bytes(self, width: int) -> float:
        """Bytes of one vector of ``width`` elements (a float only where a block scale does not divide the width)."""
        if self.packed:
            if width not in dict(self.packed):
                widths = " and ".join(str(w) for w, _ in self.packed)
                raise UsageError(
                    f"the cache format {self.name} has no layout for vectors of {width} elements", f"known widths: {widths}"
                )
            return dict(self.packed)[width]
        scales = self.block_bytes * width / self.block if self.block else 0
        total = self.element_bits * width / 8 + scales + self.vector_bytes_extra
        return int(total) if total == int(total) else total


_CACHE_FORMATS = {
    f.name: f
    for f in (
        CacheFormat("fp32", 32),
        CacheFormat("bf16", 16),
        CacheFormat("fp16", 16),
        CacheFormat("fp8", 8),
        CacheFormat("int8", 8),
        CacheFormat("fp8-per-token-head", 8, vector_bytes_extra=4),
        CacheFormat("int8-per-token-head", 8, vector_bytes_extra=4),
        CacheFormat("int4-per-token-head", 4, vector_bytes_extra=4),
        CacheFormat("nvfp4", 4, block=16, block_bytes=1),
        CacheFormat("mxfp8", 8, block=32, block_bytes=1),
        CacheFormat("q8_0", 8, block=32, block_bytes=2),
        CacheFormat("q5_1", 5, block=32, block_bytes=4),
        CacheFormat("q5_0", 5, block=32, block_bytes=2),
        CacheFormat("q4_1", 4, block=32, block_bytes=4),
        CacheFormat("q4_0", 4, block=32, block_bytes=2),
        CacheFormat("iq4_nl", 4, block=32, block_bytes=2),
        # Latents in fp8 with fp32 scales and a bf16 rotary part: 512 + 16 + 128 (DeepSeek-V3.2), 448 + 8 + 128 (V4 entries); vLLM.
        CacheFormat("fp8-ds-mla", 8, packed=((576, 656), (512, 584))),
    )
}


def cache_format(name: str) -> CacheFormat:
    """The storage format of the KV cache by name."""
    key = _ALIASES.get(name.lower(), name.lower())
    found = _CACHE_FORMATS.get(key) or _CACHE_FORMATS.get(key.replace("_", "-"))
    if found is None:
        raise UnknownNameError(
            f"unknown KV cache format {name!r}",
            did_you_mean(name, _CACHE_FORMATS) or "known: " + ", ".join(_CACHE_FORMATS),
        )
    return found


def canonical_dtype(name: str) -> str:
    """``bfloat16`` → ``bf16`` and so on; names that are no plain type are refused."""
    key = _ALIASES.get(name.lower(), name.lower())
    if key not in ("fp32", "fp16", "bf16", "fp64"):
        raise UnknownNameError(f"unknown dtype {name!r}", "known: auto, bf16, fp16, fp32")
    return key
