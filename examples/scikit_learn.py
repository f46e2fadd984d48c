"""`log_softmax` as a step of a scikit-learn Pipeline that calibrates a classifier.

The classifier is too sure of itself: its logits are four times too large. A logistic regression on the
logarithms of its probabilities calibrates it. `FunctionTransformer` turns `log_softmax` into a step.
Its `kw_args` are the arguments of `log_softmax`. The Pipeline can be cloned, searched over and pickled. The
program compares the log loss before and after the calibration with the log loss of the true probabilities.

    python examples/scikit_learn.py
"""

import pickle
import sys

import numpy as np

import onsoftmax as ons

try:
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import FunctionTransformer
except ImportError:
    sys.exit("This example needs scikit-learn: pip install scikit-learn")

rng = np.random.default_rng(0)
true_logits = rng.standard_normal((1000, 5)) * 1.5
target = np.array([rng.choice(5, p=p) for p in ons.softmax(true_logits)])
logits = 4 * true_logits
train, test = slice(0, 500), slice(500, None)

pipeline = Pipeline(
    [
        ("logs", FunctionTransformer(ons.log_softmax, kw_args={"axis": -1})),
        ("calibrate", LogisticRegression(max_iter=1000)),
    ]
)
search = GridSearchCV(pipeline, {"logs__kw_args": [{"scale": 0.5}, {"scale": 1.0}]}, cv=3)
search.fit(logits[train], target[train])

before = log_loss(target[test], ons.softmax(logits[test]))
after = log_loss(target[test], search.predict_proba(logits[test]))
best = log_loss(target[test], ons.softmax(true_logits[test]))
print(f"log loss: {before:.3f} before, {after:.3f} after; with the true probabilities {best:.3f}")
assert best < after < 1.1 * best < before

again = pickle.loads(pickle.dumps(search.best_estimator_))
np.testing.assert_array_equal(again.predict_proba(logits[test]), search.predict_proba(logits[test]))
print("the best arguments:", search.best_params_)
