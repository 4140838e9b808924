"""The tensors of a file as the importer takes them: each once, under the role whose bytes it counts to."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from calc.errors import ProfileError
from calc.profiles.importers.gguf.tensor_types import Tensor

_BLOCK = re.compile(r"blk\.(\d{1,6})\.(.+)")
#: Scales that stand beside a matrix instead of in its blocks: of NVFP4 matrices, and BitNet's one scale a matrix.
_COMPANIONS = (".scale", ".input_scale")
#: Rotary tables: functions of the metadata, kept for convenience.
_BUFFERS = re.compile(r"rope_freqs|rope_factors_(long|short)|attn_rot_embd")


class Ledger:
    """Bytes by role, and by type within a role, of what was taken; buffers, copies and scales are told apart from parameters."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.bytes: dict[str, int] = defaultdict(int)
        self.types: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self.beyond: dict[str, int] = defaultdict(int)  # what → elements that are no parameters of the architecture
        self.elements = 0

    def enter(self, tensor: Tensor, role: str, *, beyond: str | None = None) -> None:
        """Count a tensor; ``beyond`` names why it is no parameter of the architecture."""
        self.bytes[role] += tensor.bytes
        self.elements += tensor.elements
        if beyond is None:
            self.types[role][tensor.type] += tensor.elements
        else:
            self.beyond[beyond] += tensor.elements

    def fault(self, tensor: Tensor, message: str) -> ProfileError:
        """An error at a tensor."""
        return ProfileError(
            f"{self.name}: tensor {tensor.name!r} {message}", "the tensor list and the metadata contradict each other"
        )


class Group:
    """The tensors of one layer, or those outside the layers, by their name within it."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.left: dict[str, Tensor] = {}

    def __contains__(self, name: str) -> bool:
        return name in self.left

    def peek(self, name: str) -> Tensor | None:
        """A tensor that stays where it is."""
        return self.left.get(name)

    def take(self, name: str, role: str, *, beyond: str | None = None) -> Tensor | None:
        """A tensor by name, with the scales that belong to it; None where there is none."""
        tensor = self.left.pop(name, None)
        if tensor is None:
            return None
        self.ledger.enter(tensor, role, beyond=beyond)
        if name.endswith(".weight"):
            for companion in _COMPANIONS:
                other = name.removesuffix(".weight") + companion
                beside = self.left.get(other)
                if beside and (tensor.type == "nvfp4" or beside.elements == 1):
                    del self.left[other]
                    self.ledger.enter(beside, role, beyond="scales beside matrices")
        return tensor

    def need(self, name: str, role: str) -> Tensor:
        """A tensor without which its neighbours make no sense."""
        tensor = self.take(name, role)
        if tensor is None:
            beside = next(iter(self.left.values()), None)
            where = f" beside {beside.name!r}" if beside else ""
            raise ProfileError(f"{self.ledger.name}: the tensor {name!r} is missing{where}", "is the tensor list complete?")
        return tensor

    def bias(self, name: str, role: str, width: int) -> bool:
        """Whether ``name`` has a bias of ``width`` elements; it is taken."""
        tensor = self.take(f"{name}.bias", role)
        if tensor is not None and tensor.elements != width:
            raise self.ledger.fault(tensor, f"has {tensor.elements:,} elements; {width:,} are expected")
        return tensor is not None

    def drop_buffers(self) -> None:
        """Set rotary tables aside; their bytes stand with the norms, which have their type."""
        for name in [n for n in self.left if _BUFFERS.match(n)]:
            self.take(name, "norm", beyond="rotary tables")

    def rest(self) -> Iterator[tuple[str, Tensor]]:
        """What nobody took, as (name, tensor)."""
        yield from list(self.left.items())


def sort_tensors(name: str, tensors: Iterable[Tensor], layers: int) -> tuple[Ledger, Group, list[Group]]:
    """(ledger, tensors outside the layers, those of each layer)."""
    ledger = Ledger(name)
    outside, blocks = Group(ledger), [Group(ledger) for _ in range(layers)]
    for tensor in tensors:
        found = _BLOCK.fullmatch(tensor.name)
        if found is None:
            outside.left[tensor.name] = tensor
            continue
        number = int(found[1])
        if number >= layers:
            raise ledger.fault(tensor, f"belongs to layer {number:,}; block_count is {layers:,}")
        blocks[number].left[found[2]] = tensor
    for group in (outside, *blocks):
        group.drop_buffers()
    return ledger, outside, blocks
