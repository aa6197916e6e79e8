"""Train one classifier with several processes.

    torchrun --nproc-per-node 2 examples/torchrun.py

Every process runs this script and makes the same call of fit. Each owns a part of the samples,
gradients are added up, and all end with the same model, that of one process up to rounding:
compare with what ``python examples/torchrun.py`` prints. Predictions are not shared out by
themselves: here every process takes its part of the test samples.
"""

import os

import torch
import torch.distributed as dist
from sklearn.model_selection import train_test_split

from halfseen import SparseCodingClassifier, ampute
from halfseen.datasets import digits

RANK = int(os.environ.get("RANK", 0))
N_PROCESSES = int(os.environ.get("WORLD_SIZE", 1))


def main() -> None:
    X, y = digits()
    X = ampute(X, "random", 0.5, random_state=0)  # the same holes in every process
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=450, stratify=y, random_state=0
    )
    # A GPU for each process, or none at all.
    enough_gpus = torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    clf = SparseCodingClassifier(
        "mlp",
        training="joint",
        n_epochs=10,
        device="cuda" if enough_gpus else "cpu",
        random_state=0,
    )
    clf.fit(X_train, y_train)

    mine = slice(RANK, None, N_PROCESSES)
    n_right = torch.tensor((clf.predict(X_test[mine]) == y_test[mine]).sum())
    if N_PROCESSES > 1:
        dist.all_reduce(n_right)
    if RANK == 0:
        print(f"{N_PROCESSES} process(es) on {X_train.shape[0]} samples")
        print(f"loss of the last epoch: {clf.history_[-1]['J0']:.6f}")
        print(f"accuracy: {n_right.item() / len(X_test):.1%}")


if __name__ == "__main__":
    main()
