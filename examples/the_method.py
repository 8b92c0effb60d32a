# %% [markdown]
"""What each stage finds on a unicycle's logs: the figure of docs/method.md.

The logs hold drives within 5 m of the origin that never face more than 1 rad from the x-axis.
"""

# %%
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from tasks import FIGURES, SMALL, learn, plain_gp, unicycle_logs

from offmap.rollout import rollout
from offmap.systems import unicycle

data = unicycle_logs()
model, plain = learn(data), plain_gp(data)
print(model.summary())

# %% [markdown]
# Drives that start 40 m away and face back, under controls like those of the logs.

# %%
rng = np.random.default_rng(0)
steps, dt = (10 if SMALL else 60), data.dt
starts = np.array([[25.0, -40.0, 3.0], [25.0, -40.0, 2.2], [25.0, -40.0, -2.4]])
plans = rng.uniform([-0.6, 0.8], [0.6, 1.5], (len(starts), steps, 2))
true = np.array([rollout(unicycle().f, x, u, dt) for x, u in zip(starts, plans, strict=True)])
predicted = {"offmap": model.rollout(starts, plans), "plain GP": plain.rollout(starts, plans)}
for name, states in predicted.items():
    print(
        f"{name:9s} ends {np.linalg.norm(states - true, axis=2)[:, -1].max():.2g} m from the truth"
    )

# %%
figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
weights = model.pseudometric.input_weights
axes[0].barh([*weights], [*weights.values()], color="C0")
axes[0].axvline(model.config.pseudometric.threshold, color="k", ls=":", lw=1)
axes[0].invert_yaxis()
axes[0].set(title="Which inputs matter", xlabel="weight in P; dotted: dropped below")

spectrum, c = model.constraints.singular_values, model.constraints.c
places = np.arange(1, len(spectrum) + 1)
axes[1].semilogy(places[:-c], spectrum[:-c], "o", color="C0", label="possible motion")
axes[1].semilogy(places[-c:], np.maximum(spectrum[-c:], 1e-16), "s", color="C3", label="impossible")
axes[1].set(title=f"Which motions are impossible: c = {c}", xlabel="singular value of Ẋ")
axes[1].set_xticks(places)
axes[1].legend(frameon=False, loc="lower left")

styles = {"offmap": {"color": "C0"}, "plain GP": {"color": "C3", "ls": "--"}}
for i in range(len(starts)):
    label = {"label": "the truth"} if i == 0 else {}
    axes[2].plot(*true[i, :, :2].T, color="0.75", lw=6, solid_capstyle="round", **label)
    for name, states in predicted.items():
        label = {"label": name} if i == 0 else {}
        axes[2].plot(*states[i, :, :2].T, **styles[name], **label)
axes[2].plot(*starts[0, :2], "ko", ms=5)
axes[2].set(title="Drives 40 m from the data", xlabel="px [m]", ylabel="py [m]")
axes[2].set_aspect("equal", "datalim")
axes[2].legend(frameon=False)
if not SMALL:
    figure.savefig(FIGURES / "method.png", dpi=130)
