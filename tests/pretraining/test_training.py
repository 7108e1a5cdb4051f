"""The training loop: learns, resumes exactly, keeps its state in small safe files, and says what is wrong."""

import json
import signal

import numpy as np
import pytest
import torch

from crumb import CrumbClassifier, CrumbRegressor
from crumb.errors import InvalidCheckpoint, InvalidInput
from pretraining import state
from pretraining.__main__ import main
from pretraining.curriculum import MOST_ROWS, curriculum
from pretraining.training import Training


def trained(folder, steps=12, minutes=5.0, task="classification", **more):
    training = Training(folder, task, "smoke", steps, **more)
    training.run(minutes)
    return training


@pytest.mark.parametrize(("task", "chance"), [("classification", 0.85), ("regression", 0.8)])
def test_a_smoke_run_learns_and_serves(task, chance, tmp_path):
    """Seconds on a CPU: the loss on held-out tables falls, and the result answers through the estimators."""
    training = Training(tmp_path / "run", task, "smoke", steps=120)
    before = training.validation()[0]
    progress = training.run(minutes=5)
    after = progress.log[-1]["validation_0"]
    assert after < chance * before
    training.export(tmp_path / "net.ckpt")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = X[:, 0] > 0 if task == "classification" else X[:, 0]
    estimator = CrumbClassifier if task == "classification" else CrumbRegressor
    model = estimator(model=tmp_path / "net.ckpt", context_size=40, n_clusters=2).fit(X, y)
    assert len(model.predict(X[:5])) == 5


def test_a_run_in_pieces_is_the_run_in_one(tmp_path):
    whole = trained(tmp_path / "whole", steps=10)
    first = Training(tmp_path / "pieces", "classification", "smoke", 10)
    first.run(minutes=0)  # stops after the first step
    assert first.progress.step == 1
    second = trained(tmp_path / "pieces", steps=10)
    assert second.progress.step == 10
    assert second.progress.pieces == 2
    assert second.progress.tables == whole.progress.tables
    for name, weight in whole.network.state_dict().items():
        assert torch.equal(weight, second.network.state_dict()[name]), name
    again = trained(tmp_path / "pieces", steps=10)  # nothing is left to do
    assert again.progress.step == 10


def test_every_step_has_tables_of_its_own(tmp_path):
    training = Training(tmp_path, "classification", "smoke", 50)
    by_shape: dict = {}
    for step in range(20):
        shape, batch = training._tables(step, None)
        by_shape.setdefault(shape, []).append(batch.X)
    for tables in by_shape.values():
        assert all(not torch.equal(tables[0], other) for other in tables[1:])
    assert max(map(len, by_shape.values())) > 1


def test_another_seed_is_another_run(tmp_path):
    runs = [trained(tmp_path / str(seed), steps=3, seed=seed) for seed in (0, 1)]
    losses = [run.progress.log[-1]["loss"] for run in runs]
    assert losses[0] != losses[1]


def test_state_is_small_files_without_code(tmp_path, monkeypatch):
    monkeypatch.setattr(state, "PART_BYTES", 100_000)
    training = trained(tmp_path, steps=2)
    parts = sorted(tmp_path.glob("part-*.pt"))
    assert len(parts) > 1
    assert all(part.stat().st_size < 150_000 for part in parts)
    for part in parts:
        torch.load(part, weights_only=True)
    progress = json.loads((tmp_path / "progress.json").read_text())
    assert progress["step"] == 2
    assert progress["log"][-1].keys() >= {"step", "tables", "seconds", "rate", "loss", "validation_0"}
    training.save()  # the parts of the state before are gone, those of this one are there
    assert sorted(tmp_path.glob("part-*.pt")) == sorted(tmp_path / name for name in training.progress.parts)


def test_a_failed_save_leaves_the_last_state(tmp_path, monkeypatch):
    training = trained(tmp_path, steps=2)
    training.progress.step = 99

    def full(*args, **kwargs):
        raise OSError("no space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="no space"):
        training.save()
    monkeypatch.undo()
    kept = state.load(tmp_path)
    assert kept is not None
    assert kept[0].step == 2


def test_interrupted_keeps_what_was_learnt(tmp_path):
    """Ctrl-C in the middle of a step: the step is finished, then the state is kept."""
    training = Training(tmp_path, "classification", "smoke", 50)
    do_step, seen = training.do_step, []

    def interrupted(*args):
        seen.append(1)
        if len(seen) == 4:
            signal.raise_signal(signal.SIGINT)
        return do_step(*args)

    interrupted.dtype = do_step.dtype
    training.do_step = interrupted
    with pytest.raises(KeyboardInterrupt):
        training.run(5)
    again = Training(tmp_path, "classification", "smoke", 50)
    assert again.progress.step == 4
    weight = "icl_predictor.decoder.0.weight"
    assert torch.equal(again.network.state_dict()[weight], training.network.state_dict()[weight])


def test_a_folder_of_another_run_is_refused(tmp_path):
    trained(tmp_path, steps=2)
    with pytest.raises(InvalidInput, match="another run \\(steps = 2\\)"):
        Training(tmp_path, "classification", "smoke", 3)
    with pytest.raises(InvalidInput, match="task = classification"):
        Training(tmp_path, "regression", "smoke", 2)
    progress = json.loads((tmp_path / "progress.json").read_text())
    (tmp_path / "progress.json").write_text(json.dumps({**progress, "parts": progress["parts"][:0]}))
    with pytest.raises(InvalidCheckpoint, match="incomplete"):
        Training(tmp_path, "classification", "smoke", 2)
    (tmp_path / "progress.json").write_text("{")
    with pytest.raises(InvalidCheckpoint, match="cannot be read"):
        Training(tmp_path, "classification", "smoke", 2)


def test_a_run_can_continue_from_a_checkpoint(tmp_path):
    first = trained(tmp_path / "a", steps=4)
    first.export(tmp_path / "a.ckpt")
    second = Training(tmp_path / "b", "classification", "smoke", 4, start=tmp_path / "a.ckpt")
    weight = "icl_predictor.decoder.0.bias"  # small enough to be kept in full
    assert torch.equal(first.network.state_dict()[weight], second.network.state_dict()[weight])
    assert second.curriculum.rate == first.curriculum.rate / 2
    second.run(5)
    for start in (tmp_path / "a.ckpt", None):  # it need not be said again
        resumed = Training(tmp_path / "b", "classification", "smoke", 4, start=start)
        assert torch.equal(resumed.network.state_dict()[weight], second.network.state_dict()[weight])
        assert resumed.curriculum.rate == second.curriculum.rate
    second.export(tmp_path / "b.ckpt")
    with pytest.raises(InvalidInput, match="another run \\(start"):
        Training(tmp_path / "b", "classification", "smoke", 4, start=tmp_path / "b.ckpt")
    with pytest.raises(InvalidCheckpoint, match="not a smoke network for regression"):
        Training(tmp_path / "c", "regression", "smoke", 4, start=tmp_path / "a.ckpt")


def test_schedule():
    schedule = curriculum("small", 1_000)
    rates = [schedule.rate_at(step) for step in range(1_000)]
    assert max(rates) <= schedule.rate
    assert rates[0] < 0.02 * schedule.rate
    assert rates[-1] < 0.02 * schedule.rate
    short, long = schedule.shapes(0, tokens=5)
    assert all(schedule.shape_at(step, 0, [short, long]) in short for step in range(600))
    late = [schedule.shape_at(step, 0, [short, long]) for step in range(700, 800)]
    assert 20 < sum(shape in long for shape in late) < 80
    for shape in short + long:
        assert shape.tables * shape.rows <= MOST_ROWS
        assert shape.tables >= 2
        assert 10 <= shape.train < shape.rows
    for shapes, stage in ((short, schedule.stages[0]), (long, schedule.stages[1])):  # both ends are there
        assert max(shape.rows for shape in shapes) > 0.85 * stage.rows[1]
        assert max(shape.features for shape in shapes) > 0.8 * stage.features[1]
        assert min(shape.features for shape in shapes) <= stage.features[0] + 1
    assert max(shape.rows for shape in long) > 8_500


def test_command(tmp_path, capsys):
    asked = ["--task", "regression", "--size", "smoke", "--steps", "3", "--device", "cpu"]
    folder = ["--resume", str(tmp_path / "s")]
    assert main([*asked, *folder, "--minutes", "1", "--export", str(tmp_path / "net.ckpt")]) == 0
    assert "step 3 of 3" in capsys.readouterr().out
    assert (tmp_path / "net.ckpt").exists()
    assert main([*asked, *folder, "--seed", "1"]) == 1
    assert capsys.readouterr().err.startswith("pretraining: The state in")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--steps", "0"], "at least one step"),
        (["--seed", "-3"], "a seed from 0 on"),
        (["--device", "foo"], "Unknown device 'foo'"),
        (["--start", "nowhere.ckpt"], "no checkpoint file"),
        (["--resume", "/proc/nowhere/s"], "No such file"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_before_the_work(wrong, said, tmp_path, capsys):
    asked = [
        "--task",
        "regression",
        "--size",
        "smoke",
        "--steps",
        "3",
        "--device",
        "cpu",
        "--resume",
        str(tmp_path / "s"),
    ]
    assert main([*asked, *wrong]) == 1
    error = capsys.readouterr().err.strip()
    assert said in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize("wrong", [["--minutes", "0"], ["--minutes", "nan"], ["--minutes", "-1"], ["--resume", ""]])
def test_impossible_values_are_refused(wrong, tmp_path):
    with pytest.raises(SystemExit) as refused:
        main(["--task", "regression", "--resume", str(tmp_path / "s"), *wrong])
    assert refused.value.code == 2


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit):
        main(["--task", "regression", "--resume", str(tmp_path / "file")])
