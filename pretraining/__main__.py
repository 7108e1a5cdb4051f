"""python -m pretraining: train an embedded network, in pieces of as many minutes as there are."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from crumb.errors import CrumbError
from pretraining import STEPS


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pretraining", description=__doc__, allow_abbrev=False)
    parser.add_argument("--task", choices=("classification", "regression"), required=True)
    parser.add_argument(
        "--resume", type=_folder, required=True, metavar="STATE", help="folder of the run; new or begun"
    )
    parser.add_argument("--minutes", type=_minutes, default=9.0, help="of steps; setting up comes before (default: 9)")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"of the whole schedule (default: {STEPS})")
    parser.add_argument("--start", type=Path, metavar="FILE", help="checkpoint to continue from with a new schedule")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", choices=("small", "smoke"), default="small", help="smoke: a toy, for trying it out")
    parser.add_argument("--device", default="auto", help="auto, cuda or cpu")
    parser.add_argument("--export", type=Path, metavar="FILE", help="write the network as a tabicl checkpoint")
    args = parser.parse_args(argv)
    try:
        from pretraining.training import Training

        training = Training(args.resume, args.task, args.size, args.steps, args.seed, args.device, args.start)
        progress = training.run(args.minutes, verbose=True)
        print(f"{progress.task}: step {progress.step:,} of {progress.steps:,}, {progress.tables:,} tables")
        print(", ".join(f"{name} {value}" for name, value in progress.log[-1].items()))
        if args.export:
            training.export(args.export)
            print(f"wrote {args.export}")
    except KeyboardInterrupt:
        kept = f"; the state is kept in {args.resume}" if (args.resume / "progress.json").exists() else ""
        print(f"pretraining: interrupted{kept}", file=sys.stderr)
        return 130
    except (CrumbError, OSError) as error:
        print(f"pretraining: {error}", file=sys.stderr)
        return 1
    return 0


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
