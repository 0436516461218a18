"""Verdicts on made-up outcomes."""

from __future__ import annotations

import random
import re
import statistics
from dataclasses import replace
from typing import Any

import pytest
import torch

from fallow.comparison.findings import Findings, Setting, find, judge
from fallow.comparison.race import ACCURACY, Rules, Runner, steps
from fallow.comparison.yardsticks import Measured, said
from fallow.data import Data, Examples
from fallow.evaluate.metrics import CLASSES, LABELS, NUMBERS
from fallow.evaluate.race import repeated_interval, sequential_p, visible
from fallow.evaluate.statistics import holm

DESCRIBED: dict[str, Any] = {"sizes": {"train": 400, "val": 100, "test": 1000}, "classes": ["a", "b"], "shape": [20]}
SEEDS = range(5)
NOISE = {seed: 0.002 * (seed - 2) for seed in SEEDS}  # shared by all methods of a seed
RULES = Rules((4, 5), 5)
WIGGLE = [0.001, -0.001, 0.0005, -0.0005, 0.0]


def runs(method: str, test: float, val: float | None = None, seeds: Any = SEEDS, **changes: Any) -> list[Runner]:
    """A method with these means; its own noise is small, so that a hundredth is seen."""
    own = random.Random(method).sample(WIGGLE, 5)
    found = [
        Runner("data", "mlp", method, seed, f"runs/{method}-{seed}", None, test + NOISE[seed] + own[seed],
                (test if val is None else val) + NOISE[seed], 2.0, 100, 100.0)
        for seed in seeds
    ]  # fmt: skip
    return [replace(outcome, **changes) for outcome in found]


def failed(method: str, seeds: Any = SEEDS, reason: str = "the loss became NaN") -> list[Runner]:
    return [Runner("data", "mlp", method, seed, f"runs/{method}-{seed}", reason) for seed in seeds]


def noisy(method: str) -> list[Runner]:
    """As good as the control, by and large."""
    shifts = (0.02, -0.02, 0.012, -0.008, 0.0)
    return [replace(o, test=(o.test or 0.0) + shift) for o, shift in zip(runs(method, 0.9), shifts, strict=True)]


def judged(*groups: list[Runner], overlap: float = 0.0, rules: Rules = RULES) -> Setting:
    return judge([outcome for group in groups for outcome in group], DESCRIBED, overlap, "passes", ACCURACY, rules)


def gains(ours: list[Runner], theirs: list[Runner]) -> list[float]:
    return [(a.test or 0.0) - (b.test or 0.0) for a, b in zip(ours, theirs, strict=True)]


def found(*groups: list[Runner], overlap: float = 0.0, budget: str = "passes") -> Findings:
    every = [outcome for group in groups for outcome in group]
    names = {outcome.data for outcome in every}
    return find(every, dict.fromkeys(names, DESCRIBED), dict.fromkeys(names, overlap), budget, ACCURACY, RULES)


NORMAL, LONG = runs("normal", 0.88), runs("long", 0.9)


def test_what_was_not_relearned_is_said() -> None:
    """Beside the training score at the end; a point less than the first generation had is chance."""
    llf = [replace(o, training=(1.0, 0.44 if o.seed else 0.6, 0.97)) for o in runs("llf", 0.8)]
    lw = runs("lw", 0.9, training=(0.99, 0.985))
    setting = judged(NORMAL, LONG, llf, lw, runs("ema", 0.9, training=(None,)))
    assert {row.method: row.training for row in setting.rows} == {
        "normal": None, "long": None, "llf": pytest.approx(0.97), "lw": pytest.approx(0.985), "ema": None,
    }  # fmt: skip
    said = {row.method: row.relearning for row in setting.rows if row.relearning}
    assert list(said) == ["llf"]
    assert said["llf"].startswith(
        "llf did not relearn in 5 of 5 runs: generation 2 ended at 44.0 % on training examples"
    )
    errors = judge([*runs("long", 0.3), *runs("llf", 0.2, training=(0.1, 0.4))], DESCRIBED, 0.0, "passes",
                   NUMBERS["rmse"], RULES)  # fmt: skip
    assert not errors.row("llf").relearning  # how much of an error is much nobody knows


def test_verdicts() -> None:
    setting = judged(NORMAL, LONG, runs("llf", 0.93), runs("ema", 0.9), noisy("swa"), runs("lw", 0.85), failed("seal"))
    verdicts = {row.method: row.verdict for row in setting.rows}
    assert verdicts == {
        "normal": "baseline", "long": "control", "llf": "better", "ema": "no different", "swa": "undecided",
        "lw": "worse", "seal": "failed",
    }  # fmt: skip
    (advice,) = setting.advice  # of swa alone: the others are decided
    assert advice.startswith("swa (about ")
    assert " more seeds would decide this, likely as " in advice
    assert setting.row("seal").estimate is None
    assert setting.row("seal").failed == dict.fromkeys(SEEDS, "the loss became NaN")
    assert setting.rows[0].method == "llf"  # the best on validation first
    assert setting.rows[-1].method == "seal"  # and what has none last


def test_differences_are_the_sequential_test_on_test() -> None:
    llf = runs("llf", 0.93)
    setting = judged(NORMAL, LONG, llf, overlap=0.25)
    for reference, group in (("to_normal", NORMAL), ("to_control", LONG)):
        against = getattr(setting.row("llf"), reference)
        d = gains(llf, group)
        mean, low, high = (each[-1] for each in repeated_interval(d, (4, 5), 0.25, grain=1 / 1000))
        assert against.difference[:3] == pytest.approx((mean, low, high))
        assert against.difference.p == pytest.approx(sequential_p(d, (4, 5), 0.25, grain=1 / 1000)[-1])
        assert against.difference.smallest == pytest.approx(
            statistics.stdev(d) * visible(5, (4, 5), 0.25, level=0.05), rel=1e-6
        )
        assert against.method == group[0].method
    assert setting.row("long").to_control is None
    assert setting.row("long").to_normal is not None
    assert setting.row("normal").to_control is not None


def test_only_seeds_that_both_have_finished_are_paired() -> None:
    partial = runs("llf", 0.93, seeds=(0, 1, 4)) + failed("llf", (2, 3))
    long = runs("long", 0.9, seeds=(1, 2, 4)) + failed("long", (0, 3))
    row = judged(NORMAL, long, partial, rules=Rules((2, 5), 5)).row("llf")
    assert sorted(row.scores) == [0, 1, 4]
    assert sorted(row.failed) == [2, 3]
    assert row.to_control is not None
    d = [(partial[i].test or 0.0) - (LONG[seed].test or 0.0) for i, seed in ((1, 1), (2, 4))]
    assert row.to_control.difference.mean == pytest.approx(statistics.fmean(d))


def test_one_common_seed_is_no_evidence() -> None:
    setting = judged(NORMAL, LONG, runs("llf", 0.99, seeds=(3,)))
    row = setting.row("llf")
    assert row.to_control is None
    assert row.verdict == "undecided"
    assert row.estimate is not None
    assert row.estimate.low is None


def test_holm_goes_over_the_frozen_methods_and_the_worse_of_two_controls() -> None:
    asked = [runs("llf", 0.905), runs("ema", 0.903), runs("lw", 0.9), failed("seal")]
    restart = runs("restart", 0.88, val=0.8)
    setting = judged(NORMAL, LONG, restart, *asked)
    plain = []
    for group in asked[:3]:
        by = {
            sign: [sequential_p(gains(group, c), (4, 5), grain=1 / 1000, direction=sign)[-1] for c in (LONG, restart)]
            for sign in (1, -1)
        }
        plain.append(min(max(by[1]), max(by[-1])))
    corrected = [row.to_control.corrected for name in ("llf", "ema", "lw") if (row := setting.row(name)).to_control]
    assert corrected == pytest.approx(holm([*plain, 1.0])[:3])
    for control in ("normal", "restart"):  # are no questions, and make the others no harder
        own = setting.row(control).to_control
        assert own is not None
        assert own.corrected is None


def test_two_controls_must_both_be_beaten() -> None:
    between = runs("llf", 0.92)
    assert judged(NORMAL, LONG, between).row("llf").verdict == "better"
    assert judged(NORMAL, LONG, runs("restart", 0.94), between).row("llf").verdict == "undecided"


def test_more_questions_can_turn_a_verdict() -> None:
    def verdict(*others: list[Runner]) -> str:
        rules = replace(RULES, same=0.0)
        return judged(NORMAL, LONG, runs("llf", 0.902), *others, rules=rules).row("llf").verdict

    assert verdict() == "better"
    assert verdict(*(runs(f"other{i}", 0.9) for i in range(20))) == "undecided"


def test_what_came_later_is_exploratory_and_disturbs_nobody() -> None:
    later = replace(RULES, exploratory=("swa", "ema"))
    groups = [NORMAL, LONG, runs("llf", 0.905), runs("lw", 0.93)]
    alone, with_them = judged(*groups), judged(*groups, runs("swa", 0.93), noisy("ema"), rules=later)
    for name in ("llf", "lw"):
        assert alone.row(name).standing == with_them.row(name).standing
    assert {row.method for row in with_them.rows if row.exploratory} == {"swa", "ema"}
    assert with_them.row("swa").judged == "better (exploratory)"
    assert "swa (exploratory) (+3.0 points)" in Findings([with_them], None, None).sentence


def test_less_may_be_better() -> None:
    rmse = NUMBERS["rmse"]
    every = [*runs("normal", 0.95), *runs("long", 0.9), *runs("llf", 0.85), *runs("lw", 0.95)]
    setting = judge(every, DESCRIBED, 0.0, "passes", rmse, RULES)
    assert {row.method: row.verdict for row in setting.rows if row.method in ("llf", "lw")} == {
        "llf": "better", "lw": "worse",
    }  # fmt: skip
    against = setting.row("llf").to_control
    assert against is not None
    assert against.difference.low <= against.difference.mean <= against.difference.high < 0
    standing = setting.row("llf").standing
    assert standing is not None
    assert standing.against["long"] == against.difference[:3]  # --json has both


def test_large_numbers_are_written_out() -> None:
    """Prices: no powers of ten in a sentence."""
    every = [replace(o, test=2e6 * (o.test or 0.0)) for o in (*runs("normal", 0.9), *runs("long", 0.9), *noisy("ema"))]
    setting = judge(every, DESCRIBED, 0.0, "passes", NUMBERS["rmse"], RULES)
    assert re.search(r"a difference below \d{5} may go", Findings([setting], None, None).sentence)


def test_gains_that_happen_to_be_equal_are_known_no_better_than_to_an_example() -> None:
    """One rare test example more with each of four seeds: chance, where so few of them are unsure."""
    test = Examples(torch.zeros(50, 6), (torch.arange(50) < 5).long())
    data = Data("data", test, test, test, ["a", "b"], (6,))
    for name, by in (("accuracy", 0.02), ("balanced-accuracy", 0.1), ("macro-f1", 0.1)):
        metric = CLASSES[name]
        described = DESCRIBED | {"steps": steps(data, metric)}
        every = [
            replace(o, test=mean + by * (o.seed % 2))
            for method, mean in (("long", 0.7), ("ema", 0.7 + by))
            for o in runs(method, 0.9, seeds=range(4))
        ]
        setting = judge(every, described, 0.0, "passes", metric, Rules((4, 5), 4))
        assert setting.race.grain == pytest.approx(by)
        assert setting.row("ema").verdict == "undecided"


def test_ties_of_ranks_are_no_proof_that_nothing_differs() -> None:
    """Perfect with four seeds on ten examples of each class, as is often a method that fails with one seed in ten."""
    few = Examples(torch.zeros(20, 6), (torch.arange(20) < 10).long())
    data = Data("data", few, few, few, ["a", "b"], (6,))
    perfect = [replace(o, test=1.0) for method in ("long", "ema") for o in runs(method, 1.0, seeds=range(4))]
    metric = CLASSES["auroc"]
    setting = judge(perfect, DESCRIBED | {"steps": steps(data, metric)}, 0.0, "passes", metric, Rules((4, 5), 4))
    assert setting.race.grain == 1 / 200  # a tie of one pair in a hundred
    assert setting.row("ema").verdict == "undecided"
    labels = Examples(torch.zeros(20, 6), torch.tensor([[1.0, 0, 1], [0, 0, 1]]).repeat(10, 1))  # half, none, all
    several = Data("data", labels, labels, labels, ["a", "b", "c"], (6,))
    assert [steps(several, LABELS[name]) for name in ("macro-auroc", "map", "f1")] == [100, 110, 10]
    alike = Examples(torch.zeros(20, 6), torch.zeros(20).long())
    assert steps(Data("data", alike, alike, alike, ["a", "b"], (6,)), metric) == 20


def test_the_control_is_the_best_on_validation_whatever_test_says() -> None:
    restart = runs("restart", 0.99, val=0.7)
    assert judged(NORMAL, runs("long", 0.5, val=0.8), restart).control == "long"
    assert judged(NORMAL, runs("long", 0.5, val=0.6), restart).control == "restart"
    assert judged(NORMAL, failed("long"), restart).control == "restart"
    nothing = judged(NORMAL, failed("long"), failed("restart"), runs("llf", 0.9))
    assert nothing.control is None
    assert nothing.row("llf").verdict == "undecided"


def test_the_winner_is_the_best_run_of_the_best_method_on_validation() -> None:
    llf = runs("llf", 0.5, val=0.95)
    winner = found(NORMAL, LONG, llf, runs("ema", 0.99, val=0.9)).winner
    assert winner == llf[4]  # its noise on validation is the highest
    tied = [replace(o, val=0.95) for o in llf]
    assert found(NORMAL, LONG, tied).winner == tied[0]
    assert found(failed("normal"), failed("long")).winner is None
    assert found().winner is None
    some = found(NORMAL, LONG, failed("llf", range(4)) + runs("llf", 0.5, val=0.99, seeds=(4,))).winner
    assert some is not None
    assert (some.method, some.seed) == ("llf", 4)


def test_who_left_the_race_on_easy_seeds_is_not_the_winner_for_it() -> None:
    """The last seeds are a tenth harder; "left" ran on the others alone, where it was behind."""
    hard = {0: 0.0, 1: 0.0, 2: 0.0, 3: -0.1, 4: -0.1}
    groups = [runs("long", 0.9, 0.90), runs("lw", 0.9, 0.92), runs("left", 0.9, 0.91, seeds=(0, 1, 2))]
    rows = [replace(o, val=(o.val or 0.0) + hard[o.seed]) for group in groups for o in group]
    result = find(rows, {"data": DESCRIBED}, {"data": 0.0}, rules=RULES)
    assert [row.method for row in result.settings[0].rows] == ["lw", "left", "long"]
    assert result.winner is not None
    assert result.winner.method == "lw"
    assert result.settings[0].row("left").validation == pytest.approx(0.91 - 0.04)


def test_no_choice_looks_at_the_test_split() -> None:
    draw = random.Random(0)
    every = [*NORMAL, *LONG, *runs("restart", 0.91), *runs("llf", 0.93), *runs("ema", 0.92)]
    usual = found(every)
    for _ in range(20):
        accuracies = [o.test for o in every]
        draw.shuffle(accuracies)
        other = found([replace(o, test=a) for o, a in zip(every, accuracies, strict=True)])
        assert other.settings[0].control == usual.settings[0].control
        assert [row.method for row in other.settings[0].rows] == [row.method for row in usual.settings[0].rows]
        assert usual.winner is not None
        assert other.winner is not None
        assert other.winner.folder == usual.winner.folder


def test_intervals_stay_within_what_an_accuracy_can_be() -> None:
    row = judged(NORMAL, [replace(o, test=a) for o, a in zip(LONG, (1, 0.9, 1, 1, 0.7), strict=True)]).row("long")
    assert row.estimate is not None
    assert row.estimate.high == 1.0


SENTENCES = {
    "no method is shown to beat long, ordinary training of equal compute; "
    "ema is no different (by less than 0.5 points).": [runs("ema", 0.9)],
    "llf (+3.0 points) beats long at equal compute.": [runs("llf", 0.93)],
    "llf (+3.0 points) and swa (+4.0 points) beat long at equal compute; lw is worse; ema is no different (by less "
    "than 0.5 points); seal failed.": [
        runs("llf", 0.93, val=0.95), runs("swa", 0.94), runs("lw", 0.85), runs("ema", 0.9), failed("seal"),
    ],
    "no method is shown to beat long, ordinary training of equal compute; llf failed.": [failed("llf")],
    "llf (+3.0 points) beats long at equal compute; not counted: 1 of 6 runs of llf and 5 of 5 runs of restart, which "
    "failed.": [runs("llf", 0.93), failed("llf", (5,)), failed("restart")],
}  # fmt: skip


@pytest.mark.parametrize("sentence", SENTENCES)
def test_the_sentence(sentence: str) -> None:
    assert found(NORMAL, LONG, *SENTENCES[sentence]).sentence == f"On data, {sentence}"


def test_the_sentence_in_other_cases() -> None:
    assert found(NORMAL, failed("long"), runs("llf", 0.9)).sentence == (
        "On data, there is no verdict: all runs of long failed."
    )
    assert found(NORMAL, runs("llf", 0.9)).sentence == (
        "On data, there is no verdict yet: no control of equal compute has finished."
    )
    one = [runs(name, 0.9, seeds=(0,)) for name in ("normal", "long", "llf", "ema")]
    assert found(*one).sentence == (
        "On data, no method is shown to beat long, ordinary training of equal compute; llf and ema are undecided "
        "(nothing can be judged before 4 seeds)."
    )
    unsure = found(NORMAL, LONG, runs("llf", 0.93), noisy("swa")).sentence
    assert re.fullmatch(
        r"On data, llf .*; swa is undecided \(a difference below \d\.\d points may go unseen\)\.", unsure
    )
    wild = [replace(o, test=a) for o, a in zip(runs("swa", 0.9), (0.0, 1.0, 0.1, 1.0, 0.3), strict=True)]
    many = [replace(o, test=100 * (o.test or 0.0)) for o in (*NORMAL, *LONG, *wild)]  # errors of 90, known to 300
    errors = judge(many, DESCRIBED, 0.3, "passes", NUMBERS["rmse"], RULES)
    assert "(with so few seeds nothing can be judged)" in Findings([errors], None, None).sentence
    assert (
        "swa is undecided (with so few seeds nothing can be judged)" in found(NORMAL, LONG, wild, overlap=0.3).sentence
    )
    steps = found(NORMAL, LONG, runs("sam", 0.93, passes=200.0), budget="steps")
    assert steps.sentence == "On data, sam (+3.0 points) beats long at equal steps."
    both = found(NORMAL, LONG, [replace(o, data="other") for o in (*NORMAL, *LONG)])
    assert both.sentence.startswith("On data (mlp), no method")
    assert " On other (mlp), no method" in both.sentence


def many(number: int, **accuracies: float) -> list[Runner]:
    """Data sets in all of which the methods come in the same order."""
    return [
        replace(o, data=f"set{i}", folder=f"{o.folder}-{i}")
        for i in range(number)
        for name, accuracy in accuracies.items()
        for o in runs(name, accuracy - 0.01 * i)
    ]


def test_several_settings_have_a_matrix_and_a_tree() -> None:
    across = found(many(6, normal=0.8, long=0.85, llf=0.9)).across
    assert across is not None
    assert across.settings == 6
    assert set(across.methods) == {"normal", "long", "llf"}
    assert across.marks["normal", "llf"] == "★"  # 1/64 alone, but not after six questions
    assert across.marks["llf", "normal"] == ""
    assert str(across.tree) == "llf (best in 6 of 6)"
    assert found(many(1, normal=0.8, long=0.85)).across is None


def test_a_method_that_is_missing_somewhere_is_left_out_of_the_matrix() -> None:
    outcomes = many(2, normal=0.8, long=0.85, llf=0.9)
    across = found([replace(o, reason="no", test=None) if o.folder.startswith("runs/llf-0") else o
                    for o in outcomes]).across  # fmt: skip
    assert across is not None
    assert "llf" in across.methods  # other seeds have finished
    gone = [o for o in outcomes if (o.method, o.data) != ("llf", "set1")]
    across = found(gone, [replace(o, data="set1") for o in failed("llf")]).across
    assert across is not None
    assert "llf" not in across.methods


def test_the_matrix_is_of_the_seeds_that_all_methods_ran() -> None:
    """A method that was dropped when it looked worse would stay worse, whatever became of the others."""
    outcomes = many(6, normal=0.8, long=0.85, llf=0.86)
    turned = [replace(o, test=0.0) if (o.method, o.seed) == ("llf", 4) else o for o in outcomes]
    assert [o for o in turned if o not in outcomes]
    usual, other = found(outcomes).across, found(turned).across
    assert usual is not None
    assert other is not None
    assert usual.marks == other.marks  # the first look is at four seeds
    assert usual.marks["long", "llf"] == "★"
    assert str(usual.tree) == str(other.tree)


def test_settings_in_which_nothing_finished() -> None:
    findings = found(failed("normal"), failed("long"), [replace(o, data="other") for o in failed("long")])
    assert findings.across is not None
    assert findings.across.methods == []
    assert findings.across.tree is None
    assert findings.winner is None


def test_the_winner_is_of_the_first_data_set() -> None:
    outcomes = many(2, normal=0.5, long=0.6) + [
        replace(o, data="set1", folder=f"x{o.folder}") for o in runs("llf", 0.99)
    ]
    winner = found(outcomes).winner
    assert winner is not None
    assert (winner.data, winner.method) == ("set0", "long")
    models = [replace(o, model="scnn", val=0.9) for o in many(1, normal=0.5, long=0.6)]
    winner = found(many(1, normal=0.5, long=0.6), models).winner
    assert winner is not None
    assert winner.model == "scnn"  # of its models, the best on validation


def test_what_could_be_seen_is_that_of_the_undecided_methods() -> None:
    setting = judged(NORMAL, LONG, runs("llf", 0.93), noisy("ema"), runs("lw", 0.85))
    against = setting.row("ema").to_control
    assert against is not None
    assert setting.smallest == [against.difference.smallest]
    assert judged(NORMAL, LONG).smallest == []


def test_what_could_be_seen_differs_between_methods_and_the_sentence_says_so() -> None:
    wilder = [replace(o, method="swa", test=0.9 + 3 * ((o.test or 0.0) - 0.9)) for o in noisy("ema")]
    setting = judged(NORMAL, LONG, noisy("ema"), wilder)
    least, most = (setting.row(method).to_control for method in ("ema", "swa"))
    assert least is not None
    assert most is not None
    assert setting.smallest == [least.difference.smallest, most.difference.smallest]
    span = f"{100 * least.difference.smallest:.1f} to {100 * most.difference.smallest:.1f} points"
    said = f"(differences below {span}, depending on the method, may go unseen)"
    assert said in Findings([setting], None, None).sentence


@pytest.mark.parametrize("higher", [True, False])
def test_the_interval_of_a_difference_ends_where_differences_do(higher: bool) -> None:
    """Two shares differ by 100 points at most, whatever Student's distribution says of few and unlike seeds."""
    wild = [replace(o, test=a) for o, a in zip(runs("swa", 0.9), (0.0, 1.0, 0.1, 1.0, 0.3), strict=True)]
    metric = replace(CLASSES["accuracy"], higher=higher)
    row = judge([*NORMAL, *LONG, *wild], DESCRIBED, 0.3, "passes", metric, RULES).row("swa")
    for against in (row.to_control, row.to_normal):
        assert against is not None
        assert against.difference.low == -1
    assert row.standing is not None
    assert row.standing.against["long"].low == -1
    unbounded = judge([*NORMAL, *LONG, *wild], DESCRIBED, 0.3, "passes", NUMBERS["rmse"], RULES).row("swa")
    assert unbounded.to_control is not None
    assert unbounded.to_control.difference.low < -1


def test_a_few_settings_have_no_tree() -> None:
    few = found(many(4, normal=0.8, long=0.85, llf=0.9)).across
    assert few is not None
    assert few.tree is None


def test_a_yardstick_that_is_not_beaten_is_named_beside_the_network_it_is_held_against() -> None:
    """Both are chosen on validation: another network may be above it, which the sentence does not deny."""

    def learner(name: str, test: float) -> Measured:
        return Measured("data", name, [test] * 4, [test] * 4, [None] * 4, [{}] * 4)

    settings = found(NORMAL, LONG, runs("restart", 0.91, val=0.95), runs("ema", 0.95, val=0.9)).settings
    low, logistic = learner("majority", 0.5), learner("logistic", 0.938)
    lucky = [replace(o, test=1.0) if o.seed == 4 else o for o in runs("restart", 0.93, val=0.95)]
    easy = found(NORMAL, LONG, lucky).settings  # 94.3 % with the fifth split, which the learners do not see
    assert len(said(easy, [low, logistic])) == 1
    held = "On data, restart, the best network on validation, does not beat logistic (93.8 %), which takes seconds."
    assert said(settings, [low, logistic]) == [held]
    assert said(settings, [low]) == []
    high = learner("majority", 0.93)
    assert said(settings, [high, logistic]) == [held]  # ema beats the majority
    plain = "On data, no network beats even the majority (96.0 %), which ignores the inputs."
    assert said(settings, [learner("majority", 0.96)]) == [plain]
    assert said(settings, [learner("majority", 0.96), learner("logistic", 0.97)]) == [
        held.replace("93.8", "97.0"), plain,
    ]  # fmt: skip
    two = [*settings, replace(settings[0], model="scnn")]
    assert [sentence.partition(", ")[0] for sentence in said(two, [logistic])] == ["On data (mlp)", "On data (scnn)"]
