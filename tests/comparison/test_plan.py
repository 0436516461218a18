from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fallow
from fallow.base.errors import RequestError
from fallow.comparison.plan import Plan, default_folder, split_names
from fallow.methods.plain import Normal, Restart
from tests.comparison.small import MODEL, plan

FULL = Plan.of(
    data=["digits", "my images/Ärger 🙂", 'a"b\\c', "del\x7fete"], methods=["llf", "seal:scale=0.1,late=freeze"],
    models=["mlp:hidden=8,8"], seeds=3, seed=7, quick=True, budget="steps", score="best", train=100, val=0.25, size=32,
    strict=True, weights="w.safetensors",
    settings={"lr": 1e-05, "epochs": 3, "augment": "flip", "split": 0.5, "clip": 1, "weight_decay": 0.0},
)  # fmt: skip


@pytest.mark.parametrize("whole", [FULL, Plan(data=("digits",)), Plan(data=("digits",), methods=())])
def test_a_saved_plan_is_the_same_plan(whole: Plan, tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(whole.toml(), "utf-8")
    assert Plan.of(**Plan.read(file)) == whole


def test_settings_that_are_none_are_not_kept() -> None:
    whole = Plan(data=("digits",), settings={"patience": None, "lr": 0.1})
    assert whole.settings == {"lr": 0.1}
    assert "None" not in whole.toml()


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        ({"metods": ["llf"]}, "unknown key of a plan 'metods': did you mean 'methods'?"),
        ({"data": "digits"}, "data of a plan cannot be 'digits': give a list of names"),
        ({"data": [1]}, "data of a plan cannot be (1,): give a list of names"),
        ({"data": []}, "there is no data to compare on"),
        ({"methods": "llf"}, "methods of a plan cannot be 'llf': give a list of names"),
        ({"models": None}, "models of a plan cannot be None: give a list of names"),
        ({"seeds": "4"}, "seeds of a plan cannot be '4'"),
        ({"seeds": True}, "seeds of a plan cannot be True"),
        ({"seeds": 2.5}, "seeds of a plan cannot be 2.5"),
        ({"seeds": None}, "seeds of a plan cannot be None"),
        ({"seeds": 0}, "seeds is 0: it must be a whole number from 1"),
        ({"seeds": 10**9}, "seeds is 1000000000: "),
        ({"looks": [1, 4]}, "looks is [1, 4]: it must rise from 2 seeds or more"),
        ({"looks": [5, 4]}, "looks is [5, 4]: it must rise"),
        ({"same": -1}, "same is -1: it must be a number from 0"),
        ({"same": float("nan")}, "same is nan"),
        ({"minutes": 0}, "minutes is 0: it must be a number above 0"),
        ({"seed": -1}, "seed is -1: it must be a whole number from 0"),
        ({"quick": "yes"}, "quick of a plan cannot be 'yes'"),
        ({"settings": 3}, "settings of a plan cannot be 3"),
        ({"settings": ["lr"]}, "settings of a plan cannot be ('lr',)"),
        ({"settings": {"lrate": 3}}, "unknown setting 'lrate'"),
        ({"settings": {"lr": "big"}}, "lr is big: it must be a finite number"),
        ({"settings": {"seed": 1}}, "seed is set in the settings: give seed and seeds of the plan"),
        ({"budget": "time"}, "unknown budget 'time'"),
        ({"score": "first"}, "unknown score 'first'"),
        ({"val": 0}, "val is 0: a comparison chooses on validation"),
        ({"val": 1.5}, "val is 1.5: a comparison chooses on validation, give a share between 0 and 1"),
        ({"val": float("nan")}, "val is nan"),
        ({"methods": ["lff"]}, "unknown method 'lff': did you mean 'llf'?"),
        ({"methods": ["llf:"]}, "'' in 'llf:' is not a setting"),
        ({"methods": ["llf:scale=1"]}, "unknown setting of llf 'scale'"),
        ({"data": ["digits", "digits"]}, "data 'digits' is named twice"),
        ({"data": ["a", "./a/"]}, "data 'a' is named twice"),
        ({"models": ["mlp", "scnn", "mlp"]}, "model 'mlp' is named twice"),
    ],
)
def test_wrong_plans(changes: dict[str, Any], answer: str) -> None:
    with pytest.raises(RequestError) as refused:
        Plan.of(**{"data": ["digits"]} | changes)
    assert answer in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("content", [b"data = [", b"\xff\xfe", b"data = 1\ndata = 2"])
def test_a_file_that_is_no_toml(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_bytes(content)
    with pytest.raises(RequestError, match=r"plan\.toml is not valid TOML"):
        Plan.read(tmp_path / "plan.toml")
    with pytest.raises(RequestError, match=r"gone\.toml cannot be read: No such file"):
        Plan.read(tmp_path / "gone.toml")
    with pytest.raises(RequestError, match="cannot be read: Is a directory"):
        Plan.read(tmp_path)


def test_the_controls_belong_to_every_comparison() -> None:
    def of(*names: str) -> tuple[str, ...]:
        return Plan(data=("digits",), methods=names).methods

    assert of("ema") == ("normal", "long", "ema")  # nothing restarts a schedule here
    assert of("ema", "llf") == ("normal", "long", "restart", "ema", "llf")
    assert of("ema", "long", "normal") == ("normal", "long", "ema")
    assert of() == ("normal", "long")
    assert of("restart:reset_optimizer=True") == ("normal", "long", "restart", "restart:reset_optimizer=True")
    assert set(fallow.comparison.plan.METHODS) <= set(Plan(data=("digits",)).methods)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "spellings",
    [
        ["llf", "llf:biases=True", " llf:norm_affine=true ,biases=True"],
        ["seal:scale=1", "seal:scale=1.0", "seal:share=0.25,scale=1"],
        ["seal:late=freeze,scale=0.1", "seal:scale=0.1,late=freeze"],
        ["llf+ema", "llf + ema:decay=0.999"],
    ],
)
def test_a_method_in_several_spellings_is_one_method(spellings: list[str]) -> None:
    assert len(set(plan("digits", *spellings).methods) - {"normal", "long", "restart"}) == 1


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("llf", ["llf"]),
        ("llf,ema", ["llf", "ema"]),
        (" llf , ema  swa\n", ["llf", "ema", "swa"]),
        ("seal:scale=0.1,late=freeze,ema", ["seal:scale=0.1,late=freeze", "ema"]),
        ("seal:scale=0.1, late=freeze, ema", ["seal:scale=0.1, late=freeze", "ema"]),
        ("llf+ema,seal:ascent=adaptive+swa:start=0.5 dsd", ["llf+ema", "seal:ascent=adaptive+swa:start=0.5", "dsd"]),
        ("born-again,mlp:hidden=64,64", ["born-again", "mlp:hidden=64,64"]),
        ("my.models:net,resnet18:width=16,norm=layer,scnn", ["my.models:net", "resnet18:width=16,norm=layer", "scnn"]),
        ("llf,,ema,", ["llf", "ema"]),
    ],
)
def test_names_in_one_string(text: str, names: list[str]) -> None:
    assert split_names(text) == names


def test_no_names_at_all_are_refused() -> None:
    with pytest.raises(RequestError, match="names nothing"):
        split_names(" ,, ")


def test_what_is_given_goes_before_the_recipe() -> None:
    recipe = {"epochs": 50, "lr": 0.1, "augment": "crop"}
    asked = Plan(data=("digits",), settings={"epochs": 3}, recipes={"digits": {"mlp": recipe}})
    assert asked.recipe("digits", "mlp") == {"epochs": 3, "lr": 0.1, "augment": "crop"}
    assert Plan(data=("digits",), settings={"augment": "try"}).settings == {}  # as where nothing is said


def test_recipes_of_a_file_are_settings_and_name_no_foreign_network(tmp_path: Path) -> None:
    asked = Plan(data=("digits",), recipes={"./a b.npz": {"scnn:width=8,norm=batch": {"epochs": 50, "lr": 0.1}}})
    (tmp_path / "plan.toml").write_text(asked.toml())
    assert Plan.of(**Plan.read(tmp_path / "plan.toml")) == asked
    with pytest.raises(RequestError, match="unknown setting 'epoch'"):
        Plan(data=("digits",), recipes={"digits": {"mlp": {"epoch": 3}}})
    with pytest.raises(RequestError, match="which is not fallow's own"):
        Plan(data=("digits",), recipes={"digits": {"mine:net": {"epochs": 3}}})
    with pytest.raises(RequestError, match="holds no settings"):
        Plan(data=("digits",), recipes={"digits": {"mlp": 3}})


def test_no_file_and_no_folder_names_a_foreign_network(tmp_path: Path) -> None:
    """Importing one runs code: neither a model nor what a method builds comes out of what may be somebody else's."""
    hidden = "confidence:network=mine:net"
    (tmp_path / "plan.toml").write_text(f'data = ["digits"]\nmethods = ["{hidden}"]\n')
    with pytest.raises(RequestError, match="names the model 'mine:net', which is not fallow's own"):
        Plan.read(tmp_path / "plan.toml")
    assert Plan.read(tmp_path / "plan.toml", ["mine:net"])["methods"] == [hidden]
    stored = plan("digits", "ema", hidden).describe()
    with pytest.raises(RequestError, match="names the model 'mine:net', which is not fallow's own"):
        plan("digits", "ema").merged(stored, Path("out"))
    assert hidden.partition(":")[0] in str(plan("digits", hidden).merged(stored, Path("out")).methods)


def test_a_stored_recipe_stays() -> None:
    old, new = {"mlp": {"epochs": 5}}, {"mlp": {"epochs": 6}}
    stored = plan("digits", "ema", recipes={"digits": old})
    both = plan("digits", "ema", recipes={"digits": new, "other": new}).merged(stored.describe(), Path("out"))
    assert both.recipes == {"digits": old, "other": new}


def test_an_existing_comparison_may_be_asked_for_more() -> None:
    stored = plan(["digits"], "ema", seeds=3)
    more = plan(["digits", "synthetic"], "llf", seeds=2, models=["mlp"]).merged(stored.describe(), Path("out"))
    assert more.data == ("digits", "synthetic")
    assert more.methods == ("normal", "long", "restart", "ema", "llf")  # what was asked once stays
    assert more.models == (MODEL, "mlp")
    assert more.seeds == 3
    assert stored.merged(stored.describe(), Path("out")) == stored
    same = plan(["digits"], "seal:scale=1.0").merged(plan(["digits"], "seal:scale=1").describe(), Path("out"))
    assert same.methods[-1] == "seal:scale=1"


def test_what_comes_after_a_look_is_exploratory() -> None:
    stored = plan(["digits"], "ema", seeds=10)
    assert stored.looks == (4, 5, 6, 8, 10)
    before = plan(["digits"], "llf", seeds=4).merged(stored.describe(), Path("out"), looked=False)
    assert before.exploratory == ()
    more = plan(["digits"], "llf", seeds=4).merged(stored.describe(), Path("out"))
    assert (more.looks, more.seeds, more.exploratory) == (stored.looks, 10, ("llf",))
    again = plan(["digits"], "swa").merged(more.describe(), Path("out"))
    assert again.exploratory == ("llf", "swa")  # once exploratory, always
    beyond = plan(["digits"], "ema", seeds=12).merged(stored.describe(), Path("out"))
    assert (beyond.looks, beyond.exploratory) == ((4, 5, 6, 8, 10, 12), ("ema",))


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 1}, {"quick": True}, {"budget": "steps"}, {"score": "best"}, {"train": 50}, {"val": 0.3},
        {"same": 1.0}, {"size": 8}, {"strict": True}, {"weights": "w.pt"}, {"settings": {"lr": 0.1}}, {"models": []},
        {"data": ["synthetic"]},
    ],
)  # fmt: skip
def test_another_plan_is_refused(changes: dict[str, Any]) -> None:
    stored = plan(["digits"], "ema")
    key = next(iter(changes))
    with pytest.raises(RequestError, match=f"out holds another comparison: its {key} is .*; choose another --out"):
        plan(**{"data": ["digits"]} | changes).merged(stored.describe(), Path("out"))


def test_default_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def folder(*data: str, **changes: Any) -> str:
        return str(default_folder(Plan(data=data, **changes)))

    assert folder("digits") == "comparisons/digits"
    assert folder("digits", quick=True) == "comparisons/digits-quick"
    assert folder("digits", "a/b/photos of cats/") == "comparisons/digits+photos_of_cats"
    assert folder("a/table.npz") == "comparisons/table"
    assert folder("synthetic:alpha=0.5") == "comparisons/synthetic_alpha=0.5"
    (tmp_path / "pictures").mkdir()
    monkeypatch.chdir(tmp_path / "pictures")
    assert folder(".") == "comparisons/pictures"
    assert len(Path(folder(*(f"data{i:04}" for i in range(100)))).name) < 100


def test_paths_have_one_spelling_and_stay_paths() -> None:
    assert Plan(data=("./a//b/", "./digits", "synthetic:alpha=1", "~/x")).data == (
        "a/b", "./digits", "synthetic:alpha=1", "~/x",
    )  # fmt: skip


def test_classes_named_here_are_what_they_say() -> None:
    assert Normal().passes == Restart().passes == 1
    assert fallow.BornAgain().passes > 1
