"""Why a model generalises, measured: plain functions on any model, each giving a record with its error bars.

Every record has ``describe()``, its content as plain values for JSON. No function changes the model: weights, buffers,
modes and random generators are as before when it returns, to the bit.
"""

from fallow.diagnose.batches import TopOfBatches, top_of_batches
from fallow.diagnose.conflict import Conflict, conflict
from fallow.diagnose.depth import PredictionDepth, prediction_depth
from fallow.diagnose.flatness import Flatness, LayerFlatness, flatness
from fallow.diagnose.intervals import Probed
from fallow.diagnose.lanczos import Eigenvalue, Lanczos
from fallow.diagnose.landscape import Landscape, landscape, meta_landscape
from fallow.diagnose.margin import Margins, margins
from fallow.diagnose.noise import Noise, noise
from fallow.diagnose.products import Hessian
from fallow.diagnose.slices import Slice, slices
from fallow.diagnose.spectrum import Spectrum, spectrum
from fallow.diagnose.sums import Density
from fallow.diagnose.watch import Onlooker, Watched
from fallow.diagnose.weights import WeightSize, weight_size
from fallow.evaluate.neighbours import neighbours

__all__ = [
    "Conflict",
    "Density",
    "Eigenvalue",
    "Flatness",
    "Hessian",
    "Lanczos",
    "Landscape",
    "LayerFlatness",
    "Margins",
    "Noise",
    "Onlooker",
    "PredictionDepth",
    "Probed",
    "Slice",
    "Spectrum",
    "TopOfBatches",
    "Watched",
    "WeightSize",
    "conflict",
    "flatness",
    "landscape",
    "margins",
    "meta_landscape",
    "neighbours",
    "noise",
    "prediction_depth",
    "slices",
    "spectrum",
    "top_of_batches",
    "weight_size",
]
