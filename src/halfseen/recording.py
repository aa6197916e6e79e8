"""Recording steps of learning on a GPU and replaying them (CUDA graphs)."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

_EAGER_STEPS = 3  # with each number of rows, before they are recorded: buffers settle


class Recorder:
    """Runs a step as written a few times, then records and replays it.

    Parameters
    ----------
    device : torch.device
        The GPU that steps run on.
    generator : torch.Generator, optional
        That the step draws from, beside torch's own.
    """

    def __init__(self, device: torch.device, generator: torch.Generator | None = None) -> None:
        self._device = device
        self._generator = generator
        # What is recorded must not have met the default stream first. A stream of its own also
        # keeps scratch memory of libraries apart from that of other steps that run at once.
        current = torch.cuda.current_stream(device)
        on_default = current == torch.cuda.default_stream(device)
        self._stream = torch.cuda.Stream(device) if on_default else current
        self._n_eager: dict[int, int] = {}
        self._recorded: dict[int, tuple[torch.cuda.CUDAGraph, Tensor, Tensor]] = {}

    def __call__(self, step: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
        """Take a step with some rows.

        Parameters
        ----------
        step : callable
            Takes row numbers, a tensor on a GPU, and returns a tensor. It may write to tensors
            that exist before it, such as weights, and must do the same work in every call. The
            same in all calls; not kept here, since its owner keeps the recorder.
        rows : Tensor
            On that GPU.

        Returns
        -------
        result : Tensor
            Overwritten by the next call.
        """
        n_rows = len(rows)
        if n_rows not in self._recorded:
            n_eager = self._n_eager.get(n_rows, 0)
            if n_eager < _EAGER_STEPS:
                self._n_eager[n_rows] = n_eager + 1
                return self._as_written(step, rows)
            self._recorded[n_rows] = self._record(step, rows)
        graph, place, result = self._recorded[n_rows]
        place.copy_(rows)
        graph.replay()
        return result

    def _as_written(self, step: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            result = step(rows)
        current.wait_stream(self._stream)
        return result

    def _record(
        self, step: Callable[[Tensor], Tensor], rows: Tensor
    ) -> tuple[torch.cuda.CUDAGraph, Tensor, Tensor]:
        graph, place = torch.cuda.CUDAGraph(), rows.clone()
        if self._generator is not None:
            graph.register_generator_state(self._generator)
        # Other threads may go on using the GPU meanwhile.
        recording = torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local")
        with _no_collection(), torch.cuda.device(self._device), recording:
            result = step(place)
        return graph, place, result


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Keep the garbage collector still: an old recording must not be freed during a new one."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
