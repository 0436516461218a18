"""FAM's table 3: BERT on RTE (does the second sentence follow from the first?), plainly and with FAM on the pooler.

fallow reproduce fam-rte --data-dir DIR     DIR/rte.npz: s1_train, s2_train, y_train, and the same of dev; extra: text

DIR/bert is a folder of Hugging Face's with BERT's weights, as the paper has them (base, 2e-5, 20 epochs): then that is
tuned. Without it a BERT of 2 layers of 64 numbers learns from nothing, which is another experiment: what is asked of
it is what κ is, and what λκ does. FAM has the paper's λ of 3e6 and the one of two that is better on validation, a tenth
of the training pairs. Accuracy on dev, as in the paper; gains are paired by seed, and agree when ours has the paper's
sign and lies two standard errors from 0. The remarks have the larger class, and token embeddings that were learned from
much text (wordllama, 256 numbers a token) under logistic regression, where that package is installed.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from fallow.base.errors import RequestError
from fallow.core import loop
from fallow.data import Examples, load
from fallow.data.texts import to_strings
from fallow.experiment import heed
from fallow.flatness import relative_flatness
from fallow.models.linear import fitted_head
from fallow.reproduce.runs import Runs
from fallow.reproduce.seal_tables import direction
from fallow.reproduce.table import Table, cell
from fallow.training.prepare import prepare
from fallow.training.result import result_of

SEEDS = 5
HIDDEN, LAYERS, WORDS = 64, 2, 4000  # of the network without weights
EPOCHS, RATE = 3, 5e-4
TUNED_EPOCHS, TUNED_RATE = 20, 2e-5  # the paper's, for the network with weights
VAL, BATCH, LENGTH = 0.1, 32, 64
LAYER = "network.bert.pooler.dense"
THEIRS = 3e6
TRIED = (THEIRS, 0.1)
METHODS = {"baseline": "normal"} | {
    f"FAM, λ = {strength:g}": f"fam:strength={strength},layer={LAYER}" for strength in TRIED
}
PAPER = {"baseline": 67.364, "FAM": 69.82}
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def run(name: str, seeds: range, data_dir: Path | None, each: Runs) -> Table:
    """Every method, and what looks at words alone."""
    if data_dir is None:
        raise RequestError(f"{name} needs --data-dir: a folder with rte.npz, and perhaps bert/")
    source, bert = str(data_dir / "rte.npz"), str(data_dir / "bert") if (data_dir / "bert").is_dir() else ""
    jobs = {(row, seed): (source, bert, method, seed) for seed in seeds for row, method in METHODS.items()}
    at, done = each(judged, jobs)

    def of(row: str, what: str) -> list[float]:
        return [at[row, seed][what] for seed in done]

    fams = [row for row in METHODS if row.startswith("FAM")]
    best = max(fams, key=lambda row: statistics.mean(of(row, "val")))
    cells = []
    for row in METHODS:
        test = [100 * value for value in of(row, "test")]
        if row in fams:
            gains = [a - 100 * b for a, b in zip(test, of("baseline", "test"), strict=True)]
            paper = PAPER["FAM"] - PAPER["baseline"] if row == f"FAM, λ = {THEIRS:g}" else None
            cells.append(direction(row, "gain", paper, gains))
        cells.append(cell(row, "dev", None, test, 0))
        cells.append(cell(row, "training", None, [100 * value for value in of(row, "train")], 0))
    remarks = [
        f"{'BERT of ' + bert if bert else f'{LAYERS} × {HIDDEN} from nothing'}; the paper's: 67.4 → 69.8 %.",
        f"By validation, λ is {best.partition('= ')[2]}: "
        + ", ".join(f"{row} {100 * statistics.mean(of(row, 'val')):.1f} %" for row in METHODS) + ".",
        "κ of the pooler, at the start and at the end: "
        + ", ".join(f"{row} {_mean(of(row, 'first'))} → {_mean(of(row, 'last'))}" for row in METHODS) + ".",
    ]  # fmt: skip
    dev = load(source).val
    assert isinstance(dev, Examples)
    remarks.append(
        f"The larger class has {100 * float(dev.y.bincount().max()) / len(dev):.1f} % of dev. {_yardstick(source)}"
    )
    return Table(name, "FAM, table 3", cells, remarks=remarks)


def judged(folder: Path, source: str, bert: str, method: str, seed: int) -> dict[str, float]:
    """Accuracy on training, validation and dev after the last epoch, and κ of the pooler at both ends."""
    parts = _pairs(source)
    model = f"hf:{bert or untrained(folder / 'bert', parts['train'][0].ravel())}:length={LENGTH}"
    with torch.random.fork_rng(devices=[]):
        ctx = prepare(
            model, (parts["train"], parts["dev"]), method, seed=seed, val=VAL, generations=1,
            epochs=TUNED_EPOCHS if bert else EPOCHS, lr=TUNED_RATE if bert else RATE, batch_size=BATCH,
            optimizer="adamw", weight_decay=0.01, schedule="one-cycle", label_smoothing=0.0, augment="none",
            evaluate_every=TUNED_EPOCHS if bert else EPOCHS, test_at_end=True, observer=heed,
        )  # fmt: skip
        x, y = (part[:BATCH] for part in next(iter(ctx.train.ordered())))

        def kappa() -> float:
            found = relative_flatness(ctx.model.train(), LAYER, x, y, functional.cross_entropy)
            return float(found.detach())

        first = kappa()
        with closing(ctx):
            loop.run(ctx)
            last = result_of(ctx).last
    accuracies = {part: last[f"{part}_accuracy"] for part in ("train", "val", "test")}
    return accuracies | {"first": first, "last": kappa()}


def _pairs(source: str) -> dict[str, tuple[NDArray[np.str_], NDArray[np.int64]]]:
    with np.load(source, allow_pickle=False) as archive:
        return {
            part: (
                np.char.decode(np.stack([archive[f"s1_{part}"], archive[f"s2_{part}"]], 1), "utf-8"),
                archive[f"y_{part}"].astype(np.int64),
            )
            for part in ("train", "dev")
        }


def untrained(folder: Path, texts: Iterable[str], hidden: int = HIDDEN, layers: int = LAYERS) -> Path:
    """A folder of Hugging Face's that holds a small BERT's config and a tokeniser, and no weights.

    The tokeniser knows the most frequent words of the texts, and letters for all others.
    """
    folder.mkdir(parents=True, exist_ok=True)
    counts = Counter(word for text in texts for word in str(text).lower().split())
    letters = sorted({letter for word in counts for letter in word})
    words = [word for word, _ in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:WORDS]]
    pieces = dict.fromkeys([*SPECIAL, *letters, *(f"##{letter}" for letter in letters), *words])
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", "utf-8")
    config = {
        "model_type": "bert", "architectures": ["BertForSequenceClassification"], "vocab_size": len(pieces),
        "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": 2, "intermediate_size": 4 * hidden,
        "max_position_embeddings": 512,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    reading = {"tokenizer_class": "BertTokenizer", "do_lower_case": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(reading), "utf-8")
    return folder


def _yardstick(source: str) -> str:
    found = _words(source)
    if found is None:
        return "wordllama is not installed: nothing to say of embeddings that were learned before."
    return f"Logistic regression on wordllama's token embeddings has {100 * found:.1f} %."


def _words(source: str) -> float | None:
    """Accuracy on dev of logistic regression on the mean embeddings u and v of both sentences, |u − v| and u∘v."""
    package = find_spec("wordllama")
    if package is None or not package.submodule_search_locations:
        return None
    from safetensors.torch import load_file
    from tokenizers import Tokenizer

    place = Path(package.submodule_search_locations[0])
    (table,) = load_file(place / "weights" / "l2_supercat_256.safetensors").values()
    tokeniser = Tokenizer.from_file(str(place / "tokenizers" / "l2_supercat_tokenizer_config.json"))
    data = load(source, test=0.0)
    train, dev = data.train, data.val
    assert isinstance(train, Examples)
    assert isinstance(dev, Examples)

    def features(x: Tensor) -> Tensor:
        ids = [[tokeniser.encode(text, add_special_tokens=False).ids for text in pair] for pair in to_strings(x)]
        u, v = (torch.stack([table[each[k]].float().mean(0) for each in ids]) for k in (0, 1))
        return torch.cat([u, v, (u - v).abs(), u * v], 1)

    # dev judges, so that the penalty is chosen on a tenth of the training pairs
    x, y = features(train.x), train.y
    held = len(x) // 10
    head, _ = fitted_head((x[held:], y[held:]), (x[:held], y[:held]), data.target, data.target.metric())
    found = data.target.decode(head(features(dev.x)))
    return data.target.metric().compute(found.numpy(), dev.y.numpy())


def _mean(values: list[float]) -> str:
    return f"{statistics.mean(values):.2g}"
