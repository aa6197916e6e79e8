"""Classify the rows of a table with columns of every kind, where holes say something.

The table is made here: age (whole numbers), temperature, pulse and lactate (numbers), ward
(text), smoker (truth values) and the day of admission (dates). Lactate is measured where a
doctor is worried, so that it is missing tells something about the patient. TableClassifier
takes the table as it is.

    python examples/hospital_table.py
"""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from halfseen import SparseCodingClassifier, TableClassifier, TableEncoder


def admit(n: int, seed: int) -> tuple[pd.DataFrame, pd.Series]:
    """Return n patients, and whether they turned out to be ill."""
    random = np.random.default_rng(seed)
    ill = random.random(n) < 0.4
    fever = 1.2 * ill + random.standard_normal(n)
    surgical = random.random(n) < np.where(ill, 0.6, 0.3)
    days = pd.to_timedelta(random.integers(0, 366, n), "D")
    patients = pd.DataFrame(
        {
            "age": pd.array(random.integers(20, 90, n) + np.where(ill, 5, 0), dtype="Int64"),
            "temperature": 37 + 0.6 * fever + 0.2 * random.standard_normal(n),
            "pulse": 75 + 10 * fever + 5 * random.standard_normal(n),
            "lactate": np.exp(0.4 * ill + 0.4 * random.standard_normal(n)),
            "ward": np.where(surgical, "surgery", random.choice(["medicine", "maternity"], n)),
            "smoker": pd.array(random.random(n) < np.where(ill, 0.5, 0.3), dtype="boolean"),
            "admitted": pd.Timestamp("2024-01-01") + days,
        }
    )
    not_worried = random.random(n) < np.where(ill, 0.2, 0.8)
    for name in patients:
        missing = not_worried if name == "lactate" else random.random(n) < 0.15
        patients[name] = patients[name].mask(missing)
    return patients, pd.Series(np.where(ill, "ill", "well"), name="outcome")


def main() -> None:
    (train, y_train), (test, y_test) = admit(600, seed=0), admit(300, seed=1)
    print("missing values in training:")
    print(train.isna().mean().map("{:.0%}".format).to_frame().T.to_string(index=False))

    inner = SparseCodingClassifier("mlp", training="joint", n_epochs=20, random_state=0)
    clf = TableClassifier(inner).fit(train, y_train)
    blind = TableClassifier(inner, TableEncoder(add_indicator=False)).fit(train, y_train)
    print(f"\naccuracy:                                {clf.score(test, y_test):.1%}")
    print(f"the same, not told what is missing:      {blind.score(test, y_test):.1%}")

    found = clf.certify(test)
    print(f"class certain, whatever is in the holes: {found.certain.mean():.1%}")
    incomplete = test.isna().any(axis=1).to_numpy()
    for rows in (incomplete & found.certain, incomplete & ~found.certain):
        row = rows.argmax()  # the first of them
        lacking = ", ".join(test.columns[test.loc[row].isna()])
        possible = " or ".join(clf.classes_[found.possible[row]])
        print(f"  patient {row} lacks {lacking}: {possible}")

    completed = clf.impute(test)
    print("\nfirst patients, as they came and completed:")
    print(test.head(4).to_string(float_format="{:.1f}".format))
    print(completed.head(4).to_string(float_format="{:.1f}".format))
    print(f"types kept: {completed.dtypes.equals(test.dtypes)}")

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "hospital.halfseen"
        clf.save(path)
        again = TableClassifier.load(path)
        same = np.array_equal(again.predict_proba(test), clf.predict_proba(test))
        print(f"\nsaved in {path.stat().st_size / 1024:.0f} KiB; loaded, it says the same: {same}")


if __name__ == "__main__":
    main()
