"""Recording steps of learning on a GPU and replaying them (CUDA graphs)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

_EAGER_STEPS = 3  # with each number of rows, before they are recorded: buffers settle


class Recorded:
    """A step that runs as written a few times and is then replayed.

    Parameters
    ----------
    step : callable
        Takes row numbers, a tensor on a GPU, and returns a tensor. It may write to tensors
        that exist before it, such as weights, and must do the same work in every call.
    generator : torch.Generator, optional
        That the step draws from, beside torch's own.
    """

    def __init__(
        self, step: Callable[[Tensor], Tensor], generator: torch.Generator | None = None
    ) -> None:
        self._step = step
        self._generator = generator
        self._n_eager: dict[int, int] = {}
        self._recorded: dict[int, tuple[torch.cuda.CUDAGraph, Tensor, Tensor]] = {}

    def __call__(self, rows: Tensor) -> Tensor:
        """Take the step with some rows; the result is overwritten by the next call."""
        n_rows = len(rows)
        if n_rows not in self._recorded:
            n_eager = self._n_eager.get(n_rows, 0)
            if n_eager < _EAGER_STEPS:
                self._n_eager[n_rows] = n_eager + 1
                return self._on_side_stream(rows)
            self._recorded[n_rows] = self._record(rows)
        graph, place, result = self._recorded[n_rows]
        place.copy_(rows)
        graph.replay()
        return result

    def _on_side_stream(self, rows: Tensor) -> Tensor:
        # What is recorded later must not have met the default stream first.
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            result = self._step(rows)
        torch.cuda.current_stream().wait_stream(stream)
        return result

    def _record(self, rows: Tensor) -> tuple[torch.cuda.CUDAGraph, Tensor, Tensor]:
        graph, place = torch.cuda.CUDAGraph(), rows.clone()
        if self._generator is not None:
            graph.register_generator_state(self._generator)
        with torch.cuda.graph(graph):
            result = self._step(place)
        return graph, place, result
