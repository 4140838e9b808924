"""Shapes of matrix products around the best ones: squares are the coarse grid, the fastest shape is often none of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

Shape = tuple[int, int, int]
#: Shapes whose neighbours are tried.
BEST = 5


def neighbours(best: Iterable[Shape], sizes: Sequence[int], known: Iterable[Shape]) -> Iterator[Shape]:
    """(m, n, k) one step of the ascending ``sizes`` away from one of the ``best`` in one direction, the larger first, each once; none
    of the ``known``."""
    seen = set(known)
    for shape in best:
        for step in (1, -1):
            for letter in range(3):
                place = bisect_left(sizes, shape[letter]) + step
                if not 0 <= place < len(sizes):
                    continue
                sides = [*shape]
                sides[letter] = sizes[place]
                found = (sides[0], sides[1], sides[2])
                if found not in seen:
                    seen.add(found)
                    yield found
