# %% [markdown]
"""The same figure eight by optimisation.

`model.to_casadi()` is a plain casadi.Function, so CasADi's Opti can plan through it with exact
derivatives. Needs the extra `casadi`.
"""

# %%
import casadi as ca
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from tasks import FIGURES, HOVER, SMALL, drive, eight, figure_eight, learn, quadrotor_logs

data = quadrotor_logs()
model = learn(data)
f = model.to_casadi()
task = figure_eight()
horizon = 5 if SMALL else 20

# %% [markdown]
# Multiple shooting with Euler steps; the task's cost in CasADi's terms.

# %%
n, m = data.n, data.m
opti = ca.Opti()
x, u = opti.variable(n, horizon + 1), opti.variable(m, horizon)
start, target = opti.parameter(n), opti.parameter(4, horizon)
opti.subject_to(x[:, 0] == start)
total = 0
for k in range(horizon):
    opti.subject_to(x[:, k + 1] == x[:, k] + task.dt * f(x[:, k], u[:, k]))
    opti.subject_to(opti.bounded(task.low[0], u[:, k], task.high[0]))
    after = x[:, k + 1]
    total += 10 * ca.sumsqr(after[:2] - target[:2, k]) + ca.sumsqr(after[3:5] - target[2:, k])
    total += 0.3 * after[2] ** 2 + 0.02 * after[5] ** 2
opti.minimize(total)
quiet = {"ipopt.print_level": 0, "ipopt.sb": "yes", "print_time": False}
opti.solver("ipopt", quiet | {"ipopt.max_iter": 100})
opti.set_initial(u, HOVER)


def act(state: np.ndarray, k: int) -> np.ndarray:
    """The first control of a plan, which starts from the plan before."""
    opti.set_value(start, state)
    opti.set_value(target, task.targets[k : k + horizon].T)
    if k == 0:
        opti.set_initial(x, np.tile(state[:, None], (1, horizon + 1)))
    solution = opti.solve()
    opti.set_initial(solution.value_variables())
    return np.asarray(solution.value(u[:, 0]))


# %%
run = drive(task, act)
print(f"Opti       cost {run.cost:8.1f}   median solve {1e3 * run.solve:.1f} ms")

# %%
figure, ax = plt.subplots(figsize=(6.5, 3.6), layout="constrained")
path, _ = eight(np.linspace(0, 6, 200))
ax.plot(*path.T, color="k", lw=0.8, ls=":", label="wanted")
ax.plot(*run.states[:, :2].T, color="C0", label=f"Opti through the learned model: {run.cost:.0f}")
ax.set(xlabel="px [m]", ylabel="pz [m]", aspect="equal", title="A figure eight 5 m from all data")
ax.margins(0.1, 0.25)
ax.legend(frameon=False, loc="lower center", ncols=2)
if not SMALL:
    figure.savefig(FIGURES / "opti-quadrotor.png", dpi=130)
