from __future__ import annotations

import pytest

from fallow.experiment import runs


@pytest.fixture(autouse=True)
def errands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work may come from these tests."""
    monkeypatch.setattr(runs, "HOME", "tests.experiment.")
