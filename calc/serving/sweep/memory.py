"""What fits at every length of a sweep: the engine's law once where lengths do not change it, else once per distinct length."""

from __future__ import annotations

from threading import Lock
from typing import Any

from calc.memory import capacity as figures
from calc.memory.budget import Capacity
from calc.serving.deployment import Deployment


class HeldByLength:
    """Sequences that fit, concurrency and KV tokens as the engine prints them, by the length of a finished request.

    Answers are kept, sorted by length, over all parts of a sweep.
    """

    def __init__(self, deployment: Deployment) -> None:
        import numpy as np

        self._deployment = deployment
        self._lock = Lock()
        self._lengths = np.empty(0)
        self._figures = np.empty((3, 0))

    def at(self, final: Any) -> tuple[Any, Any, Any]:
        """(sequences, concurrency, KV tokens) for an array of lengths, each in its shape."""
        import numpy as np

        lengths, inverse = np.unique(final, return_inverse=True)
        with self._lock:
            missing = np.setdiff1d(lengths, self._lengths, assume_unique=True)
            if missing.size:
                self._add(missing, np)
            columns = self._figures[:, np.searchsorted(self._lengths, lengths)][:, inverse]
        sequences, concurrency, tokens = columns.reshape(3, *final.shape)
        return sequences, concurrency, tokens

    def _add(self, missing: Any, np: Any) -> None:
        found = self._evaluate(missing, np)
        at = np.searchsorted(self._lengths, missing)
        self._lengths = np.insert(self._lengths, at, missing)
        self._figures = np.insert(self._figures, at, found, axis=1)

    def _evaluate(self, lengths: Any, np: Any) -> Any:
        """One law for all lengths where it gives the shortest and the longest the same ranks: what laws derive from a length only
        grows or falls with it. Slots set aside whole lengths: nothing of them is the same at two."""
        first, last = (self._capacity(int(n)) for n in (lengths[0], lengths[-1]))
        same = first.ranks and first.ranks == last.ranks and first.max_num_seqs == last.max_num_seqs
        if same and first.most_slots is None:
            return self._together(first, lengths, np)
        return np.array([self._single(int(n)) for n in lengths]).T

    def _capacity(self, length: int) -> Capacity:
        deployment = self._deployment
        given = deployment.memory.max_model_len
        return deployment.engine.capacity(deployment.question(max_model_len=given or length))

    def _together(self, held: Capacity, lengths: Any, np: Any) -> Any:
        memory = self._deployment.memory
        room = np.minimum(figures.group_concurrency(held, lengths, memory.cached_tokens), held.max_num_seqs or np.inf)
        whole = np.floor(np.broadcast_to(room, lengths.shape)) * held.data_ranks
        sequences = whole if held.loaded else np.zeros(lengths.shape)
        if memory.max_model_len:
            return np.stack([sequences, *(np.full(lengths.shape, float(v)) for v in (held.max_concurrency, held.kv_tokens))])
        cached = [r for r in held.ranks if r.pool.cache.layers]
        if not cached:
            printed = [(float(held.max_concurrency), float(held.kv_tokens))] * len(lengths)
        else:
            printed = [
                (
                    min(r.pool.printed_concurrency(r.kv.bytes, n) for r in cached) * held.data_ranks,
                    float(int(min(float(r.pool.printed_tokens(r.kv.bytes, n)) for r in cached))),
                )
                for n in map(int, lengths)
            ]
        return np.stack([sequences, *np.array(printed).T])

    def _single(self, length: int) -> tuple[float, float, float]:
        deployment, held = self._deployment, self._capacity(length)
        question = deployment.question(max_model_len=deployment.memory.max_model_len or length)
        sequences = deployment.engine.sequences(question, held, length) if held.loaded else 0
        return float(sequences), float(held.max_concurrency), float(held.kv_tokens)
