"""A network of your own for data with holes: in the classifier, or in a loop of your own.

First any torch.nn.Module goes into SparseCodingClassifier, which trains it. Then
SparseCompletion, a layer that takes NaN and returns completed samples, is put before the same
network and trained in a plain PyTorch loop; the loss reaches its dictionary. Half of the pixels
are hidden in every digit.

    python examples/own_network.py
"""

import torch
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from halfseen import SparseCodingClassifier, Whole, ampute
from halfseen.datasets import digits
from halfseen.nn import SparseCompletion


class Residual(nn.Module):
    """A perceptron with a shortcut: nothing in it knows of holes."""

    def __init__(self, n_features: int = 64, n_hidden: int = 128, n_classes: int = 10):
        super().__init__()
        self.hidden = nn.Sequential(
            nn.Linear(n_features, n_hidden), nn.GELU(), nn.Linear(n_hidden, n_features)
        )
        self.scores = nn.Linear(n_features, n_classes)

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """Return scores of shape (n, n_classes)."""
        X = X.flatten(1)
        return self.scores(X + self.hidden(X))


def train(model: nn.Module, X: torch.Tensor, y: torch.Tensor, n_epochs: int) -> None:
    """Train as any other model: what is in it does not matter here."""
    batches = DataLoader(TensorDataset(X, y), batch_size=128, shuffle=True)
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.003, weight_decay=0.1)
    for epoch in range(n_epochs):
        total = 0.0
        for samples, labels in batches:
            loss = nn.functional.cross_entropy(model(samples), labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            total += len(samples) * loss.item()
        print(f"  epoch {epoch + 1}: loss {total / len(X):.3f}")


def main() -> None:
    torch.manual_seed(0)
    X, y = digits()
    X = ampute(X, "random", 0.5, random_state=0)
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=450, stratify=y, random_state=0
    )

    clf = SparseCodingClassifier(Residual(), n_epochs=15, learning_rate=0.005, random_state=0)
    clf.fit(X_train, y_train)
    print(f"SparseCodingClassifier, accuracy: {clf.score(X_test, y_test):.1%}")

    X_train, X_test, y_train, y_test = map(torch.as_tensor, (X_train, X_test, y_train, y_test))
    mean, deviation = X_train.nanmean(), X_train[~X_train.isnan()].std()
    X_train, X_test = (X_train - mean) / deviation, (X_test - mean) / deviation

    layer = SparseCompletion(Whole(), n_atoms=64, sample_shape=(1, 8, 8))
    layer.learn(X_train, n_steps=200, random_state=0)  # a start without labels
    first = layer.dictionary.detach().clone()
    model = nn.Sequential(layer, Residual())
    print("SparseCompletion in a loop of our own:")
    train(model, X_train, y_train, n_epochs=6)
    with torch.no_grad():
        accuracy = (model(X_test).argmax(1) == y_test).float().mean()
        moved = (layer.dictionary - first).norm(dim=1).mean()
    print(f"  accuracy: {accuracy:.1%}; atoms have norm 1 and moved by {moved:.2f} in the mean")


if __name__ == "__main__":
    main()
