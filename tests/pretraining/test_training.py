"""The training loop: learns, resumes exactly, keeps its state in small safe files, and says what is
wrong."""

import json
import signal
import subprocess
import sys
import threading
import time
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import torch

from crumb import CrumbClassifier, CrumbRegressor
from crumb.errors import InvalidCheckpoint, InvalidInput
from crumb.pfn.forward import forward
from pretraining import state
from pretraining.__main__ import main
from pretraining.curriculum import MOST_ROWS, CoolDown, curriculum
from pretraining.network import build, configuration
from pretraining.step import loss_of
from pretraining.training import Training
from pretraining.turns import alone

SHIPPED = files("crumb") / "pfn" / "embedded"


def trained(folder, steps=12, minutes=5.0, task="classification", **more):
    training = Training(folder, task, "smoke", **more)
    training.run(minutes, steps)
    return training


@pytest.mark.parametrize(("task", "chance"), [("classification", 0.85), ("regression", 0.8)])
def test_a_smoke_run_learns_and_serves(task, chance, tmp_path):
    """The loss on held-out tables falls, and the result answers through the estimators."""
    training = Training(tmp_path / "run", task, "smoke")
    before = training.validation()["mean"]
    last = training.run(minutes=5, steps=90).log[-1]
    assert last["raw_mean"] < chance * before
    assert last["average_mean"] < chance * before
    training.export(tmp_path / "net.ckpt")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = X[:, 0] > 0 if task == "classification" else X[:, 0]
    estimator = CrumbClassifier if task == "classification" else CrumbRegressor
    model = estimator(model=tmp_path / "net.ckpt", context_size=40, n_clusters=2).fit(X, y)
    assert len(model.predict(X[:5])) == 5


@pytest.mark.parametrize("variant", ["ranks-fourier", "base", "fade"])
def test_a_run_in_pieces_is_the_run_in_one(variant, tmp_path):
    whole = trained(tmp_path / "whole", steps=6, variant=variant)
    first = Training(tmp_path / "pieces", "classification", "smoke", variant)
    first.run(minutes=0)  # stops after the first step
    assert first.progress.step == 1
    second = trained(tmp_path / "pieces", steps=5, variant=variant)
    assert second.progress.step == 6
    assert second.progress.pieces == 2
    assert second.progress.tables == whole.progress.tables
    for name, weight in whole.network.state_dict().items():
        assert torch.equal(weight, second.network.state_dict()[name]), name
    for name, average in whole.optimiser.averaged().items():
        behind = (average - whole.network.state_dict()[name]).abs().max()
        off = (average - second.optimiser.averaged()[name]).abs().max()
        assert off <= 0.01 * behind, name  # a state has three digits of how far it is behind


DIES = """
import os, signal, sys
from pathlib import Path
from pretraining.network import build, configuration
from pretraining.step import loss_of
from pretraining.training import Training

training = Training(Path(sys.argv[1]), "classification", "smoke")
do_step = training.do_step

def dies(*args):
    if training.progress.step == 6:
        os.kill(os.getpid(), signal.SIGKILL)
    return do_step(*args)

dies.dtype, training.do_step = do_step.dtype, dies
training.run(5)
"""


def test_a_killed_run_goes_on_as_if_nothing_had_happened(tmp_path):
    """A process that is killed between two states loses the steps since, and nothing else."""
    trained(tmp_path / "killed", steps=3)
    command = [sys.executable, "-c", DIES, str(tmp_path / "killed")]
    assert subprocess.run(command, cwd=Path(__file__).parents[2]).returncode == -signal.SIGKILL
    kept = state.load(tmp_path / "killed")
    assert kept is not None
    assert kept[0].step == 3
    resumed = trained(tmp_path / "killed", steps=5)
    whole = trained(tmp_path / "whole", steps=8)
    for name, weight in whole.network.state_dict().items():
        assert torch.equal(weight, resumed.network.state_dict()[name]), name


def test_every_step_has_tables_of_its_own(tmp_path):
    training = Training(tmp_path, "classification", "smoke")
    by_shape: dict = {}
    for step in range(20):
        shape, batch = training.tables(step)
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
    assert progress["log"][-1].keys() >= {
        "step",
        "tables",
        "seconds",
        "rate",
        "loss",
        "raw_near",
        "average_near",
    }
    training.save()  # the parts of the state before are gone, those of this one are there
    assert sorted(tmp_path.glob("part-*.pt")) == sorted(
        tmp_path / name for name in training.progress.parts
    )


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
    training = Training(tmp_path, "classification", "smoke")
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
    again = Training(tmp_path, "classification", "smoke")
    assert again.progress.step == 4
    weight = "icl_predictor.decoder.0.weight"
    assert torch.equal(again.network.state_dict()[weight], training.network.state_dict()[weight])


def test_a_folder_of_another_run_is_refused(tmp_path):
    trained(tmp_path, steps=2)
    with pytest.raises(InvalidInput, match=r"another run \(seed = 0\)"):
        Training(tmp_path, "classification", "smoke", seed=1)
    with pytest.raises(InvalidInput, match="variant = ranks-fourier"):
        Training(tmp_path, "classification", "smoke", "base")
    with pytest.raises(InvalidInput, match="task = classification"):
        Training(tmp_path, "regression", "smoke")
    progress = json.loads((tmp_path / "progress.json").read_text())
    (tmp_path / "progress.json").write_text(
        json.dumps({**progress, "parts": progress["parts"][:0]})
    )
    with pytest.raises(InvalidCheckpoint, match="incomplete"):
        Training(tmp_path, "classification", "smoke")
    (tmp_path / "progress.json").write_text("{")
    with pytest.raises(InvalidCheckpoint, match="cannot be read"):
        Training(tmp_path, "classification", "smoke")


def test_a_run_that_ends_branches_off_and_cools_down(tmp_path):
    trunk = trained(tmp_path / "trunk", steps=6)
    before = {name: weight.clone() for name, weight in trunk.network.state_dict().items()}
    trunk.progress.seconds = 6.0
    trunk.progress.log = [{"step": 3, "seconds": 3.0}, {"step": 6, "seconds": 6.0}]
    trunk.cool_down(tmp_path / "end", minutes=0.1)
    assert trunk.progress.cooling == (6, 6)
    trunk.run(5, steps=2)
    resumed = Training(tmp_path / "end", "classification", "smoke")
    resumed.run(5)
    assert resumed.progress.step == resumed.end == 12
    rates = [resumed.curriculum.rate_at(step) for step in range(5, 13)]
    assert rates[0] == rates[1] == resumed.curriculum.rate
    assert rates[1:] == sorted(rates[1:], reverse=True)
    assert rates[-1] == 0
    again = Training(tmp_path / "trunk", "classification", "smoke")  # the trunk can go on
    assert again.progress.cooling is None
    assert again.progress.step == 6
    assert all(
        torch.equal(weight, before[name]) for name, weight in again.network.state_dict().items()
    )
    with pytest.raises(InvalidInput, match="cools down already"):
        resumed.cool_down(tmp_path / "other", 1)
    with pytest.raises(InvalidInput, match=r"a run in .* already"):
        again.cool_down(tmp_path / "end", 1)


def test_minutes_to_cool_down_are_counted_by_the_present_pace(tmp_path):
    trunk = trained(tmp_path / "trunk", steps=6)
    trunk.progress.seconds = 62.0  # quick steps first, then some of 20 seconds
    trunk.progress.log = [{"step": 3, "seconds": 2.0}, {"step": 6, "seconds": 62.0}]
    trunk.cool_down(tmp_path / "end", minutes=1)
    assert trunk.progress.cooling == (6, 3)


def test_the_average_is_exported_unless_the_last_step_is_asked_for(tmp_path):
    training = trained(tmp_path / "run", steps=4)
    bias = "icl_predictor.decoder.0.bias"  # small enough to be kept in full
    average, last = training.optimiser.averaged()[bias], training.network.state_dict()[bias]
    learnt = sum(p.numel() for p in training.network.parameters())
    for averaged, expected in ((True, average), (False, last)):
        training.export(tmp_path / "net.ckpt", averaged)
        assert (tmp_path / "net.ckpt").stat().st_size < 4 * learnt + 60_000
        assert torch.equal(
            torch.load(tmp_path / "net.ckpt", weights_only=True)["state_dict"][bias], expected
        )


def test_a_run_starts_from_an_exported_network(tmp_path, capsys):
    """With nothing but the file: its step, its weights, a rate that rises again."""
    first = trained(tmp_path / "first", steps=30)
    first.export(tmp_path / "net.ckpt")
    asked = ["train", "--task", "classification", "--size", "smoke", "--device", "cpu"]
    asked += ["--state", str(tmp_path / "second"), "--start", str(tmp_path / "net.ckpt")]
    assert main([*asked, "--steps", "1"]) == 0
    assert main([*asked, "--steps", "4"]) == 0  # now there is a state, which comes before the file
    second = Training(tmp_path / "second", "classification", "smoke")
    assert second.progress.step == 35
    assert second.progress.tables > first.progress.tables
    rates = [second.curriculum.rate_at(step) for step in range(30, 37)]
    assert rates == sorted(rates)
    assert rates[0] < 0.5 * rates[-1] == 0.5 * second.curriculum.rate
    bias = "icl_predictor.decoder.0.bias"
    fresh = Training(
        tmp_path / "third", "classification", "smoke", start=tmp_path / "net.ckpt"
    ).network.state_dict()
    torch.testing.assert_close(fresh[bias], first.optimiser.averaged()[bias])
    before = Training(tmp_path / "none", "classification", "smoke").validation()["mean"]
    assert second.validation()["mean"] < before
    capsys.readouterr()
    asked[2] = "regression"
    assert main([*asked[:-3], str(tmp_path / "other"), *asked[-2:], "--steps", "1"]) == 1
    assert "another task, size or variant" in capsys.readouterr().err


def test_a_network_of_tabicls_parts_begins_a_run_of_ours(tmp_path):
    """Places and waves are new to it: it answers as before, until it has learnt to use them."""
    plain = Training(tmp_path / "plain", "classification", "smoke", "base")
    plain.run(minutes=5, steps=5)
    plain.export(tmp_path / "net.ckpt", averaged=False)
    start = tmp_path / "net.ckpt"
    ours = Training(tmp_path / "ours", "classification", "smoke", "ranks-fourier", start=start)
    same = Training(tmp_path / "same", "classification", "smoke", "slow", start=start)
    assert ours.progress.step == same.progress.step == 5
    batch = ours.tables(0)[1]
    before, after = (loss_of(run.network, batch, torch.float32) for run in (same, ours))
    torch.testing.assert_close(after, before)
    ours.run(minutes=5, steps=5)
    weight = ours.network.col_embedder.in_linear.linear.weight
    assert weight[:, 3:].abs().max() > 1e-4
    ours.export(tmp_path / "ours.ckpt")
    with pytest.raises(InvalidInput, match="another task, size or variant"):
        Training(tmp_path / "x", "classification", "smoke", "base", start=tmp_path / "ours.ckpt")


def test_cooling_compares_what_one_network_becomes(tmp_path, capsys):
    trained(tmp_path / "run", steps=20).export(tmp_path / "net.ckpt")
    asked = ["cool", "ranks-fourier", "slow-ranks", "--start", str(tmp_path / "net.ckpt")]
    asked += ["--size", "smoke", "--device", "cpu", "--steps", "6"]
    more = ["--out", str(tmp_path / "out.json"), "--export", str(tmp_path / "networks")]
    assert main([*asked, *more]) == 0
    results = json.loads((tmp_path / "out.json").read_text())
    assert [result["steps"] for result in results.values()] == [6, 6]
    fast, slow = (result["final"]["raw"]["mean"] for result in results.values())
    assert fast != slow
    made = tmp_path / "networks" / "slow-ranks.ckpt"
    progress = state.Progress("classification", "smoke", "slow-ranks", 0, {})
    progress.config = torch.load(made, weights_only=True)["config"]
    state.start(made, progress)
    assert progress.step == 26
    assert main([*asked[:1], "nothing", *asked[3:], "--out", str(tmp_path / "none.json")]) == 1
    assert "There is no variant nothing" in capsys.readouterr().err
    assert not (tmp_path / "none.json").exists()


@torch.no_grad()
def test_new_blocks_change_no_answer_at_first(tmp_path):
    """They can begin a run: their gradients are not zero."""
    small, large = (configuration("regression", "smoke", {"icl_num_blocks": n}) for n in (2, 4))
    first = build(small)
    torch.save({"config": small, "state_dict": first.state_dict()}, tmp_path / "small.ckpt")
    progress = state.Progress("regression", "smoke", "base", 0, large)
    second = build(large, seed=1)
    second.load_state_dict(state.start(tmp_path / "small.ckpt", progress))
    X, y = torch.randn(2, 30, 3), torch.randn(2, 20)
    torch.testing.assert_close(
        forward(second, X, y, torch.float32), forward(first, X, y, torch.float32)
    )
    with torch.enable_grad():
        forward(second, X, y, torch.float32).square().sum().backward()
    assert second.icl_predictor.tf_icl.blocks[3].linear2.weight.grad.abs().max() > 0
    torch.save({"config": large, "state_dict": second.state_dict()}, tmp_path / "large.ckpt")
    with pytest.raises(InvalidInput, match="another task, size or variant"):
        state.start(
            tmp_path / "large.ckpt", state.Progress("regression", "smoke", "base", 0, small)
        )


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_runs_start_from_the_networks_that_ship(task, tmp_path):
    name = {"classification": "classifier", "regression": "regressor"}[task]
    old = Training(tmp_path / "old", task, start=SHIPPED / f"{name}-0.1.ckpt")
    assert old.progress.step == 0
    new = Training(tmp_path / "new", task, start=SHIPPED / f"{name}.ckpt")
    assert new.progress.begun == new.progress.step > 5_000
    assert new.progress.tables > 40 * new.progress.step


def test_runs_on_one_gpu_take_turns(tmp_path):
    seen = []

    def second():
        with alone(tmp_path / "lock"):
            seen.append("second")

    with alone(tmp_path / "lock"):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.2)
        seen.append("first")
    thread.join()
    with alone(None), alone(None):
        pass
    assert seen == ["first", "second"]


def test_a_state_can_travel(tmp_path):
    """At most eight bytes a parameter."""
    training = Training(tmp_path, "classification", "smoke")
    training.save()
    learnt = sum(p.numel() for p in training.network.parameters())
    tensors = state.load(tmp_path)[1]
    assert sum(tensor.nbytes for tensor in tensors.values()) < 8.5 * learnt + 20_000


def test_schedule():
    schedule = curriculum("small")
    assert schedule.rate_at(0) < 0.02 * schedule.rate
    assert schedule.rate_at(300) == schedule.rate_at(10**6) == schedule.rate
    stages = schedule.stages
    short, long, longest = families = schedule.shapes(0, tokens=5)
    assert all(
        schedule.shape_at(step, 0, families) in short
        for step in range(stages[1].begin - 100, stages[1].begin)
    )
    late = [
        schedule.shape_at(step, 0, families)
        for step in range(stages[1].begin, stages[1].begin + 200)
    ]
    assert 40 < sum(shape in long for shape in late) < 110
    assert not any(shape in longest for shape in late)
    for shape in short + long + longest:
        assert shape.tables * shape.rows <= MOST_ROWS
        assert shape.tables >= 2
        assert 10 <= shape.train < shape.rows
    for shapes, stage in zip(families, stages, strict=True):  # both ends are there
        assert max(shape.rows for shape in shapes) > 0.85 * stage.rows[1]
        assert max(shape.features for shape in shapes) > 0.6 * stage.features[1]
        assert min(shape.features for shape in shapes) <= stage.features[0] + 1
    assert max(shape.train for shape in longest) > 14_000
    cooling = curriculum("small", cooling=CoolDown(100, 50))
    assert any(cooling.shape_at(step, 0, families) in longest for step in range(100, 150))


@pytest.mark.parametrize("more", [(), ("--no-compile",)])
def test_compiling_is_a_choice(tmp_path, monkeypatch, more):
    """What it changes can be seen on a GPU only."""
    seen = []

    def made(*words, compiled):
        seen.append(compiled)
        raise InvalidInput("enough")

    monkeypatch.setattr("pretraining.training.Training", made)
    assert main(["train", "--task", "regression", "--state", str(tmp_path), *more]) == 1
    assert seen == [not more]


def test_command(tmp_path, capsys):
    asked = ["train", "--task", "regression", "--size", "smoke", "--steps", "3", "--device", "cpu"]
    folder = ["--state", str(tmp_path / "s")]
    assert main([*asked, *folder, "--minutes", "1", "--export", str(tmp_path / "net.ckpt")]) == 0
    assert "step 3, " in capsys.readouterr().out
    assert (tmp_path / "net.ckpt").exists()
    assert main([*asked, *folder, "--seed", "1"]) == 1
    assert capsys.readouterr().err.startswith("pretraining: The state in")
    assert main([*asked, *folder, "--decay", "1"]) == 1
    assert "--branch" in capsys.readouterr().err
    assert main([*asked, *folder, "--decay", "0.001", "--branch", str(tmp_path / "end")]) == 0
    assert " of " in capsys.readouterr().out


def test_variants_are_compared_for_equal_seconds(tmp_path, capsys):
    out = tmp_path / "all.json"
    asked = [
        "--size",
        "smoke",
        "--device",
        "cpu",
        "--seconds",
        "0.2",
        "--jobs",
        "2",
        "--out",
        str(out),
    ]
    assert main(["ablate", "base", "fade/regression@1", *asked]) == 0
    results = json.loads(out.read_text())
    assert list(results) == ["base", "fade/regression@1"] or list(results) == [
        "fade/regression@1",
        "base",
    ]
    for result in results.values():
        assert len(result["curve"]) == 3
        assert result["seconds"] >= 0.2
        assert (
            set(result["final"]["raw"])
            == set(result["final"]["average"])
            > {"plain", "near", "guide", "mean"}
        )
    assert "fade/regression@1" in capsys.readouterr().out
    assert main(["ablate", "nothing", *asked]) == 1
    assert "no variant nothing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--seed", "-3"], "a seed from 0 on"),
        (["--device", "foo"], "Unknown device 'foo'"),
        (["--state", "/proc/nowhere/s"], "No such file"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_before_the_work(wrong, said, tmp_path, capsys):
    asked = ["train", "--task", "regression", "--size", "smoke", "--steps", "3", "--device", "cpu"]
    asked += ["--state", str(tmp_path / "s")]
    assert main([*asked, *wrong]) == 1
    error = capsys.readouterr().err.strip()
    assert said in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize(
    "wrong", [["--minutes", "0"], ["--minutes", "nan"], ["--minutes", "-1"], ["--state", ""]]
)
def test_impossible_values_are_refused(wrong, tmp_path):
    with pytest.raises(SystemExit) as refused:
        main(["train", "--task", "regression", "--state", str(tmp_path / "s"), *wrong])
    assert refused.value.code == 2


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit):
        main(["train", "--task", "regression", "--state", str(tmp_path / "file")])
