"""A guide: a model of the whole pool, whose answers are more columns for the network.

A local context does not know the pool; a model of the pool does. The network sees its answers
beside every row: class probabilities as log-odds, or predictions. A row of the pool gets the
answer of a model that was fitted without it (out of fold), so its column does not tell its label.
Queries get the mean of a model of all rows and of the models of the folds. The columns are no part
of the selection space (docs/guide.md has the measurements), so plans, streams, files and the
service know nothing of them: a pool adds them to the rows of contexts (``Pool.hold``), and stage 3
to the queries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count, takewhile
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold, TimeSeriesSplit

from crumb.additive import Slots
from crumb.answering import answering
from crumb.errors import InvalidInput
from crumb.infer import infer
from crumb.machine import progress_bar, quiet, resolve_jobs
from crumb.mixing import LEAST, losses, mean_share, mixture
from crumb.pfn.base import Backend, Output, TargetScale
from crumb.pool import Labelled, MoreColumns, TablePool
from crumb.rng import generator
from crumb.table.encoder import Rows, beside, take
from crumb.trees import Learner, Trees, check_learner, lightgbm, resolve_learner

if TYPE_CHECKING:
    from crumb.options import Options
    from crumb.pool import Pool

FOLDS = 5
STOPPING = 10  # one row in ten ends the training of trees
HELD_OUT = 2_000  # rows of the pool, by which "auto" decides
PARTS = ("known", "means", "curves")  # of a model, beside its boosters
MOST_COLUMNS = 10  # for the network: of more classes, the principal components of their log-odds


@dataclass(eq=False)
class Guide:
    """A fitted guide: what it says of rows of the pool, and of queries."""

    learner: Learner
    models: list[Any]  # fitted on all rows of ``ids``, and those of the folds
    known: np.ndarray  # (m, …) out-of-fold answers
    ids: np.ndarray  # (m,) the row numbers that they belong to, rising
    shown: bool = True  # whether the network sees the columns
    share: float = 0.0  # of the guide's own answer in the mixture with the network's
    facts: dict[str, Any] = field(default_factory=dict)

    def held(self, held: Labelled) -> Labelled:
        """Rows of the pool as the network sees them."""
        if not self.shown:
            return held
        columns = MoreColumns(self._columns_of, self.columns(self.known), self.ids, "guide")
        return columns.held(held)

    def _columns_of(self, rows: Rows) -> np.ndarray:
        return self.columns(self.answers(rows))

    def lead(
        self, queries: Rows, output: Output, network: Callable[[Rows], np.ndarray]
    ) -> np.ndarray:
        """The network's answers to queries, and the guide's own where these have a share.

        Labels, medians and quantiles are the network's: the guide has none.
        """
        share = self.share if output.kind in ("proba", "mean") else 0.0
        if not (self.shown or share):
            return network(queries)
        own = self.answers(queries)
        if share == 1.0:
            return own
        found = network(beside(queries, self.columns(own)) if self.shown else queries)
        return mixture(found, own, share) if share else found

    def columns(self, answers: np.ndarray) -> np.ndarray:
        """What the network sees of answers: log-odds, or standardised predictions (n, 1)."""
        if answers.ndim == 1:
            return TargetScale.of(self.known).scaled(answers)[:, None]
        odds = log_odds(answers)
        return odds if odds.shape[1] <= MOST_COLUMNS else odds @ self._directions

    @cached_property
    def _directions(self) -> np.ndarray:
        """(C, columns) in which the log-odds of many classes differ most."""
        _, vectors = np.linalg.eigh(np.cov(log_odds(self.known), rowvar=False))
        return vectors[:, -MOST_COLUMNS:]

    def answers(self, rows: Rows) -> np.ndarray:
        """Probabilities (n, C), or numbers (n,): a model of all rows counts as much as all folds.

        It has learned from more rows; the mean of the folds varies less.
        """
        table = self.learner.table(rows)
        whole, *folds = (self.learner.answers(model, table) for model in self.models)
        return self.learner.joined((whole + np.mean(folds, axis=0)) / 2 if folds else whole)

    def pack(self) -> tuple[dict[str, Any], dict[str, np.ndarray], dict[str, bytes]]:
        """For a file: what JSON can hold, arrays, and LightGBM's own text."""
        learner = self.learner
        if not isinstance(learner, Trees):
            raise InvalidInput(
                "A guide given as an estimator cannot be saved without pickle: use guide='trees', "
                "or joblib.dump for files that stay with you."
            )
        about: dict[str, Any] = {name: getattr(self, name) for name in ("shown", "share", "facts")}
        about |= {name: getattr(learner, name) for name in ("n_classes", "categories", "shares")}
        about |= {"words": list(learner.words.items())}
        kept = [
            {j: one for j, one in model[0].items() if learner.shares[j]} for model in self.models
        ]
        about |= {"models": [list(boosters) for boosters in kept]}
        arrays = {"guide": self.known}
        arrays |= {f"guide.knots{j}": knots for j, knots in enumerate(learner.slots.knots)}
        for i, (_, *parts) in enumerate(self.models):
            arrays |= {f"guide{i}.{name}": one for name, one in zip(PARTS, parts, strict=True)}
        texts = {
            f"guide{i}.{j}.txt": booster.model_to_string().encode()
            for i, boosters in enumerate(kept)
            for j, booster in boosters.items()
        }
        return about, arrays, texts

    @classmethod
    def unpack(
        cls, about: dict[str, Any], arrays: dict[str, np.ndarray], files: dict[str, bytes]
    ) -> Guide:
        learner = Trees(about["n_classes"], about["categories"], words=dict(about["words"]))
        learner.shares = tuple(about["shares"])
        names = takewhile(arrays.__contains__, (f"guide.knots{j}" for j in count()))
        learner.slots = Slots([arrays[name] for name in names])

        def booster(i: int, j: int) -> Any:
            return lightgbm().Booster(model_str=files[f"guide{i}.{j}.txt"].decode())

        models = [
            ({j: booster(i, j) for j in kinds}, *(arrays[f"guide{i}.{one}"] for one in PARTS))
            for i, kinds in enumerate(about["models"])
        ]
        known, mix = arrays["guide"], (about["shown"], about["share"], about["facts"])
        return cls(learner, models, known, np.arange(len(known)), *mix)


def guide_columns(n_classes: int | None) -> int:
    """How many columns the network sees of a guide."""
    return 1 if n_classes in (None, 2) else min(n_classes, MOST_COLUMNS)


def log_odds(proba: np.ndarray) -> np.ndarray:
    """(n, C), or (n, 1) where there are two classes; bounded at the ends."""
    proba = np.clip(proba[:, 1:] if proba.shape[1] == 2 else proba, LEAST, 1 - LEAST)
    return np.log(proba) - np.log1p(-proba)


def learn_guide(asked: Any, folds: Any, groups: Any, pool: Pool, options: Options) -> Guide:
    """Fit a guide on a pool (on a sample of it where it is in files).

    Models of other folds than random ones are for the rows that they leave out: those of early
    times, for example, know less about queries than the model of all rows. Random folds are all
    alike, so a kind of model that the first one leaves out is not fitted for the others.
    """
    sample = pool.guide_rows
    parts = fold_rows(folds, sample, groups, options.seed)
    categories, jobs = pool.encoder.categorical_indices, resolve_jobs(options.n_jobs)
    learner = resolve_learner(asked, pool.n_classes, categories, options.seed, jobs)
    table, y = learner.table(sample.rows), sample.y
    total = np.zeros((learner.kinds, len(y), *([pool.n_classes] if pool.n_classes else [])))
    times, rng, models = np.zeros(len(y)), generator(options.seed, "guide"), []
    with progress_bar(len(parts) + 1, "guide", options.verbose) as advance:
        for train, test in parts:
            stop = apart(train, len(train) // STOPPING, folds, groups, rng)
            models.append(learner.fit(take(table, train), y[train], stop))
            found = learner.answers(models[-1], take(table, test))
            total[:, test] += found
            times[test] += 1
            if folds is None and len(models) == 1:
                learner.weigh(y[test], found)
            advance(1)
        models = [learner.fit(table, y, None), *(models if folds is None else [])]
        advance(1)
    known = total / times.reshape(-1, *[1] * (total.ndim - 2))
    learner.weigh(y, known)
    return Guide(learner, models, learner.joined(known), sample.ids)


def fold_rows(
    folds: Any, sample: Labelled, groups: Any, seed: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Which rows teach, and which are answered. Every row is answered at least once.

    Rows that the splitter leaves out, as the first ones in time, are answered by a model of the
    others.
    """
    y = sample.y
    splitter = _splitter(folds, y, sample.n_classes, groups, seed)
    with quiet():  # about classes with fewer rows than folds
        parts = list(splitter.split(sample.rows, y, groups))
    tested = np.zeros(len(y), dtype=bool)
    for _, test in parts:
        tested[test] = True
    if not tested.all():
        parts.append((np.flatnonzero(tested), np.flatnonzero(~tested)))
    return parts


def _splitter(folds: Any, y: np.ndarray, n_classes: int | None, groups: Any, seed: int) -> Any:
    count = min(FOLDS, len(y))
    if isinstance(folds, str) and folds == "time":
        return TimeSeriesSplit(min(FOLDS, len(y) - 1))
    if isinstance(folds, str):
        if groups is None:
            raise InvalidInput("guide_folds='groups' needs the group of each row: fit(groups=…).")
        distinct = len(np.unique(groups))
        if distinct < 2:
            raise InvalidInput("guide_folds='groups' needs at least two groups.")
        return GroupKFold(min(FOLDS, distinct))
    if folds is not None:
        return folds
    if n_classes is not None and np.bincount(y).max() >= count:
        return StratifiedKFold(count, shuffle=True, random_state=seed % 2**32)
    return KFold(count, shuffle=True, random_state=seed % 2**32)


def check_guide(guide: Any, folds: Any, groups: Any, task: str) -> None:
    """Refuse what cannot be used, before a table is read."""
    if guide is not None and not isinstance(guide, Guide):
        check_learner(guide, task)
    if isinstance(folds, str) and folds not in ("time", "groups"):
        known = "None, 'time', 'groups' or a scikit-learn splitter"
        raise InvalidInput(f"guide_folds must be {known}, got {folds!r}.")
    if not isinstance(folds, (str, type(None))) and not hasattr(folds, "split"):
        raise InvalidInput(f"guide_folds has no method split: {folds!r} is no splitter.")
    if groups is not None and (folds in (None, "time") or guide is None):
        raise InvalidInput(
            "groups= is for the folds of a guide: give guide_folds='groups', or a splitter."
        )


def apart(
    rows: np.ndarray, most: int, folds: Any, groups: Any, rng: np.random.Generator
) -> np.ndarray:
    """Places of some ``rows`` that others are judged by: the last in time, whole groups, or any."""
    if isinstance(folds, str) and folds == "time":
        return np.arange(len(rows) - most, len(rows))
    if groups is None:
        return np.sort(rng.permutation(len(rows))[:most])
    codes = np.unique(np.asarray(groups)[rows], return_inverse=True)[1]
    order = rng.permutation(codes.max() + 1)
    enough = int(np.searchsorted(np.cumsum(np.bincount(codes)[order]), most)) + 1
    return np.flatnonzero(np.isin(codes, order[: min(enough, codes.max())]))


def weigh(
    guide: Guide, folds: Any, groups: Any, pool: Pool, backend: Backend, options: Options
) -> Guide:
    """What ``"auto"`` decides: show the guide's columns or not, and its own share in the mean.

    Rows of the pool are held out and answered like queries: by trees that did not learn from them,
    and by the network without and with the columns. How well mixtures of the two explain their
    labels says which of the two networks is taken, and the share: its mean over all shares, by
    their likelihood. So few rows, or level ones, leave it near a half (docs/guide.md compares this
    with other rules).
    """
    sample, output = pool.guide_rows, Output("mean" if pool.n_classes is None else "proba")
    most, rng = min(HELD_OUT, len(sample.y) // 4), generator(options.seed, "held out")
    held = apart(np.arange(len(sample.y)), most, folds, groups, rng)
    if output.kind not in backend.outputs or len(held) < 2:
        return guide
    rest = np.setdiff1d(np.arange(len(sample.y)), held)
    contexts, labels, weights = _contexts_without(held, rest, sample, pool, options)
    queries, own = take(sample.rows, held), answers_without(guide, held, rest, sample)

    def mixtures(table: Labelled, rows: Rows) -> np.ndarray:
        if pool.means is not None:
            more = pool.means.of_pool(queries, sample.ids[held])
            table, rows = pool.means.held(table), beside(rows, more, pool.means.name)
        asked = backend, table, contexts, labels, rows, output, options.verbose
        found = infer(*asked, weights=weights)
        return losses(sample.y[held], found, own)

    led = mixtures(guide.held(sample), beside(queries, guide.columns(own)))
    found = np.stack([mixtures(sample, queries), led])
    shown, share = mean_share(found, len(held), pool.n_classes is None)
    facts = {"alone": found[0, 0], "guided": found[1, 0], "guide": found[0, -1]}
    facts = {"held_out": len(held), **{name: float(one) for name, one in facts.items()}}
    return replace(guide, shown=bool(shown), share=share, facts=facts)


def answers_without(
    guide: Guide, held: np.ndarray, rest: np.ndarray, sample: Labelled
) -> np.ndarray:
    """What the guide would say of some rows if they were queries: ``Guide.answers`` without them.

    The model of all rows is one of the ``rest``. Of the folds' models, one has not seen a row.
    """
    learner, table = guide.learner, guide.learner.table(sample.rows)
    model = learner.fit(take(table, rest), sample.y[rest], None)
    whole = learner.joined(learner.answers(model, take(table, held)))
    return (whole + guide.known[held]) / 2 if len(guide.models) > 1 else whole


def _contexts_without(
    held: np.ndarray, rest: np.ndarray, sample: Labelled, pool: Pool, options: Options
) -> tuple[list[np.ndarray], np.ndarray, np.ndarray | None]:
    """Contexts for some rows that have none of these rows, and which of them answer each one."""
    points = sample.points if isinstance(sample, TablePool) else pool.space.transform(sample.rows)
    about = take(sample.rows, rest), sample.y[rest], pool.n_classes, pool.encoder, pool.space
    others = TablePool(*about, points[rest], pool.fingerprint)
    smaller = replace(options, context_size=min(options.context_size, len(rest)))
    plan = others.plan(points[held], smaller, evidence=False)
    labels, weights = answering(plan, others, points[held], options, own=True)
    return [sample.ids[rest[context]] for context in plan.contexts], labels, weights
