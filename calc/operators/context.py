"""What every layer kind needs to write its operators: shapes of the step, formats, policy, and builders for common operators."""

from __future__ import annotations

from dataclasses import dataclass, replace

from calc.arrays import Number
from calc.operators.fusion import FusionPolicy
from calc.operators.numbers import NumberPlan
from calc.operators.operator import Collective, Operator
from calc.operators.sharding import Sharding
from calc.operators.weight import Weight
from calc.operators.work import Work


@dataclass(frozen=True, slots=True)
class LayerContext:
    """One layer kind of one step on one rank. ``layers`` is its name, ``count`` how many layers are of it; ``routing_skew`` is a Zipf
    exponent of expert popularity. ``work`` is that of the rank's own requests, ``all_tokens`` the new tokens of all data-parallel ranks
    together, which share the experts (None: there are no others)."""

    hidden_size: int
    layer_norm: bool  # LayerNorm rather than RMSNorm
    sharding: Sharding
    numbers: NumberPlan
    policy: FusionPolicy
    work: Work
    layers: str
    count: int
    routing_skew: float = 0.0
    all_tokens: Number | None = None

    @property
    def ranks(self) -> int:
        """Ranks that run a call of this layer (those of one pipeline stage)."""
        return self.sharding.stage_ranks

    def parts(self) -> list[LayerContext]:
        """One context per group of requests: kernels that depend on lengths run once for each kind (prefill, decode)."""
        if len(self.work.groups) == 1:
            return [self]
        return [replace(self, work=Work(self.work.phase, (group,))) for group in self.work.groups]

    @property
    def tokens(self) -> Number:
        """New tokens of the step."""
        return self.work.tokens

    @property
    def routed_tokens(self) -> Number:
        """New tokens that come to the experts of all ranks."""
        return self.tokens if self.all_tokens is None else self.all_tokens

    @property
    def activation(self) -> int:
        """Bytes per activation element."""
        return self.numbers.activation_bytes

    def linear(
        self,
        weight: Weight,
        tokens: Number | None = None,
        *,
        read: int | None = None,
        written: int | None = None,
        makes_kv_bytes: Number = 0,
        op_class: str = "gemm",
    ) -> Operator:
        """A matrix product [tokens, d_in] x [d_in, d_out], ``copies`` of them; 2 FLOP per multiply-add.

        ``read`` and ``written`` override the activation elements per token (default: each operand once). ``makes_kv_bytes`` are new
        keys and values among its output: written here where the policy fuses the write.
        """
        rows = self.tokens if tokens is None else tokens
        read = weight.d_in * weight.copies if read is None else read
        written = weight.d_out * weight.copies if written is None else written
        number_format = self.numbers.weight(weight.role)
        return Operator(
            weight.name,
            op_class,
            self.layers,
            self.count,
            self.ranks,
            {"m": rows, "n": weight.d_out, "k": weight.d_in} | ({"copies": weight.copies} if weight.copies > 1 else {}),
            self.numbers.compute_for(weight.role),
            flops=2 * rows * weight.d_in * weight.d_out * weight.copies,
            weight_bytes=weight.bytes(number_format) if weight.is_streamed else 0,
            activation_bytes=rows * (read + written) * self.activation,
            kv_write_bytes=0 if self.policy.kv_write else makes_kv_bytes,
            weight_format=number_format.name,
        )

    def elementwise(
        self,
        name: str,
        read: int,
        written: int,
        *,
        vector_flops: Number = 0,
        exponentials: Number = 0,
        weight_bytes: Number = 0,
        kv_write_bytes: Number = 0,
        op_class: str = "elementwise",
        count: int | None = None,
        tokens: Number | None = None,
        moves: bool = True,
    ) -> Operator:
        """A kernel that reads ``read`` and writes ``written`` activation elements a token; nothing where fused (``moves`` False)."""
        rows = self.tokens if tokens is None else tokens
        return Operator(
            name,
            op_class,
            self.layers,
            self.count if count is None else count,
            self.ranks,
            {"m": rows, "n": max(read, written)},
            self.numbers.compute,
            vector_flops=vector_flops,
            exponentials=exponentials,
            weight_bytes=weight_bytes,
            activation_bytes=rows * (read + written) * self.activation if moves else 0,
            kv_write_bytes=kv_write_bytes,
        )

    def kv_cache_write(self, width: int, kv_bytes: Number, tokens: Number | None = None) -> Operator:
        """New keys and values of ``width`` elements a token copied into the cache; another format costs 3 vector FLOP an element."""
        rows = self.tokens if tokens is None else tokens
        plain = ("bf16", "fp16", self.numbers.compute)
        converts = self.numbers.keys.name not in plain or self.numbers.values.name not in plain
        flops = 3 * rows * width if converts else 0
        return self.elementwise("kv_cache_write", width, 0, vector_flops=flops, kv_write_bytes=kv_bytes, tokens=rows)

    def norm(self, name: str, count: int, width: int | None = None, tokens: Number | None = None) -> Operator:
        """Normalisation fused with the residual addition: reads x and residual, writes both (analytic table row 1)."""
        width = width or self.hidden_size
        rows = self.tokens if tokens is None else tokens
        per_element = (7 if self.layer_norm else 4) + 1
        return self.elementwise(
            name,
            2 * width,
            2 * width,
            vector_flops=per_element * rows * width,
            weight_bytes=width * (4 if self.numbers.weight("norm").name == "fp32" else 2) * (2 if self.layer_norm else 1),
            op_class="norm",
            count=count,
            tokens=rows,
            moves=self.policy.norm,
        )

    def all_reduce(self, count: int, width: int | None = None, tokens: Number | None = None) -> Operator:
        """Sum of partial results over the tensor-parallel ranks."""
        rows = self.tokens if tokens is None else tokens
        message = rows * (width or self.hidden_size) * self.activation
        return self.collective("all_reduce", Collective("all-reduce", self.sharding.tensor, message), count)

    def collective(self, name: str, collective: Collective, count: int) -> Operator:
        """A message between ranks as an operator."""
        return Operator(
            name,
            "collective",
            self.layers,
            count,
            self.ranks,
            {"message_bytes": collective.message_bytes, "ranks": collective.ranks},
            self.numbers.compute,
            collective=collective,
        )
