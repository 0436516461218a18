"""Seeds as an ensemble: what the networks of one method are worth together, from the outputs that the runs kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from fallow.comparison.findings import Setting
from fallow.core.record import RunFolder

if TYPE_CHECKING:
    from fallow.comparison.run import Comparison


class Ensemble(NamedTuple):
    """The mean of the predictions of several networks, on test."""

    method: str
    networks: int
    test: float  # the metric

    def sentence(self, shown: str) -> str:
        """In words, with the metric as it is shown."""
        return f"{self.networks} networks of {self.method} together: {shown} on test"


def ensembles(comparison: Comparison, setting: Setting) -> list[Ensemble]:
    """Of the control and of the best method on validation; none where every seed has a test set of its own."""
    labels = {label: source for source, label in comparison.labels.items()}
    target = comparison.loaded[labels[setting.data]].target
    found = []
    for method in dict.fromkeys((setting.control, setting.rows[0].method)):
        kept = [
            outputs
            for o in map(comparison.named, comparison.entries.values())
            if (o.data, o.model, o.method, o.reason) == (setting.data, setting.model, method, None)
            and (outputs := RunFolder(comparison.folder / o.folder).outputs())
        ]
        if method is None or setting.overlap or len(kept) < 2:
            continue
        decoded = [target.decode(outputs[f"test_{comparison.plan.score}"]) for outputs in kept]
        together = torch.stack(decoded).mean(0).numpy()
        found.append(Ensemble(method, len(kept), setting.metric.compute(together, kept[0]["test_y"].numpy())))
    return found
