"""Which tensor lies where, and what does not fit."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedecado.common.errors import LayoutError
from fedecado.common.layout import Entry, Layout

shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)
names = st.text(min_size=1, max_size=8)


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    found = draw(st.lists(names, min_size=1, max_size=5, unique=True))
    split = draw(st.integers(1, len(found)))
    first = Entry(found[0], (2, 3))  # so that there is something to train
    parameters = [first, *(Entry(name, draw(shapes)) for name in found[1:split])]
    buffers = [Entry(name, draw(shapes), "buffer") for name in found[split:]]
    return Layout((*parameters, *buffers), draw(st.sampled_from(["float32", "float64"])))


@given(layouts())
def test_a_layout_comes_back_from_its_text_with_the_same_digest(layout: Layout) -> None:
    again = Layout.from_json(layout.to_json())
    assert again == layout
    assert again.digest == layout.digest
    assert layout.nbytes == layout.size * np.dtype(layout.dtype).itemsize


@given(layouts())
def test_tensors_are_views_that_tile_the_vector_parameters_first(layout: Layout) -> None:
    vector = np.arange(layout.size, dtype=layout.dtype)
    tensors = layout.unpack(vector)
    assert [t.shape for t in tensors.values()] == [entry.shape for entry in layout.entries]
    joined = np.concatenate([t.ravel() for t in tensors.values()])
    assert np.array_equal(joined, vector)
    assert all(np.shares_memory(t, vector) for t in tensors.values() if t.size)
    trained = [entry.size for entry in layout.entries if entry.kind == "parameter"]
    assert layout.parameters == sum(trained)


def test_any_difference_changes_the_digest() -> None:
    base = Layout((Entry("a", (2,)), Entry("b", (3,))))
    others = [
        Layout((Entry("b", (3,)), Entry("a", (2,)))),
        Layout((Entry("a", (2,)), Entry("b", (3,), "buffer"))),
        Layout((Entry("a", (2,)), Entry("c", (3,)))),
        Layout((Entry("a", (2,)), Entry("b", (3, 1)))),
        Layout(base.entries, "float64"),
    ]
    assert len({layout.digest for layout in (base, *others)}) == 6


def test_what_makes_no_layout_is_refused() -> None:
    for make, words in (
        (lambda: Entry("", (1,)), "empty name"),
        (lambda: Entry("a", (1,), "frozen"), "'parameter' or 'buffer'"),  # type: ignore[arg-type] # on purpose
        (lambda: Entry("a", (-1,)), "negative"),
        (lambda: Layout((Entry("a", (1,)), Entry("a", (2,)))), "appear twice: a"),
        (lambda: Layout((Entry("a", (1,)),), "int8"), "'float32' or 'float64'"),  # type: ignore[arg-type] # on purpose
        (lambda: Layout((Entry("a", (1,), "buffer"), Entry("b", (1,)))), "before buffers"),
        (lambda: Layout((Entry("a", (0,)),)), "no trainable parameters"),
        (lambda: Layout(()), "no trainable parameters"),
    ):
        with pytest.raises(LayoutError, match=words):
            make()


@given(
    st.one_of(
        st.text(max_size=40), st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps)
    )
)
def test_text_that_is_no_layout_is_a_layout_error(text: str) -> None:
    with pytest.raises(LayoutError):
        Layout.from_json(text)


def test_a_vector_of_another_length_or_dtype_does_not_fit() -> None:
    layout = Layout.flat(4)
    layout.check(np.zeros(4, np.float32))
    with pytest.raises(LayoutError, match=r"update has shape \(5,\).*needs \(4,\)"):
        layout.check(np.zeros(5, np.float32), "update")
    with pytest.raises(LayoutError, match="float64"):
        layout.check(np.zeros(4))
