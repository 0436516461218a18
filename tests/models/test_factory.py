import textwrap

import pytest
from torch import nn

from fallow.base.errors import RequestError
from fallow.models import build, from_factory


@pytest.fixture
def nets(tmp_path, monkeypatch):
    (tmp_path / "my_nets.py").write_text(
        textwrap.dedent("""
        from torch import nn
        calls = []
        def both(classes, shape):
            calls.append((shape, classes))
            return nn.Linear(shape[0], classes)
        def neither():
            return nn.Linear(2, 2)
        def anything(**known):
            return nn.Linear(known["shape"][0], known["classes"], bias=known.get("bias", True))
        def needs(depth):
            return nn.Linear(depth, 1)
        def named(name, path):
            net = nn.Linear(2, 2)
            net.told = (name, path)
            return net
        def wrong(shape):
            return [nn.Linear(2, 2)]
        def broken(shape):
            raise KeyError("first\\nsecond")
        size = 3
        """)
    )
    (tmp_path / "bad_nets.py").write_text("import no_such_library\n")
    (tmp_path / "worse_nets.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["/nowhere"] + [p for p in __import__("sys").path if p])


@pytest.mark.usefixtures("nets")
def test_a_factory_gets_what_it_takes():
    assert from_factory("my_nets:both", shape=(4,), classes=3).weight.shape == (3, 4)
    assert from_factory("my_nets:neither", shape=(4,), classes=3).weight.shape == (2, 2)
    assert build("my_nets:anything", shape=(4,), classes=3, bias=False).bias is None
    assert isinstance(from_factory("torch.nn:Identity", shape=(4,), classes=3), nn.Identity)


@pytest.mark.usefixtures("nets")
def test_a_factory_takes_settings_behind_another_colon():
    assert build("my_nets:anything:bias=False", shape=(4,), classes=3).bias is None
    assert build("my_nets:needs:depth=6", shape=(4,), classes=3).weight.shape == (1, 6)
    assert build("my_nets:named:name=big,path=a/b", shape=(4,), classes=3).told == ("big", "a/b")


@pytest.mark.usefixtures("nets")
@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("my_nets:needs:width=6", "cannot be called: missing a required argument: 'depth'|unexpected keyword"),
        ("my_nets:needs:depth", "'depth' in 'needs:depth' is not a setting"),
        ("my_nets:needs:depth=1,depth=2", "'depth' is set twice"),
        ("my_nets:both:classes=4", "classes in 'my_nets:both:classes=4' follows from the data: leave it out"),
        ("my_nets:", "write package.module:factory"),
        ("scnnn:width=8", "unknown model 'scnnn': did you mean 'scnn'"),
        ("scnn:width", "'width' in 'scnn:width' is not a setting"),
    ],
)
def test_wrong_settings_say_what_would_be_right(spec, message):
    with pytest.raises(RequestError, match=message) as caught:
        build(spec, shape=(4,), classes=3)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("nets")
@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("my_nets", "write package.module:factory"),
        ("my_nets:", "write package.module:factory"),
        ("no_nets:both", "no module 'no_nets'"),
        ("my_nets.deeper:both", "no module"),
        ("my_nets:boht", "unknown factory of my_nets 'boht': did you mean 'both'?"),
        ("my_nets:size", "is a int: it should be a function"),
        ("my_nets:needs", "missing a required argument: 'depth'"),
        ("my_nets:wrong", "returned a list: it should return a torch.nn.Module"),
        ("my_nets:broken", "failed: KeyError"),
        ("bad_nets:both", "importing bad_nets failed: No module named 'no_such_library'"),
        ("worse_nets:both", "importing worse_nets failed: ZeroDivisionError"),
    ],
)
def test_wrong_factories_say_what_would_be_right(path, message):
    with pytest.raises(RequestError, match=message) as caught:
        from_factory(path, shape=(4,), classes=3)
    assert "\n" not in str(caught.value)
