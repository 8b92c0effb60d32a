# %% [markdown]
"""A real nano-drone, thirteen states: is p' = v found where nobody tells?

Flights of a Crazyflie at 100 Hz: position p, quaternion q, velocity v, body rates w, four rotors.
It is, on every axis, with the tenth by which the logged velocity is too large sideways;
docs/joints.md says what falls short.
"""

# %%
import numpy as np
import polars as pl
from recorded import SMALL, config, recordings, smoothed

import offmap

states = ["px", "py", "pz", "qx", "qy", "qz", "qw", "vx", "vy", "vz", "wx", "wy", "wz"]
controls = ["m1", "m2", "m3", "m4"]
columns = ["x", "y", "z", *states[3:]]
flights = ["random1_20251017_run2_raw", "random2_20251017_run1_raw", "multisine_20251017_run2_raw"]

logs = []
for flight in flights[: 2 if SMALL else None]:
    table = pl.read_csv(recordings("nanodrone") / f"{flight}.csv.gz")
    time, x = table["t"].to_numpy(), table.select(columns).to_numpy()
    rotors = table.select([f"{name}_erpm" for name in controls]).to_numpy() / 1e5
    for run in smoothed(time, x, rotors, (states, controls), dt=0.05, bandwidth=0.08):
        # Pieces of 3 s, so that whole trajectories can be held out.
        for first in range(0, len(run.u) - 59, 60):
            piece = slice(first, first + 60)
            logs.append(
                offmap.Trajectory(run.x[piece], run.u[piece], dt=run.dt, xdot=run.xdot[piece])
            )
data = offmap.Dataset(logs, states, controls)

# %% [markdown]
# How well p' = v holds in the recordings themselves, as a share of the size of p'.

# %%
samples = data.samples()
apart = samples.xdot[:, :3] - samples.x[:, 7:10]
share = np.sqrt(np.mean(apart**2, axis=0) / np.mean(samples.xdot[:, :3] ** 2, axis=0))
print("p' − v, share of p':", ", ".join(f"{value:.3f}" for value in share))

# %%
model = offmap.fit(data, config=config(), progress=print)
print(model.summary())
