"""Several processes that train one model."""

import os
import signal
import socket
import subprocess
import sys

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from halfseen import Patches, SparseCodingClassifier
from halfseen.team import Team, this_team
from halfseen.training.batch_norm import shared_batch_norm
from halfseen.training.codes import packed, unpack

WAYS = {
    "task": {"validation_fraction": 0.2, "hide": 0.25},
    "sequential": {"training": "sequential", "validation_fraction": 0.2},
    "joint": {"training": "joint", "label_weight": 0.2},
    "published": {"training": "published", "label_weight": 1.0},
    "batch norm": {"network": "cnn4_bn", "tiling": Patches(4, 2), "n_atoms": 16, "n_epochs": 3},
}
COMPARE = """
import sys
from test_team import WAYS, fitted, proba
import numpy as np
found = {way: proba(way, fitted(way)) for way in WAYS}
import torch.distributed as dist
assert not dist.is_initialized() or dist.get_world_size() == 2
if not dist.is_initialized() or dist.get_rank() == 0:
    np.savez(sys.argv[1], **found)
"""
# In the third epoch one process is gone, without a word.
DIE = """
import os, signal, sys
from test_team import fitted
from halfseen.training.joint import Joint
step = Joint.step
def deadly(trainer, rows):
    if trainer.team.rank == int(sys.argv[2]) and trainer.n_steps == 2 * trainer.n_batches + 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return step(trainer, rows)
Joint.step = deadly
fitted("joint", checkpoint=sys.argv[1])
"""
RESUME = """
import sys
from test_team import fitted, proba
import numpy as np
import torch.distributed as dist
clf = fitted("joint", checkpoint=sys.argv[1])
if dist.get_rank() == 0:
    np.save(sys.argv[2], proba("joint", clf))
"""


# A process may have no row of a batch; then it must not count.
SPARSE = """
import sys
from test_team import few
import numpy as np
import torch.distributed as dist
found = {way: few(way) for way in ("batch norm", "joint", "published", "task")}
if not dist.is_initialized() or dist.get_rank() == 0:
    np.savez(sys.argv[1], **found)
# A thread of the group that outlives it aborts the process when Python ends.
import os
from halfseen.team import _leave
_leave()
if os.path.isdir("/proc/self/task"):
    names = [open(f"/proc/self/task/{one}/comm").read() for one in os.listdir("/proc/self/task")]
    assert not any("gloo" in name for name in names), names
"""
WRONG = """
import os
import numpy as np
from halfseen import SparseCodingClassifier
from torch import nn
class More(nn.BatchNorm1d):
    def forward(self, X):
        return super().forward(X).relu()
rank = int(os.environ["RANK"])
X = np.random.default_rng(0).random((40, 4))
def attempt(data, checkpoint=None, **settings):
    clf = SparseCodingClassifier(n_epochs=1, device="cpu", **settings)
    try:
        clf.fit(data, np.arange(len(data)) % 2, checkpoint=checkpoint)
    except ValueError as error:
        print(error)
attempt(X[:2])
attempt(np.random.default_rng(rank).random((40, 4)))
attempt(X, learning_rate=0.1 if rank else 0.01)
attempt(X, network="mlp" if rank else "logistic")
attempt(X, checkpoint=None if rank else "checkpoint")
attempt(X, network=lambda: nn.Sequential(nn.Linear(4, 3), More(3), nn.Linear(3, 2)))
"""
# Started by other processes, but with a group; what they split off has none.
OWN_GROUP = """
import multiprocessing, os, sys
import torch.distributed as dist
from halfseen.team import Team, this_team
def work(rank, path):
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
    assert this_team("cpu") == Team(rank, 2)
    child = os.fork()
    if child == 0:
        os._exit(this_team("cpu") != Team())
    assert os.waitpid(child, 0)[1] == 0
    dist.barrier()
    dist.destroy_process_group()
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    started = [context.Process(target=work, args=(rank, sys.argv[1])) for rank in range(2)]
    for process in started:
        process.start()
    for process in started:
        process.join()
    assert [process.exitcode for process in started] == [0, 0]
"""
# Statistics that run along, but are not batch normalisation's.
RUNNING = """
import numpy as np
import torch
from torch import nn
from halfseen import SparseCodingClassifier
X = np.random.default_rng(0).random((60, 6))
def network():
    layers = nn.Unflatten(1, (2, 3)), nn.InstanceNorm1d(2, track_running_stats=True)
    layers[0].register_buffer("kept", torch.ones(2, dtype=torch.int16))  # not known to gloo
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(6, 2))
clf = SparseCodingClassifier(network, n_epochs=2, random_state=0, device="cpu")
clf.fit(X, np.arange(60) % 2)
print(clf.module_.network[1].running_mean.tolist(), clf.predict_proba(X[:1]).tolist())
"""


def few(way):
    X, y = data(way)
    settings = {"n_epochs": 3, "batch_size": 2, "random_state": 0, **WAYS[way]}
    settings["validation_fraction"] = None
    return SparseCodingClassifier(**settings).fit(X[:12], y[:12]).predict_proba(X[:12])


def data(way):
    X, y = load_digits(return_X_y=True)
    X = np.where(np.random.default_rng(0).random(X.shape) < 0.5, np.nan, X)[:400]
    return (X.reshape(-1, 1, 8, 8) if way == "batch norm" else X), y[:400]


def fitted(way, **options):
    settings = {"n_epochs": 5, "batch_size": 64, "random_state": 0, **WAYS[way]}
    return SparseCodingClassifier(**settings).fit(*data(way), **options)


def proba(way, clf):
    return clf.predict_proba(data(way)[0])


def environment(**more):
    return {
        **os.environ,
        "PYTHONPATH": os.path.dirname(__file__),
        "OMP_NUM_THREADS": "1",
        **{name: str(value) for name, value in more.items()},
    }


def start_team(script, size, *arguments):
    """Start processes as torchrun does, without its habit to end the others at once."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return [
        subprocess.Popen(
            [sys.executable, "-c", script, *map(str, arguments)],
            env=environment(RANK=rank, WORLD_SIZE=size, MASTER_ADDR="127.0.0.1", MASTER_PORT=port),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]


def test_two_processes_learn_what_one_learns(tmp_path):
    script = tmp_path / "compare.py"
    script.write_text(COMPARE)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    subprocess.run(
        [*torchrun, "--nproc-per-node=2", str(script), str(tmp_path / "two.npz")],
        env=environment(),
        check=True,
        timeout=300,
    )
    two = np.load(tmp_path / "two.npz")
    for way in WAYS:
        # Sums in another order; batches, holes and first codes are the same.
        np.testing.assert_allclose(two[way], proba(way, fitted(way)), atol=1e-6, err_msg=way)


def test_a_process_that_dies_stops_all_and_others_can_go_on(tmp_path):
    expected = proba("joint", fitted("joint"))
    for dead, size in ((1, 3), (0, 1)):  # who dies; how many go on
        checkpoint = tmp_path / f"checkpoint-{dead}"
        processes = start_team(DIE, 2, checkpoint, dead)
        messages = [process.communicate(timeout=120)[1] for process in processes]
        assert processes[dead].returncode == -signal.SIGKILL
        assert processes[1 - dead].returncode == 1
        assert "another process of this training has stopped" in messages[1 - dead]
        assert "checkpoint=" in messages[1 - dead]
        if size == 1:
            clf = fitted("joint", checkpoint=checkpoint)
            found = proba("joint", clf)
            assert len(clf.history_) == 5
        else:
            processes = start_team(RESUME, size, checkpoint, tmp_path / "found.npy")
            for process in processes:
                _, message = process.communicate(timeout=120)
                assert process.returncode == 0, message
            found = np.load(tmp_path / "found.npy")
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_process_without_a_row_in_a_batch_does_not_count(tmp_path):
    for process in start_team(SPARSE, 3, tmp_path / "three.npz"):
        _, message = process.communicate(timeout=120)
        assert process.returncode == 0, message
    three = np.load(tmp_path / "three.npz")
    for way in three:
        np.testing.assert_allclose(three[way], few(way), atol=1e-6, err_msg=way)


def test_processes_say_what_they_cannot_share(tmp_path):
    for process in start_team(WRONG, 3):
        said, message = process.communicate(timeout=120)
        assert process.returncode == 0, message
        first, *others, last = said.splitlines()
        assert "3 processes cannot share 2 distinct samples" in first
        assert len(others) == 4
        assert all("different data or settings" in other for other in others)
        assert "cannot share the batches of a More" in last


def test_statistics_that_run_along_are_the_same_everywhere():
    said = []
    for process in start_team(RUNNING, 2):
        out, message = process.communicate(timeout=120)
        assert process.returncode == 0, message
        said.append(out)
    assert said[0] == said[1]


def test_processes_with_a_group_of_their_own_are_a_team(tmp_path):
    (tmp_path / "own_group.py").write_text(OWN_GROUP)
    command = [sys.executable, tmp_path / "own_group.py", tmp_path / "group"]
    subprocess.run(command, env=environment(), check=True, timeout=120)


def test_a_child_or_a_loner_is_in_no_team(monkeypatch):
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HALFSEEN_ALONE", "1")
    assert this_team("cpu") == Team()
    monkeypatch.delenv("HALFSEEN_ALONE")
    monkeypatch.setattr("multiprocessing.parent_process", lambda: object())
    assert this_team("cpu") == Team()


@pytest.mark.parametrize("n_rows", [1, 5, 7, 64])
def test_blocks_cover_all_rows_once(n_rows):
    rows = np.arange(n_rows)
    blocks = [rows[Team(rank, 5).block(n_rows)] for rank in range(5)]
    np.testing.assert_array_equal(np.concatenate(blocks), rows)
    assert max(map(len, blocks)) - min(map(len, blocks)) <= 1


def test_codes_survive_packing():
    codes = torch.randn(50, 2, 13, generator=torch.Generator().manual_seed(0))
    codes[torch.rand(codes.shape, generator=torch.Generator().manual_seed(1)) < 0.9] = 0
    state = packed(codes, Team())
    assert state["nonzero"].numel() == 50 * 4  # a bit for each of 26 codes, in whole bytes
    assert len(state["values"]) == int((codes != 0).sum())
    again = torch.full((20, 2, 13), torch.nan)
    unpack(state, again, first=17)  # as another number of processes would read it
    assert (again == codes[17:37]).all()


def test_batch_norm_of_one_process_is_torch_s_own():
    """With a team of two whose halves are added up by hand."""
    torch.manual_seed(0)
    X = torch.randn(6, 3, 4, 4, dtype=torch.float64)
    for momentum in (0.1, None):
        own = nn.BatchNorm2d(3, momentum=momentum).double()
        plain = nn.BatchNorm2d(3, momentum=momentum).double()

        class Mirror(Team):
            """Another process that has the same samples."""

            def add_up(self, tensors):
                for tensor in tensors:
                    tensor.mul_(2)

        with shared_batch_norm(own, Mirror(0, 2)):
            leaf = X.clone().requires_grad_()
            found = own(leaf)
            found.square().mul(torch.arange(4)).sum().backward()
        doubled = torch.cat([X, X]).requires_grad_()
        expected = plain(doubled)
        expected.square().mul(torch.arange(4)).sum().backward()
        torch.testing.assert_close(found, expected[:6])
        torch.testing.assert_close(leaf.grad, doubled.grad[:6])
        torch.testing.assert_close(own.running_mean, plain.running_mean)
        torch.testing.assert_close(own.running_var, plain.running_var)
    assert "forward" not in vars(own)
