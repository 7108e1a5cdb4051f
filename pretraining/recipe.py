"""What the tables of a training run are like: how often each kind of world and of situation comes
up."""

from __future__ import annotations

from dataclasses import dataclass

KINDS = ("plain", "rules", "steps", "ratios", "identifiers", "sparse", "collinear")
SITUATIONS = ("near", "guide")


@dataclass(frozen=True)
class Recipe:
    """Weights of the kinds of worlds (``worlds.py``), and chances of the situations.

    ``near``: the context was chosen for its queries from a larger pool (``contexts.py``).
    ``guide``: one column is a prediction of the target (``guide.py``).
    ``itself`` and ``causes``: the target is a variable of the graph that may be a column, or that
    the columns depend on. On such tables a network can often be nearly certain.
    ``smooth``: the share of plain worlds whose target is a smooth function of all columns, half of
    them without noise.
    """

    plain: float = 6.0
    rules: float = 1.0
    steps: float = 1.0
    ratios: float = 1.0
    identifiers: float = 1.0
    sparse: float = 1.0
    collinear: float = 0.6
    near: float = 0.35
    guide: float = 0.2
    itself: float = 0.0
    causes: float = 0.0
    smooth: float = 0.0

    def weights(self) -> list[float]:
        return [getattr(self, kind) for kind in KINDS]

    @classmethod
    def only(cls, name: str) -> Recipe:
        """Tables of one kind, or plain tables in one situation."""
        nothing = dict.fromkeys((*KINDS, *SITUATIONS), 0.0)
        return cls(**{**nothing, **({"plain": 1.0} if name in SITUATIONS else {}), name: 1.0})


PLAIN = Recipe.only("plain")
EVERYTHING = Recipe()
CERTAIN = Recipe(itself=0.12, causes=0.12)
MILD = Recipe(near=0.2, guide=0.1, itself=0.12, causes=0.12)
PLAINER = Recipe(plain=24.0, near=0.2, guide=0.1, itself=0.12, causes=0.12)
SMOOTH = Recipe(itself=0.12, causes=0.12, smooth=0.3)
RECIPES = {
    "everything": EVERYTHING,
    "plain": PLAIN,
    "certain": CERTAIN,
    "mild": MILD,
    "plainer": PLAINER,
    "smooth": SMOOTH,
}
