/* The predictor of offmap in JavaScript: the same numbers as Model.__call__ in Python.
 *
 * Matrices are arrays of rows (Float64Array). A specification comes from report/export.py.
 */
"use strict";

const offmapPredictor = (() => {
  const POLISH = 6;            // Newton–Schulz iterations, as in tangent.py
  const RANK_TOLERANCE = 1e-12; // as in projection.py
  const TINY = 1e-30;           // as in pattern.py

  // --- arrays

  function decode(packed) {
    const bytes = Uint8Array.from(atob(packed.data), (c) => c.charCodeAt(0));
    return nest(new Float64Array(bytes.buffer), packed.shape);
  }

  function nest(flat, shape) {
    if (shape.length === 0) return flat[0];
    if (shape.length === 1) return flat;
    const size = shape.slice(1).reduce((a, b) => a * b, 1);
    return Array.from({ length: shape[0] }, (_, i) =>
      nest(flat.subarray(i * size, (i + 1) * size), shape.slice(1)));
  }

  const dot = (a, b) => { let s = 0; for (let i = 0; i < a.length; i++) s += a[i] * b[i]; return s; };
  const times = (A, v) => Float64Array.from(A, (row) => dot(row, v));
  const transpose = (A) => Array.from(A[0], (_, j) => Float64Array.from(A, (row) => row[j]));
  const product = (A, B) => { const columns = transpose(B); return A.map((row) => times(columns, row)); };
  const exp = (v) => Float64Array.from(v, Math.exp);

  // --- kernels: (log parameters of one output) -> covariance of one point with many

  const kernels = {
    RBF(spec) {
      const rates = decode(spec.log_lengthscale).map((row) => row.map((v) => Math.exp(-v)));
      const levels = decode(spec.log_variance);
      return levels_of(levels, (j) => (a, b) => {
        let squared = 0;
        for (let i = 0; i < a.length; i++) { const d = (a[i] - b[i]) * rates[j][i]; squared += d * d; }
        return Math.exp(levels[j] - 0.5 * squared);
      });
    },
    Linear(spec) {
      const slopes = decode(spec.log_slope).map((row) => row.map((v) => Math.exp(2 * v)));
      const bias = exp(decode(spec.log_bias).map((v) => 2 * v));
      return levels_of(bias, (j) => (a, b) => {
        let sum = bias[j];
        for (let i = 0; i < a.length; i++) sum += a[i] * slopes[j][i] * b[i];
        return sum;
      });
    },
    Cosine(spec) {
      const rates = decode(spec.log_period).map((row) => row.map((v) => 2 * Math.PI * Math.exp(-v)));
      const levels = exp(decode(spec.log_variance));
      return levels_of(levels, (j) => (a, b) => {
        let value = levels[j];
        for (let i = 0; i < a.length; i++) value *= Math.cos((a[i] - b[i]) * rates[j][i]);
        return value;
      });
    },
    ControlAffine(spec) {
      const rates = decode(spec.log_lengthscale).map((row) => row.map((v) => Math.exp(-v)));
      const slopes = decode(spec.log_slope).map((row) => row.map((v) => Math.exp(2 * v)));
      const weights = decode(spec.log_weights).map((parts) => parts.map(exp));
      const controls = spec.controls;
      return levels_of(weights, (j) => {
        let others = null;
        const [smooth, straight, constant] = weights[j];
        return (a, b) => {
          others ??= Array.from(a, (_, i) => i)
            .filter((i) => spec.squares || !controls.includes(i));
          let squared = 0, line = 0;
          for (let k = 0; k < others.length; k++) {
            const i = others[k], d = (a[i] - b[i]) * rates[j][k];
            squared += d * d;
            line += a[i] * slopes[j][k] * b[i];
          }
          let s = smooth[0], l = straight[0], o = constant[0];
          for (let k = 0; k < controls.length; k++) {
            const uv = a[controls[k]] * b[controls[k]];
            s += smooth[k + 1] * uv; l += straight[k + 1] * uv; o += constant[k + 1] * uv;
          }
          return s * Math.exp(-0.5 * squared) + l * line + o;
        };
      });
    },
    Sum: (spec) => both(spec, (f, g) => (a, b) => f(a, b) + g(a, b)),
    Product: (spec) => both(spec, (f, g) => (a, b) => f(a, b) * g(a, b)),
  };

  const levels_of = (outputs, make) => Array.from(outputs, (_, j) => make(j));

  function both(spec, join) {
    const first = kernels[spec.first.kind](spec.first), second = kernels[spec.second.kind](spec.second);
    return first.map((f, j) => join(f, second[j]));
  }

  // --- Gaussian processes over reduced inputs

  function gps(spec) {
    const covariance = kernels[spec.kernel.kind](spec.kernel);
    const [xMean, xScale, yMean, yScale] =
      [spec.x_mean, spec.x_scale, spec.y_mean, spec.y_scale].map(decode);
    const points = decode(spec.x), alpha = decode(spec.alpha);
    return (x) => {
      const z = x.map((v, i) => (v - xMean[i]) / xScale[i]);
      return Float64Array.from(alpha, (weights, j) => {
        let sum = 0;
        for (let k = 0; k < points.length; k++) sum += covariance[j](z, points[k]) * weights[k];
        return sum * yScale[j] + yMean[j];
      });
    };
  }

  function reduction(spec) {
    const matrix = decode(spec.matrix);
    return (z) => times(matrix, Float64Array.from(Array.from(z).flatMap((v, i) =>
      spec.angles.includes(i) ? [Math.sin(v), Math.cos(v)] : [v])));
  }

  // --- the constraint Γ(x) = [G g]

  function gamma(spec) {
    if (spec.kind === "rows") {
      const rows = spec.rows.map((row) => [reduction(row.reduction), gps(row.gps)]);
      return (x) => rows.map(([reduce, mean]) => mean(reduce(x)));
    }
    const weights = decode(spec.weights);
    return (x) => {
      const angles = spec.trigonometric.map((i) => x[i]);
      const plain = spec.plain.map((i) => x[i]);
      const sums = spec.sums.map(([i, j, sign]) => x[i] + sign * x[j]);
      const trig = [angles, sums].flatMap((some) => [...some.map(Math.sin), ...some.map(Math.cos)]);
      const single = [1, ...plain, ...trig];
      const terms = [...single, ...spec.pairs.map((factors) => factors.reduce((product, i) => product * single[i], 1))];
      return weights.map((byTerm) => {
        const row = new Float64Array(byTerm[0].length);
        byTerm.forEach((w, k) => w.forEach((v, q) => { row[q] += v * terms[k]; }));
        return row;
      });
    };
  }

  // --- projection

  /** Rows scaled to unit G; a row whose G vanishes becomes zero. */
  function unit(rows) {
    const largest = Math.max(0, ...rows.flatMap((row) => Array.from(row, Math.abs)));
    return rows.map((row) => {
      const G = row.subarray(0, row.length - 1), squared = dot(G, G);
      const scale = squared > (RANK_TOLERANCE * largest) ** 2 ? 1 / Math.sqrt(squared) : 0;
      return row.map((v) => v * scale);
    });
  }

  /** Gᵀ (G Gᵀ)⁺ violation for unit rows G. */
  function correction(G, violation) {
    const solved = times(pseudoInverse(product(G, transpose(G))), violation);
    return Float64Array.from(G[0], (_, j) => G.reduce((sum, row, i) => sum + row[j] * solved[i], 0));
  }

  /** Of a symmetric matrix, by Jacobi rotations. */
  function pseudoInverse(S) {
    const n = S.length, A = S.map((row) => row.slice());
    const V = S.map((_, i) => Float64Array.from(S, (_, j) => (i === j ? 1 : 0)));
    for (let sweep = 0; sweep < 30; sweep++) {
      let off = 0;
      for (let p = 0; p < n; p++) for (let q = p + 1; q < n; q++) {
        off += A[p][q] ** 2;
        if (Math.abs(A[p][q]) < 1e-300) continue;
        const tau = (A[q][q] - A[p][p]) / (2 * A[p][q]);
        const t = (tau >= 0 ? 1 : -1) / (Math.abs(tau) + Math.sqrt(1 + tau * tau));
        const c = 1 / Math.sqrt(1 + t * t), s = t * c;
        for (let k = 0; k < n; k++) [A[k][p], A[k][q]] = [c * A[k][p] - s * A[k][q], s * A[k][p] + c * A[k][q]];
        for (let k = 0; k < n; k++) [A[p][k], A[q][k]] = [c * A[p][k] - s * A[q][k], s * A[p][k] + c * A[q][k]];
        for (let k = 0; k < n; k++) [V[k][p], V[k][q]] = [c * V[k][p] - s * V[k][q], s * V[k][p] + c * V[k][q]];
      }
      if (off < 1e-40) break;
    }
    const values = A.map((row, i) => row[i]);
    const cutoff = RANK_TOLERANCE * Math.max(...values.map(Math.abs));
    const inverse = values.map((v) => (Math.abs(v) > cutoff ? 1 / v : 0));
    return V.map((row) => Float64Array.from(V, (other) => row.reduce((sum, v, k) => sum + v * inverse[k] * other[k], 0)));
  }

  function project(velocity, rows) {
    if (rows.length === 0) return velocity;
    const scaled = unit(rows), n = velocity.length;
    const G = scaled.map((row) => row.subarray(0, n));
    const change = correction(G, times(G, velocity).map((v, i) => v + scaled[i][n]));
    return velocity.map((v, i) => v - change[i]);
  }

  /** The linear part of the projection applied to each column of a matrix. */
  function projectColumns(columns, rows) {
    const G = unit(rows).map((row) => row.subarray(0, row.length - 1));
    return columns.map((column) => {
      const change = correction(G, times(G, column));
      return column.map((v, i) => v - change[i]);
    });
  }

  // --- the tangent frame, carried from its origin to x; or axes that turn, where nothing is forbidden

  function tangentFrame(spec) {
    if (!spec.gamma) return (x) => [turned(identity(x.length), spec.turning, x), new Float64Array(x.length)];
    const constraint = gamma(spec.gamma), origin = decode(spec.origin);
    const start = transpose(decode(spec.basis)); // columns
    const pull = spec.pull && decode(spec.pull);
    const direction = spec.guide && gamma(spec.guide.direction);
    if (spec.pattern) return (x) => led(spec.pattern, constraint(x), pull);
    return (x) => {
      const away = x.map((v, i) => {
        const d = v - origin[i];
        return spec.periodic.includes(i) ? Math.atan2(Math.sin(d), Math.cos(d)) : d;
      });
      let columns = spec.turning ? turned(start, spec.turning, away) : start;
      for (let step = 1; step <= spec.steps; step++) {
        const share = step / spec.steps;
        const there = origin.map((v, i) => v + share * away[i]);
        columns = polish(projectColumns(columns, constraint(there)));
      }
      if (spec.measured.length) columns = columns.map((column) => ofUnitLength(column, spec.measured));
      if (direction) columns[spec.guide.column] = projectColumns([direction(x)[0]], constraint(x))[0];
      return [columns, project(pull ? Float64Array.from(pull) : new Float64Array(x.length), constraint(x))];
    };
  }

  function identity(n) {
    return Array.from({ length: n }, (_, i) => Float64Array.from({ length: n }, (_, j) => +(i === j)));
  }

  /** The closed form in which some states follow others: columns and drift. */
  function led(pattern, rows, pull) {
    const n = rows[0].length - 1, drift = new Float64Array(n);
    const left = (row) => pattern.told.reduce((sum, [, j]) => sum + row[j] * drift[j], row[n]);
    for (const [i, j] of pattern.told) drift[j] = -left(rows[i]) / rows[i][j];
    const direction = new Float64Array(n);
    if (pattern.rows.length) {
      const rest = pattern.rows.map((i) => Float64Array.from([...pattern.states.map((j) => rows[i][j]), left(rows[i])]));
      const nearest = project(Float64Array.from(pattern.states, (j) => (pull ? pull[j] : 0)), rest);
      const crossed = across(rest.map((row) => row.subarray(0, pattern.states.length)));
      const length = Math.sqrt(Math.max(dot(crossed, crossed), TINY));
      pattern.states.forEach((j, k) => {
        drift[j] = nearest[k];
        direction[j] = pattern.sign * crossed[k] / length;
      });
    }
    const columns = pattern.free.map((j) => (j < 0 ? direction : Float64Array.from(direction, (_, i) => +(i === j))));
    for (const [i, j] of pattern.follows) {
      const G = rows[i].subarray(0, n);
      for (const column of columns) column[j] = -dot(G, column) / G[j];
      drift[j] = -(dot(G, drift) + rows[i][n]) / G[j];
    }
    return [columns, drift];
  }

  /** The vector at a right angle to c rows of c + 1 numbers. */
  function across(rows) {
    const without = (row, i) => row.filter((_, k) => k !== i);
    const determinant = (M) => (M.length ? M[0].reduce((sum, v, i) =>
      sum + (i % 2 ? -v : v) * determinant(M.slice(1).map((row) => without(row, i))), 0) : 1);
    return Float64Array.from(rows[0], (_, i) => (i % 2 ? -1 : 1) * determinant(rows.map((row) => without(row, i))));
  }

  /** A column scaled so that its components at these states have unit length. */
  function ofUnitLength(column, states) {
    const length = Math.sqrt(states.reduce((sum, i) => sum + column[i] ** 2, 0));
    return column.map((v) => v / length);
  }

  /** Columns whose two components turn with an angle of the state. */
  function turned(columns, turning, away) {
    const sine = Math.sin(away[turning.angle]), cosine = Math.cos(away[turning.angle]);
    return columns.map((column) => {
      const copy = Float64Array.from(column);
      const a = column[turning.first], b = column[turning.second];
      copy[turning.first] = cosine * a - sine * b;
      copy[turning.second] = sine * a + cosine * b;
      return copy;
    });
  }

  /** Newton–Schulz: columns M (1.5 I − 0.5 MᵀM), repeated. */
  function polish(columns) {
    for (let k = 0; k < POLISH; k++) {
      const mix = columns.map((a, i) => columns.map((b, j) => (i === j ? 1.5 : 0) - 0.5 * dot(a, b)));
      columns = mix.map((weights) => columns[0].map((_, row) =>
        weights.reduce((sum, w, j) => sum + w * columns[j][row], 0)));
    }
    return columns;
  }

  // --- the whole

  /** {predict(x, u), gamma(x) or null} of one exported variant. */
  function build(spec) {
    const { dynamics } = spec;
    const reduce = reduction(dynamics.reduction), mean = gps(dynamics.gps);
    const frame = dynamics.frame && tangentFrame(dynamics.frame);
    const constraint = spec.gamma && gamma(spec.gamma);
    const predict = (x, u) => {
      const state = Float64Array.from(x);
      const output = mean(reduce([...x, ...u]));
      if (frame) {
        const [columns, drift] = frame(state);
        return drift.map((v, i) => columns.reduce((sum, column, j) => sum + column[i] * output[j], v));
      }
      return constraint ? project(output, constraint(state)) : output;
    };
    return { predict, gamma: constraint };
  }

  function step(f, x, u, dt, integrator) {
    const along = (k, h) => x.map((v, i) => v + h * k[i]);
    const k1 = f(x, u);
    if (integrator === "euler") return along(k1, dt);
    const k2 = f(along(k1, dt / 2), u), k3 = f(along(k2, dt / 2), u), k4 = f(along(k3, dt), u);
    return x.map((v, i) => v + (dt / 6) * (k1[i] + 2 * k2[i] + 2 * k3[i] + k4[i]));
  }

  /** States x₀ … x_T; cut short where they cease to be numbers. */
  function rollout(f, x0, controls, dt, integrator) {
    const states = [Float64Array.from(x0)];
    for (const u of controls) {
      const next = step(f, states[states.length - 1], u, dt, integrator);
      if (!next.every(Number.isFinite)) break;
      states.push(next);
    }
    return states;
  }

  return { build, rollout };
})();
