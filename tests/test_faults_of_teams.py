"""Members of a team that are killed at random moments: the others end, and a new start goes on."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from test_faults_of_runs import environment, epochs_in, fitted, in_a_child, same, started_apart

from halfseen import sparse_fitting, storage
from halfseen.training import loop

MUST_END = 60  # seconds that the rest of a team may take to notice
TORCHRUN = """
import sys
from pathlib import Path
import test_faults_of_teams as here
here.train_in_team(Path(sys.argv[1]))
"""


def train_in_team(folder):
    """Train as one of two; say in a file when it begins, and what another's end looks like."""
    loop._WRITING_SHARE = 1.0
    rank, joined = os.environ["RANK"], sparse_fitting.this_team

    def join(device):
        found = joined(device)
        Path(folder, f"joined {rank}").write_text(str(os.getpid()))
        return found

    sparse_fitting.this_team = join
    try:
        clf = fitted("joint", checkpoint=folder / "checkpoint")
    except RuntimeError as error:
        Path(folder, f"error {rank}").write_text(str(error))
        raise
    if rank == "0":
        clf.save(folder / "model")


def be_member(rank, port, folder):
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    os.environ["MASTER_PORT"] = str(port)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # errors are expected, and are in a file
    train_in_team(folder)


def start_team(folder):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return [in_a_child(be_member, rank, port, folder) for rank in range(2)]


def both_joined(folder):
    """Wait until both of a team have begun; return the numbers of their processes."""
    files, end = [folder / f"joined {rank}" for rank in range(2)], time.monotonic() + MUST_END
    while not all(file.exists() and file.read_text() for file in files):
        assert time.monotonic() < end
        time.sleep(0.001)
    return [int(file.read_text()) for file in files]


def clear(folder):
    for file in [*folder.glob("joined *"), *folder.glob("error *")]:
        file.unlink()


def kill_members(folder, n_kills):
    """Kill one of two; the other must notice by itself and end."""
    fitted("joint")  # loads what it needs
    random, total, undisturbed = np.random.default_rng(0), Counter(), folder / "undisturbed"
    undisturbed.mkdir()
    children = start_team(undisturbed)
    both_joined(undisturbed)
    start = time.perf_counter()
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
    life = time.perf_counter() - start
    expected = storage.read(undisturbed / "model", "classifier")
    while total["kills"] < n_kills:
        place, statuses = folder / str(total["finished"]), None
        place.mkdir()
        while statuses != [0, 0]:
            clear(place)
            children = start_team(place)
            both_joined(place)
            victim = int(random.integers(2))
            if total["kills"] < n_kills:
                time.sleep(1.1 * life * random.random())
                os.kill(children[victim], signal.SIGKILL)
            statuses = [wait_for_end(child) for child in children]
            assert statuses[victim] in (0, signal.SIGKILL), statuses
            total["kills"] += statuses[victim] != 0
            if statuses[1 - victim] != 0:  # unless it was done, it says why it ended
                assert statuses[victim] == signal.SIGKILL, statuses
                said = (place / f"error {1 - victim}").read_text()
                assert "another process of this training has stopped" in said
                total["noticed"] += 1
            epochs_in(place / "checkpoint")
        assert same(storage.read(place / "model", "classifier"), expected), place
        total["finished"] += 1
    print(json.dumps(total))


def wait_for_end(child):
    end = time.monotonic() + MUST_END
    while (found := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            raise AssertionError("a process hangs after another one of its team is gone")
        time.sleep(0.005)
    return found[1]


def test_when_one_of_two_is_killed_the_other_ends(tmp_path, times, tried):
    seen = started_apart(kill_members, tmp_path, times(4, 30))
    assert seen["noticed"] > 0
    tried("members of a team killed at a random moment", seen["kills"])


def test_torchrun_goes_on_after_kills(tmp_path, times, tried):
    n_wanted = times(0, 10)
    if n_wanted == 0:
        pytest.skip("slow: only with --nightly; usually members of a team are killed without it")
    script, random, n_kills = tmp_path / "train.py", np.random.default_rng(0), 0
    script.write_text(TORCHRUN)
    found = []
    while n_kills < n_wanted:
        place, code = tmp_path / str(len(found)), None
        place.mkdir()
        while code != 0:
            clear(place)
            code = run_and_kill(script, place, random, n_kills < n_wanted)
            n_kills += code != 0
        found.append(storage.read(place / "model", "classifier")["weights"])
    fitted("joint").save(tmp_path / "alone")
    alone = storage.read(tmp_path / "alone", "classifier")["weights"]
    for weights in found:
        assert same(weights, found[0])
        torch.testing.assert_close(weights, alone, atol=1e-6, rtol=0)
    tried("members of a torchrun killed at a random moment", n_kills)


def run_and_kill(script, folder, random, kill):
    """Run two processes by torchrun, kill one of them at some moment, return the exit status."""
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    with subprocess.Popen(
        [*run, str(script), str(folder)], env=environment(), stderr=subprocess.PIPE
    ) as process:
        try:
            pids = both_joined(folder)
            if kill:
                time.sleep(random.random() / 2)
                with contextlib.suppress(ProcessLookupError):  # it was faster
                    os.kill(pids[random.integers(2)], signal.SIGKILL)
            process.communicate(timeout=MUST_END)
        finally:
            process.terminate()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    return process.returncode
