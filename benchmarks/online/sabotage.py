"""``crumb serve`` with a fault built in: ``sabotage.py refresh …`` or ``sabotage.py memory …``, then its words.

refresh: every new plan fails. memory: passes of cluster 0 run out of memory for as long as the file named by
CRUMB_FAULT exists.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from crumb.cli import main
from crumb.online import stream, version


def break_refreshes() -> None:
    make, made = stream.make_version, []

    def failing(*words: Any, **more: Any) -> Any:
        if made:
            raise MemoryError("no room for another plan")
        made.append(True)
        return make(*words, **more)

    stream.make_version = failing


def break_passes() -> None:
    answer = version.PlanVersion.answer

    def failing(self: Any, cluster: int, *words: Any, **more: Any) -> Any:
        if cluster == 0 and os.path.exists(os.environ["CRUMB_FAULT"]):
            raise MemoryError("this context runs out of memory")
        return answer(self, cluster, *words, **more)

    version.PlanVersion.answer = failing  # type: ignore[method-assign]


if __name__ == "__main__":
    {"refresh": break_refreshes, "memory": break_passes}[sys.argv[1]]()
    raise SystemExit(main(["serve", *sys.argv[2:]]))
