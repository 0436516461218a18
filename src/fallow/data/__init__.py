"""Data: from whatever the user has to batches on a device. Source → split → stream."""

from fallow.data.augment import POLICIES
from fallow.data.budget import FOREIGN, UNKNOWN, add_unlabelled, budget, fewer, mix_in, set_apart
from fallow.data.bundled import BUNDLED, Bundled, bundled, folder_name
from fallow.data.examples import Data, Examples, Files, Part
from fallow.data.load import load
from fallow.data.split import stratified
from fallow.data.stream import Stream, stream
from fallow.data.targets import Classes, Dense, Labels, Numbers, Target

__all__ = [
    "BUNDLED",
    "FOREIGN",
    "POLICIES",
    "UNKNOWN",
    "Bundled",
    "Classes",
    "Data",
    "Dense",
    "Examples",
    "Files",
    "Labels",
    "Numbers",
    "Part",
    "Stream",
    "Target",
    "add_unlabelled",
    "budget",
    "bundled",
    "fewer",
    "folder_name",
    "load",
    "mix_in",
    "set_apart",
    "stratified",
    "stream",
]
