from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from fallow.data import Data, Examples
from fallow.data.tasks import Episodes

torch.set_num_threads(1)  # workers run side by side: more threads would only fight


def small_images(n: int = 96, classes: int = 3, seed: int = 0) -> Data:
    """Noisy patterns of 1×8×8 pixels that a network learns in a few epochs."""
    draw = torch.Generator().manual_seed(seed)
    patterns = torch.randint(0, 256, (classes, 1, 8, 8), generator=draw)

    def some(count: int) -> Examples:
        y = torch.arange(count) % classes
        noise = torch.randint(0, 256, (count, 1, 8, 8), generator=draw)
        return Examples(((patterns[y] + noise) // 2).to(torch.uint8), y)

    names = [f"class {i}" for i in range(classes)]
    mean, std = torch.tensor([127.5]), torch.tensor([60.0])
    parts = some(n), some(30), some(60)
    return Data("patterns", *parts, names, (1, 8, 8), mean, std, unlabelled=some(60))


def small_tasks(classes: int = 24, seed: int = 0) -> Episodes:
    """3-way 1-shot tasks of noisy patterns of 1×8×8 pixels."""
    draw = torch.Generator().manual_seed(seed)
    patterns = torch.randint(0, 256, (classes, 1, 8, 8), generator=draw)
    y = torch.arange(classes).repeat_interleave(6)
    noise = torch.randint(0, 256, (len(y), 1, 8, 8), generator=draw)
    x = ((2 * patterns[y] + noise) // 3).to(torch.uint8)
    return Episodes(name="patterns", x=x, y=y, ways=3, shots=1, queries=3, model="scnn", val_tasks=12, test_tasks=60)


@pytest.fixture(scope="session")
def images() -> Data:
    return small_images()


@pytest.fixture(scope="session")
def tasks() -> Episodes:
    return small_tasks()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A Chromium, to look at pages."""
    sync_api = pytest.importorskip("playwright.sync_api")
    names = ("chromium", "chromium-browser", "google-chrome")
    if not (program := next(filter(None, map(shutil.which, names)), None)):
        pytest.skip("there is no Chromium")
    flags = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    with sync_api.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=flags)
        yield browser
        browser.close()
