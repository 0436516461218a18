from __future__ import annotations

import pytest

from fallow.base.errors import RequestError
from fallow.methods import REGISTRY, build


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("sael", "unknown method 'sael': did you mean 'seal'?"),
        ("", "has no name"),
        ("seal:", "is not a setting"),
        ("seal:scal=1", "unknown setting of seal 'scal': did you mean 'scale'?"),
        ("long:epochs=3", "long has no settings"),
        ("seal:scale=abc", "scale of seal cannot be 'abc': a number or auto would fit"),
        ("seal:scale=1e999", "scale of seal cannot be inf"),
        ("seal:scale=True", "scale of seal cannot be True"),
        ("seal:scale=nan", "scale of seal cannot be 'nan'"),
        ("seal:scale=(1,2)", "scale of seal cannot be (1, 2)"),
        ("seal:late=3", "unknown value for late '3'"),
        ("seal:late=drop", "unknown value for late 'drop'"),
        ("seal:reverse=yes", "reverse of seal cannot be 'yes': something like False would fit"),
        ("seal:target=low", "target of seal cannot be 'low'"),
        ("seal:share=1", "share is 1: above 0 and below 1"),
        ("seal:scale=0", "scale is 0: it must be above 0"),
        ("seal:rho=-1", "rho is -1: it must be above 0"),
        ("seal:rho=1", "rho is 1: it must be at most 0.99"),
        ("seal:target=1", "target is 1"),
        ("seal:momentum=restet", "did you mean 'reset'?"),
        ("restart:reset_optimizer=no", "reset_optimizer of restart cannot be 'no'"),
        ("sagd:probability=0.5", "probability is 0.5"),
        ("sagd:scale=0", "scale is 0"),
        ("born-again:alpha=1.1", "alpha is 1.1"),
        ("born-again:temperature=0", "temperature is 0"),
        ("llf+llf", "llf and llf do not go together: the same method twice"),
        ("normal+llf", "normal and llf do not go together: normal has no generations"),
        ("llf+", "unknown method 'llf+': did you mean 'llf'?"),
    ],
)
def test_what_cannot_be_built_is_said_in_a_line(spec: str, words: str) -> None:
    with pytest.raises(RequestError) as caught:
        build(spec)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_settings_and_sums() -> None:
    assert build("seal:scale=1e+3,late=freeze").scale == 1000
    assert build("seal:target=None").target is None
    assert build("seal:target=0.3").target == 0.3
    assert build("seal:reverse=true").reverse is True
    assert build("llf + sagd").name == build("llf+sagd").name == "llf+sagd"
    assert str(build("llf:biases=False+sagd:scale=1e-1")).startswith("llf:biases=False")
    method = build("llf")
    assert build(method) is method


@pytest.mark.parametrize("written", ["2", "0,2", "2.10"])
def test_a_setting_that_is_text_may_look_like_a_number(written: str) -> None:
    """The layers of a Sequential are called 0, 1, 2, and the tenth one of its third 2.10."""
    assert build(f"fam:layer={written},strength=0.1").layer == written


@pytest.mark.parametrize("name", REGISTRY)
def test_the_name_of_a_method_with_its_settings_builds_it_again(name: str) -> None:
    method = build(name)
    assert str(build(str(method))) == str(method)
    assert method.summary
