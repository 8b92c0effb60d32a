# %% [markdown]
"""Park a robot where it has never been.

A unicycle is learned from drives around the origin that never face more than 1 rad from the x-axis,
and then parked 40 m away, facing back.
"""

# %%
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from tasks import FIGURES, SMALL, draw_paths, learn, mppi, parking, plain_gp, unicycle_logs

data = unicycle_logs()
model = learn(data)
print(model.summary())

# %% [markdown]
# MPPI only needs x' = f(x, u): our model, a plain GP, or the truth.

# %%
task = parking()
runs = {
    "the truth": mppi(task, task.system.f),
    "offmap": mppi(task, model),
    "plain GP": mppi(task, plain_gp(data)),
}
for name, run in runs.items():
    print(f"{name:10s} cost {run.cost:8.1f}   median solve {1e3 * run.solve:.1f} ms")

# %%
figure, ax = plt.subplots(figsize=(6.5, 3.6), layout="constrained")
draw_paths(ax, runs)
start, goal = np.array(task.start), task.targets[0]
ax.annotate(
    "",
    start[:2] + 0.6 * np.array([np.cos(start[2]), np.sin(start[2])]),
    start[:2],
    arrowprops={"arrowstyle": "-|>", "color": "k"},
)
ax.plot(*start[:2], "ko", ms=5)
ax.plot(*goal, "k*", ms=13)
ax.set(xlabel="px [m]", ylabel="py [m]", title="Parking 40 m from all data")
ax.margins(0.12)
ax.legend(frameon=False)
if not SMALL:
    figure.savefig(FIGURES / "park-a-unicycle.png", dpi=130)
