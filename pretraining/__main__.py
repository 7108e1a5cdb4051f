"""python -m pretraining: train an embedded network, in pieces of as many minutes as there are;
compare variants."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from crumb.errors import CrumbError
from pretraining.variants import CHOSEN, VARIANTS


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    try:
        args.work(args)
    except KeyboardInterrupt:
        kept = f"; the state is kept in {args.state}" if "state" in args else ""
        print(f"pretraining: interrupted{kept}", file=sys.stderr)
        return 130
    except (CrumbError, OSError) as error:
        print(f"pretraining: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pretraining", description=__doc__, allow_abbrev=False
    )
    verbs = parser.add_subparsers(required=True)
    _add_train(verbs)
    _add_ablate(verbs)
    _add_cool(verbs)
    _add_tables(verbs)
    _add_judge(verbs)
    _add_average(verbs)
    return parser


def _add_train(verbs: Any) -> None:
    train = verbs.add_parser("train", help="one piece of a run", allow_abbrev=False)
    train.set_defaults(work=_train)
    train.add_argument("--task", choices=("classification", "regression"), required=True)
    train.add_argument(
        "--state", type=_folder, required=True, help="folder of the run; new or begun"
    )
    train.add_argument("--variant", choices=VARIANTS, default=CHOSEN)
    train.add_argument(
        "--minutes",
        type=_minutes,
        default=9.0,
        help="of steps; setting up comes before (default: 9)",
    )
    train.add_argument("--steps", type=int, help="at most these many")
    train.add_argument(
        "--decay", type=_minutes, metavar="MINUTES", help="end the run: cool down, in --branch"
    )
    train.add_argument(
        "--branch", type=_folder, help="new folder for the run that ends; --state stays as it is"
    )
    train.add_argument(
        "--export", type=Path, metavar="FILE", help="write the network as a checkpoint"
    )
    train.add_argument(
        "--last", action="store_true", help="export the weights of the last step, not their average"
    )
    train.add_argument(
        "--start", type=Path, metavar="FILE", help="without a state: begin with this network"
    )
    train.add_argument(
        "--lock", type=Path, metavar="FILE", help="prepare, then wait until no other run holds it"
    )
    train.add_argument(
        "--no-compile",
        action="store_true",
        help="on a GPU: ready in seconds instead of minutes, and steps that take a fifth longer",
    )
    train.add_argument("--seed", type=int, default=0)
    _common(train)


def _add_ablate(verbs: Any) -> None:
    ablate = verbs.add_parser(
        "ablate", help="variants, compared for equal seconds", allow_abbrev=False
    )
    ablate.set_defaults(work=_ablate)
    ablate.add_argument("runs", nargs="+", metavar="VARIANT[/TASK][@SEED]")
    ablate.add_argument(
        "--seconds", type=float, default=30.0, help="of training, of each (default: 30)"
    )
    ablate.add_argument(
        "--minutes", type=_minutes, default=9.0, help="for all; what is done by then is kept"
    )
    ablate.add_argument(
        "--jobs", type=int, default=4, help="alive at a time; one of them trains (default: 4)"
    )
    ablate.add_argument("--tables", type=Path, help="real tables to judge by, from 'tables'")
    ablate.add_argument("--out", type=Path, required=True, metavar="FILE")
    ablate.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    ablate.add_argument("--lock", type=Path, help=argparse.SUPPRESS)
    _common(ablate)


def _add_cool(verbs: Any) -> None:
    cool = verbs.add_parser(
        "cool", help="variants, compared by what one network becomes", allow_abbrev=False
    )
    cool.set_defaults(work=_cool)
    cool.add_argument("runs", nargs="+", metavar="VARIANT[/TASK][@SEED]")
    cool.add_argument(
        "--start", type=Path, required=True, metavar="FILE", help="the network they begin with"
    )
    cool.add_argument("--steps", type=int, default=2_500, help="of each (default: 2500)")
    cool.add_argument("--tables", type=Path, help="real tables to judge by, from 'tables'")
    cool.add_argument("--export", type=_folder, metavar="FOLDER", help="write the networks there")
    cool.add_argument("--out", type=Path, required=True, metavar="FILE")
    _common(cool)


def _add_tables(verbs: Any) -> None:
    tables = verbs.add_parser(
        "tables", help="the development tables in one small file", allow_abbrev=False
    )
    tables.set_defaults(work=_tables)
    tables.add_argument("--datasets", type=Path, default=Path("../shared/datasets"))
    tables.add_argument("--found", action="store_true", help="tasks found by a rule: more.py")
    tables.add_argument("--out", type=Path, required=True, metavar="FILE")


def _add_judge(verbs: Any) -> None:
    judge = verbs.add_parser(
        "judge", help="networks compared on the development tables", allow_abbrev=False
    )
    judge.set_defaults(work=_judge)
    judge.add_argument(
        "networks", nargs="+", type=Path, metavar="FILE", help="the first is the reference"
    )
    judge.add_argument("--tables", type=Path, required=True, help="from 'tables'")
    judge.add_argument("--device", default="cpu")
    judge.add_argument("--out", type=Path, metavar="FILE")


def _add_average(verbs: Any) -> None:
    average = verbs.add_parser(
        "average", help="the mean weights of networks that began alike", allow_abbrev=False
    )
    average.set_defaults(work=_average)
    average.add_argument("networks", nargs="+", type=Path, metavar="FILE")
    average.add_argument("--out", type=Path, required=True, metavar="FILE")


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--size",
        choices=("small", "trial", "smoke"),
        default="small",
        help="trial: few shapes, to compare and for short runs; smoke: a toy, to try it out",
    )
    parser.add_argument("--device", default="auto", help="auto, cuda or cpu")


def _train(args: argparse.Namespace) -> None:
    from pretraining.training import Training
    from pretraining.turns import alone

    training = Training(
        args.state,
        args.task,
        args.size,
        args.variant,
        args.seed,
        args.device,
        args.start,
        compiled=not args.no_compile,
    )
    if args.decay:
        if args.branch is None:
            raise CrumbError(
                "--decay ends a run: say with --branch where, so that --state can go on."
            )
        training.cool_down(args.branch, args.decay)
    training.prepare()
    with alone(args.lock):
        progress = training.run(args.minutes, args.steps, verbose=True)
    of = f" of {training.end:,}" if training.end else ""
    print(
        f"{progress.task}: step {progress.step:,}{of}, {progress.tables:,} tables, "
        f"{progress.seconds / 60:.1f} minutes"
    )
    print(", ".join(f"{name} {value}" for name, value in progress.log[-1].items()))
    if args.export:
        training.export(args.export, averaged=not args.last)
        print(f"wrote {args.export}")


def _ablate(args: argparse.Namespace) -> None:
    from pretraining import ablation

    _check_known(args.runs)
    if args.one:
        found = ablation.one(
            args.runs[0], args.size, args.seconds, args.device, args.tables, args.lock
        )
        args.out.write_text(json.dumps(found))
        return
    passed = ["--size", args.size, "--seconds", str(args.seconds), "--device", args.device]
    passed += ["--tables", str(args.tables)] if args.tables else []
    results = ablation.many(args.runs, args.jobs, args.minutes, args.out, passed)
    print(ablation.table(results))
    if failed := [run for run, result in results.items() if "error" in result]:
        raise CrumbError(f"Not all runs were done; without a result: {', '.join(failed)}.")


def _cool(args: argparse.Namespace) -> None:
    from pretraining import cooling

    _check_known(args.runs)
    cooling.compare(
        args.runs,
        args.start,
        args.steps,
        args.size,
        args.device,
        args.tables,
        args.out,
        args.export,
    )


def _check_known(runs: list[str]) -> None:
    from pretraining.ablation import named

    if unknown := [run for run in runs if named(run)[0] not in VARIANTS]:
        raise CrumbError(
            f"There is no variant {', '.join(unknown)}; there are {', '.join(VARIANTS)}."
        )


def _tables(args: argparse.Namespace) -> None:
    from pretraining import more
    from pretraining.tables import named, write

    write(args.out, (more.tables if args.found else named)(args.datasets))
    print(f"wrote {args.out}: {args.out.stat().st_size / 1e6:.1f} MB")


def _judge(args: argparse.Namespace) -> None:
    from pretraining.judge import compare

    compare(args.networks, args.tables, args.device, args.out)


def _average(args: argparse.Namespace) -> None:
    from pretraining.state import average

    average(args.networks, args.out)
    print(f"wrote {args.out}")


def _folder(text: str) -> Path:
    if not text.strip() or Path(text).is_file():
        raise argparse.ArgumentTypeError(f"{text!r} is not a folder")
    return Path(text)


def _minutes(text: str) -> float:
    minutes = float(text)
    if not 0 < minutes < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a time")
    return minutes


if __name__ == "__main__":
    sys.exit(main())
