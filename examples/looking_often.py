"""Looking at results as often as you like
=======================================

Whoever runs a few seeds, tests, runs a few more and tests again finds effects that are not there. ``fallow compare``
looks at 4, 5, 6, 8, … seeds all the same, because its p-values know of every look. Here are both, on differences that
are pure noise.
"""

# %%

import numpy as np
from scipy.stats import ttest_1samp

from fallow.evaluate.race import LOOKS, sequential_p

draw = np.random.default_rng(0)
noise = draw.normal(size=(2000, max(LOOKS)))  # 2,000 comparisons of a method with its control: no difference

# %%
# The ordinary t-test at every look, and the best of them, as a hopeful researcher would see it.

plain = np.stack([ttest_1samp(noise[:, :n], 0, axis=1).pvalue for n in LOOKS], 1)
print(f"looks at {LOOKS} seeds")
print(f"the t-test at the last look alone: {np.mean(plain[:, -1] <= 0.05):.1%} false alarms")
print(f"the t-test at every look:          {np.mean(plain.min(1) <= 0.05):.1%} false alarms")

# %%
# The sequential p-value holds at whichever look one stops.

honest = sequential_p(noise)
print(f"the sequential p-value:            {np.mean(honest.min(1) <= 0.05):.1%} false alarms")

# %%
# And where there is something to find, a difference of one standard deviation, it is found before all seeds are run.

found = sequential_p(noise + 1.0) <= 0.05
first = np.where(found.any(1), np.array(LOOKS)[found.argmax(1)], max(LOOKS))
print(f"found in {found.any(1).mean():.0%} of the comparisons, after {first.mean():.1f} seeds on average")
