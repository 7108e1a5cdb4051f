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

    def weights(self) -> list[float]:
        return [getattr(self, kind) for kind in KINDS]

    @classmethod
    def only(cls, name: str) -> Recipe:
        """Tables of one kind, or plain tables in one situation."""
        nothing = dict.fromkeys((*KINDS, *SITUATIONS), 0.0)
        return cls(**{**nothing, **({"plain": 1.0} if name in SITUATIONS else {}), name: 1.0})


PLAIN = Recipe.only("plain")
EVERYTHING = Recipe()
RECIPES = {"everything": EVERYTHING, "plain": PLAIN}
