# %% [markdown]
"""Fly where there are no data.

A planar quadrotor is learned from flights within 1 m of the origin, and then flies a figure eight
5 m away by sampling control through the learned model.
"""

# %%
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from tasks import (
    FIGURES,
    SMALL,
    draw_paths,
    eight,
    figure_eight,
    learn,
    mppi,
    plain_gp,
    quadrotor_logs,
)

data = quadrotor_logs()
model = learn(data)
print(model.summary())

# %%
task = figure_eight()
runs = {
    "the truth": mppi(task, task.system.f),
    "offmap": mppi(task, model),
    "plain GP": mppi(task, plain_gp(data)),
}
for name, run in runs.items():
    print(f"{name:10s} cost {run.cost:8.1f}   median solve {1e3 * run.solve:.1f} ms")

# %%
figure, ax = plt.subplots(figsize=(6.5, 4), layout="constrained")
path, _ = eight(np.linspace(0, 6, 200))
ax.plot(*path.T, color="k", lw=0.8, ls=":", label="wanted")
draw_paths(ax, runs)
reach = np.abs(path - 5).max(axis=0) * 1.5
ax.set(xlim=(5 - reach[0], 5 + reach[0]), ylim=(5 - 2 * reach[1], 5 + 2 * reach[1]))
ax.set(xlabel="px [m]", ylabel="pz [m]", title="A figure eight 5 m from all data")
ax.legend(frameon=False, loc="lower left", ncols=2)
if not SMALL:
    figure.savefig(FIGURES / "fly-a-figure-eight.png", dpi=130)
