"""Methods in a scikit-learn search
================================

``Classifier`` and ``Regressor`` are estimators like any other: the method is one more thing to search over.
"""

# %%
# Two methods and two weight decays on the 178 wines, in three folds. `long` is ordinary training.

from sklearn.datasets import load_wine
from sklearn.model_selection import GridSearchCV, train_test_split

from fallow.adapters.sklearn import Classifier

x, y = load_wine(return_X_y=True)
x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.5, stratify=y, random_state=0)

search = GridSearchCV(
    Classifier(generations=2, epochs=8, random_state=0),
    {"method": ["long", "llf"], "weight_decay": [5e-4, 1e-2]},
    cv=3,
).fit(x_train, y_train)
for asked, score in zip(search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True):
    print(f"{asked['method']:4}  weight decay {asked['weight_decay']:g}  {score:.3f}")

# %%
# The best of them was trained again on all three folds. Inputs are as they are in the data: the scaling is inside.

print(f"test accuracy: {search.score(x_test, y_test):.3f}")
print(f"probabilities of the first: {search.predict_proba(x_test[:1]).round(2)[0]}")

# %%
# The network behind it is an ordinary module, and every epoch of its training is on record.

found = search.best_estimator_
print(found.model_)
print(f"{len(found.history_)} epochs, the last with a loss of {found.history_[-1]['train_loss']:.2f}")
