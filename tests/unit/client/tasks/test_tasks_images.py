"""The image and text tasks: shares, held-out samples, writers, and mistakes explained."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from image_files import write_cifar10_binary, write_mnist

from fedecado.client.evaluation import scores
from fedecado.client.flat import FlatModel
from fedecado.client.task import Context, Role, Task, load_task
from fedecado.common.errors import ConfigError, DataError
from fedecado.common.sections import BUILT_IN

CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path: Path) -> str:
    write_mnist(tmp_path)
    return str(tmp_path)


def mnist(index: int, clients: int, role: Role = "trainer", seed: int = 0, **arguments: Any) -> Task:
    given = {"model": "mlp", "width": 0.1, **arguments}
    return load_task(BUILT_IN["mnist"], Context(index, clients, seed, role), given)


@pytest.mark.parametrize("partition", ["dirichlet", "iid", "shards", "quantity"])
def test_clients_share_out_the_training_images(folder: str, partition: str) -> None:
    shares = [mnist(i, 5, data=folder, partition=partition) for i in range(5)]
    assert sum(task.samples for task in shares) == 200
    assert mnist(0, 5, "evaluator", data=folder).samples == 200


def test_pixels_are_centred_and_scaled(folder: str) -> None:
    inputs, labels = mnist(0, 1, data=folder).data
    assert inputs.dtype == torch.float32
    assert labels.dtype == torch.int64
    assert inputs.shape == (200, 1, 28, 28)
    # Uniform bytes: mean 0.5 and spread 0.29, seen from MNIST's 0.1307 and 0.3081.
    assert inputs.mean().item() == pytest.approx((0.5 - 0.1307) / 0.3081, abs=0.02)


def test_scoring_on_the_validation_share_takes_it_from_training(folder: str) -> None:
    trained = mnist(0, 1, data=folder, scored="validation")
    scored = mnist(0, 1, "evaluator", data=folder, scored="validation")
    assert (trained.samples, scored.samples) == (180, 20)
    seen = {row.numpy().tobytes() for row in trained.data[0]}
    assert not seen & {row.numpy().tobytes() for row in scored.data[0]}
    assert sorted(scored.data[1].tolist()) == sorted(list(range(10)) * 2)


def test_a_part_of_the_images_is_the_same_part_for_every_seed(folder: str) -> None:
    first, other = (mnist(0, 1, seed=seed, data=folder, samples=50) for seed in (0, 1))
    assert torch.equal(first.data[0], other.data[0])
    assert mnist(0, 1, "evaluator", data=folder, test_samples=30).samples == 30
    with pytest.raises(ConfigError, match="between 1 and the 200"):
        mnist(0, 1, data=folder, samples=201)


@pytest.mark.parametrize("clients", [20, 7])
def test_each_writer_s_images_stay_with_one_client(folder: str, tmp_path: Path, clients: int) -> None:
    file = tmp_path / "writers.npz"
    writers = np.random.default_rng(0).permutation(np.repeat(np.arange(20), 10))
    np.savez(file, train_writer=writers, test_writer=np.zeros(200))
    images = mnist(0, 1, data=folder, partition="iid").data[0]
    writer_of = {image.numpy().tobytes(): int(who) for image, who in zip(images, writers, strict=True)}
    held = [
        {writer_of[image.numpy().tobytes()] for image in task.data[0]}
        for task in (
            mnist(i, clients, data=folder, partition="writers", writers=str(file)) for i in range(clients)
        )
    ]
    assert sum(len(own) for own in held) == 20
    assert set.union(*held) == set(range(20))


def test_writers_left_out_or_too_few_are_explained(folder: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="writers=FILE"):
        mnist(0, 2, data=folder, partition="writers")
    file = tmp_path / "writers.npy"
    np.save(file, np.zeros(200, np.int64))
    with pytest.raises(DataError, match="1 writers cannot"):
        mnist(0, 2, data=folder, partition="writers", writers=str(file))
    with pytest.raises(DataError, match="cannot read the writer ids"):
        mnist(0, 2, data=folder, partition="writers", writers=str(tmp_path / "none.npy"))


def test_unknown_arguments_are_refused_with_the_known_ones(folder: str) -> None:
    with pytest.raises(ConfigError, match=r"'colour'.*alpha"):
        mnist(0, 2, data=folder, colour="red")
    with pytest.raises(ConfigError, match="dirichlet"):
        mnist(0, 2, data=folder, partition="random")
    with pytest.raises(ConfigError, match="validation"):
        mnist(0, 2, data=folder, scored="train")


def test_cifar10_scores_its_model_on_colour_images(tmp_path: Path) -> None:
    write_cifar10_binary(tmp_path)
    arguments = {"data": str(tmp_path), "model": "lenet5"}
    task = load_task(BUILT_IN["cifar10"], Context(0, 2, 0, "evaluator"), arguments)
    measured = scores(task, FlatModel(task.model, CPU))
    assert 0 <= measured["accuracy"] <= 0.5
    assert measured["loss"] == pytest.approx(np.log(10), abs=0.3)


@pytest.fixture
def story(tmp_path: Path) -> str:
    path = tmp_path / "story.txt"
    path.write_text("the cat sat on the mat and the dog ran far. " * 100, encoding="utf-8")
    return str(path)


def text(index: int, clients: int, role: Role = "trainer", **arguments: Any) -> Task:
    return load_task(BUILT_IN["text"], Context(index, clients, 0, role), arguments)


@pytest.mark.parametrize("partition", ["stretches", "iid"])
def test_text_is_dealt_out_in_pieces_whose_targets_are_the_next_characters(
    story: str, partition: str
) -> None:
    shares = [text(i, 3, file=story, partition=partition) for i in range(3)]
    held_out = text(0, 3, "evaluator", file=story)
    assert sum(task.samples for task in (*shares, held_out)) == (4400 - 1) // 40
    inputs, targets = shares[0].data
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    assert 0 <= scores(held_out, FlatModel(held_out.model, CPU))["accuracy"] <= 1


def test_a_missing_or_tiny_text_is_explained(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="file=FILE"):
        text(0, 1)
    tiny = tmp_path / "tiny.txt"
    tiny.write_text("too short", encoding="utf-8")
    with pytest.raises(DataError, match="801 are needed"):
        text(0, 1, file=str(tiny))
