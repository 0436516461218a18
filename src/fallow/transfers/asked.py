"""What is asked of features: a probe that all training examples teach, or episodes of a few shots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fallow.base.errors import RequestError, unknown
from fallow.base.numbers import require_whole
from fallow.evaluate.learners import LEARNERS
from fallow.evaluate.probe import KINDS

NEIGHBOURS = 5  # of the probe that prediction depth uses too
PROBES = (*KINDS, "seal", "neighbours")
EPISODES, ADAPTED, QUERIES = 600, 40, 15
ALL = "all"


@dataclass(frozen=True)
class Asked:
    """A protocol with its settings; without ``shots`` it is a probe.

    ``layers`` are blocks of the network; none: what its head looks at; None: all blocks, and that.
    """

    protocol: str
    shots: tuple[int, ...] = ()
    ways: int = 5
    queries: int = QUERIES
    episodes: int = EPISODES
    adapt: str | None = None
    layers: tuple[str, ...] | None = ()
    seed: int = 0

    @classmethod
    def of(
        cls, protocol: str | None, shots: Sequence[int] = (), *, ways: int = 5, queries: int = QUERIES,
        episodes: int | None = None, adapt: str | None = None, layer: str | None = None, seed: int = 0,
    ) -> Asked:  # fmt: skip
        """Checked, and with the defaults that follow from the rest."""
        named = protocol or ("cdfsl" if shots or adapt else "logistic")
        if named not in {*PROBES, *LEARNERS}:
            raise unknown("protocol", named, dict.fromkeys((*PROBES, *LEARNERS)))
        if adapt not in (None, "affine"):
            raise RequestError(f"adapt is {adapt!r}: give affine, or leave it out")
        if adapt and (named != "cdfsl" or not shots):
            raise RequestError("--adapt affine fine-tunes norms in episodes by cdfsl: give --shots with it")
        if shots and named not in LEARNERS:
            raise RequestError(f"{named} is a probe: leave --shots out, or take {', '.join(LEARNERS)}")
        if not shots and named not in PROBES:
            raise RequestError(f"{named} is for episodes: say of how many shots, as in --shots 1,5")
        if adapt and layer:
            raise RequestError("--adapt affine fine-tunes the whole network: leave --layer out")
        for number in shots:
            require_whole("shots", number, 1, 10_000)
        for what, value, least in (("ways", ways, 2), ("queries", queries, 1), ("seed", seed, 0)):
            require_whole(what, value, least)
        count = episodes if episodes is not None else ADAPTED if adapt else EPISODES
        require_whole("episodes", count, 2, 1_000_000)
        layers = None if layer == ALL else tuple((layer or "").replace(",", " ").split())
        return cls(named, tuple(dict.fromkeys(shots)), ways, queries, count, adapt, layers, seed)

    def describe(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    @property
    def words(self) -> str:
        """What is measured, for a heading."""
        if not self.shots:
            return {"neighbours": f"{NEIGHBOURS}-nearest-neighbour probe", "seal": "SEAL's linear probe"}.get(
                self.protocol, f"{self.protocol} probe"
            )
        extra = " with the norms' affines" if self.adapt else ""
        return f"{self.ways}-way episodes by {self.protocol}{extra}"
