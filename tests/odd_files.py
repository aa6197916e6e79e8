"""Odd files for tests: tables, archives and folders of images, sound, damaged and none at all."""

import contextlib
import io

import numpy as np
import pandas as pd
from hypothesis import strategies as st
from odd_input import labels, length, samples
from odd_tables import tables
from PIL import Image

USUAL = (
    ("age", "blood", "day", "state"),
    ("50", "A", "2024-01-01", "ill"),
    ("", "B", "2024-01-02", "well"),
    ("70", "", "2024-02-01", "ill"),
    ("20", "B", "", "well"),
    ("35", "Ä", "2023-12-31", "well"),
)
ENCODINGS = ("utf-8-sig", "utf-16", "utf-32", "latin-1", "cp500")
ENDINGS = (".csv", ".tsv", ".parquet", ".npz", ".png", ".halfseen", ".CSV", "", ".npy", ".html")
FIELDS = (
    "", "a", "b", "1", "-3.5", "1e30", "1e999", "-1e-30", "inf", "nan", "NA", "?", '"', '"a,b"',
    '"a\nb"', "'", "a\tb", "ü", "<script>", "2024-01-01", "2024-13-01", "9999-12-31T23:59:59Z",
    "True", "false", "0x10", "1_000", " 1 ", "\x00", "\ufeff", "=1+1", "9" * 40, "a" * 300, "\r",
)  # fmt: skip
NAMES = ("age", "blood", "day", "state", "", "age", "<b>", "1", "ü", "label", "certain", " age ")
MODES = ("1", "L", "LA", "RGB", "RGBA", "P", "CMYK", "I;16", "F", "I")


@st.composite
def contents(draw):
    """Draw what a file may hold, sound or damaged, and the usual ending of its name."""
    kinds = ("usual", "usual", "fields", "encoded", "rubbish", "frame", "archive", "archive")
    kind = draw(st.sampled_from(kinds))
    ending = ".csv"
    if kind == "usual":
        content = as_text(USUAL).encode()
    elif kind == "fields":
        row = st.lists(st.sampled_from(FIELDS), min_size=3, max_size=5)
        names = draw(st.lists(st.sampled_from(NAMES), min_size=3, max_size=4, unique=True))
        lines = [[*names, "state"], *draw(st.lists(row, max_size=6))]
        content = as_text(lines).encode()
    elif kind == "encoded":
        content = as_text(USUAL).encode(draw(st.sampled_from(ENCODINGS)))
    elif kind == "rubbish":
        content = draw(st.binary(max_size=60))
    elif kind == "frame":
        content, ending = draw(written_frames())
    else:
        content, ending = draw(archives()), ".npz"
    damage = draw(st.sampled_from((None, None, None, "cut", "flip")))
    place = draw(st.integers(0, max(0, len(content) - 1)))
    if damage == "cut":
        content = content[:place]
    if damage == "flip" and content:
        content = content[:place] + bytes([content[place] ^ 0x15]) + content[place + 1 :]
    return content, ending


@st.composite
def written_frames(draw):
    frame, _ = draw(tables())
    file = io.BytesIO()
    try:
        frame = pd.DataFrame(frame).assign(state=list("abcdabcdabcd")[: len(frame)])
        if draw(st.booleans()):
            frame.to_parquet(file)
            return file.getvalue(), ".parquet"
        frame.to_csv(file, index=False)
        return file.getvalue(), ".csv"
    except Exception:  # what these formats have no place for
        return b"a,state\n1,x\n2,y\n", ".csv"


@st.composite
def archives(draw):
    X = draw(samples(draw(st.sampled_from((None, (6, 3), (5, 1, 8, 8)))), arrays=True))
    odd = draw(st.booleans())
    arrays = {"X": X, "y": draw(labels(length(X), odd)), "observed": np.ones(np.shape(X))}
    kept = draw(st.sets(st.sampled_from(sorted(arrays)))) if odd else ("X", "y")
    file = io.BytesIO()
    np.savez(file, **{name: np.asarray(arrays[name]) for name in kept})
    return file.getvalue()


def as_text(lines):
    """Return a table as the text of a CSV file, fields as they are."""
    return "\n".join(",".join(line) for line in lines) + "\n"


def place_data(folder, data, kind, odd):
    """Put data of a kind into a folder, odd in some respects; return their path."""
    content, ending = sound(data, kind)
    if "content" in odd:
        content, ending = data.draw(contents())
    if "ending" in odd:
        ending = data.draw(st.sampled_from(ENDINGS))
    path = folder / f"data{ending}"
    if kind == "pictures" and "content" not in odd:
        path.mkdir()
        write_pictures(path, data, "pictures" in odd)
    elif "place" not in odd:
        path.write_bytes(content)
    elif data.draw(st.booleans()):
        path.mkdir()  # a folder where a file is expected; else there is nothing
    return path


def sound(data, kind):
    """Return a file that is as it should be, but for the odd values in it, and its ending."""
    if kind == "pictures":
        return b"", ""
    if kind == "table":
        lines = [list(line) for line in USUAL]
        for _ in range(data.draw(st.integers(0, 2))):
            row, column = data.draw(st.integers(1, 5)), data.draw(st.integers(0, 3))
            lines[row][column] = data.draw(st.sampled_from(FIELDS))
        return as_text(lines).encode(), ".csv"
    file, shape = io.BytesIO(), (6, 3) if kind == "rows" else (6, 1, 8, 8)
    X = data.draw(samples(shape, most_odd=1, arrays=True))
    np.savez(file, X=X if X.dtype.kind in "fiub" else np.ones(shape), y=np.arange(6) % 2)
    return file.getvalue(), ".npz"


def write_pictures(folder, data, odd):
    """Fill a folder with images of two classes; if odd, of all kinds, and with what is none."""
    size, mode, endings, parents = (8, 8), "L", (".png",), ("a", "b <i>")
    if odd:
        size = data.draw(st.sampled_from(((8, 8), (1, 1), (9, 5), (2, 30))))
        mode = data.draw(st.sampled_from(MODES))
        endings, parents = (".png", ".jpg", ".npy", ".tif"), ("a", "b <i>", "")
    for place in range(data.draw(st.integers(0, 6)) if odd else 6):
        path = (
            folder / parents[place % len(parents)] / f"{place}{data.draw(st.sampled_from(endings))}"
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        if odd and data.draw(st.integers(0, 7)) == 0:
            path.write_bytes(data.draw(contents())[0])
        elif path.suffix == ".npy":
            np.save(path, data.draw(samples(size, most_odd=1, arrays=True)))
        else:
            with contextlib.suppress(OSError):  # not every format has every mode
                Image.new(mode, size, 20 * place).save(path)


def place_out(folder, data, ending, odd):
    """Return where to write to: mostly a new file, or what is there, a folder or in no folder."""
    kind = (
        data.draw(st.sampled_from(("folder", "nowhere", "input", "ending"))) if "out" in odd else ""
    )
    path = folder / f"out{data.draw(st.sampled_from(ENDINGS)) if kind == 'ending' else ending}"
    if kind == "folder":
        path.mkdir()
    elif kind == "nowhere":
        path = folder / "nowhere" / path.name
    elif kind == "input":
        path = next(iter(folder.iterdir()), path)
    elif data.draw(st.booleans()):
        path.write_bytes(b"before")
    return path.resolve()
