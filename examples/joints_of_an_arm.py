# %% [markdown]
"""Six joints of a real arm: that q' is the joint velocity is found, not told.

70 runs of a Schunk arm under motor torques, 250 Hz: angles q, velocities w, twelve states in all.
"""

# %%
import numpy as np
import polars as pl
from recorded import SMALL, config, recordings, smoothed

import offmap

JOINTS = range(1, 7)
states = [f"q{i}" for i in JOINTS] + [f"w{i}" for i in JOINTS]
controls = [f"tau{i}" for i in JOINTS]
columns = [f"q{i}_rad" for i in JOINTS] + [f"qd{i}_radps" for i in JOINTS]

logs = []
table = pl.read_csv(recordings("schunk_arm") / "schunk_runs_001_070.csv.gz")
for run in table.partition_by("traj")[:: 6 if SMALL else 1]:
    time, x = run["t_s"].to_numpy(), run.select(columns).to_numpy()
    u = run.select(controls).to_numpy()
    logs += smoothed(time, x, u, (states, controls), dt=0.02, bandwidth=0.03)
data = offmap.Dataset(logs, states, controls, angles=states[:6])

# %% [markdown]
# How well q' = w holds in the recordings themselves, as a share of the size of q'.

# %%
samples = data.samples()
apart = samples.xdot[:, :6] - samples.x[:, 6:]
share = np.sqrt(np.mean(apart**2, axis=0) / np.mean(samples.xdot[:, :6] ** 2, axis=0))
print("q' − w, share of q':", ", ".join(f"{value:.3f}" for value in share))

# %%
model = offmap.fit(data, config=config(), progress=print)
print(model.summary())
