"""python -m crumb.pretrain: train an embedded network, in pieces of as many minutes as there are."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from crumb.errors import CrumbError
from crumb.pretrain import STEPS


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m crumb.pretrain", description=__doc__, allow_abbrev=False)
    parser.add_argument("--task", choices=("classification", "regression"), required=True)
    parser.add_argument("--resume", type=Path, required=True, metavar="STATE", help="folder of the run; new or begun")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long this piece may take (default: 10)")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"of the whole schedule (default: {STEPS})")
    parser.add_argument("--start", type=Path, metavar="FILE", help="checkpoint to continue from with a new schedule")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", choices=("small", "smoke"), default="small", help="smoke: a toy, for trying it out")
    parser.add_argument("--device", default=None, help="cuda or cpu (default: cuda where there is one)")
    parser.add_argument("--export", type=Path, metavar="FILE", help="write the network as a tabicl checkpoint")
    args = parser.parse_args(argv)
    try:
        import torch

        from crumb.pretrain.training import Training

        device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
        training = Training(args.resume, args.task, args.size, args.steps, args.seed, device, args.start)
        progress = training.run(args.minutes, verbose=True)
        last = progress.log[-1] if progress.log else {}
        print(f"{progress.task}: step {progress.step:,} of {progress.steps:,}, {progress.tables:,} tables, {last}")
        if args.export:
            training.export(args.export)
            print(f"wrote {args.export}")
    except KeyboardInterrupt:
        print(f"crumb.pretrain: interrupted; the state is kept in {args.resume}", file=sys.stderr)
        return 130
    except (CrumbError, OSError) as error:
        print(f"crumb.pretrain: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
