// From values to pixels, linear or logarithmic, with round ticks.

const STEPS = [1, 2, 5, 10];

/** A linear scale over [low, high]. */
export function linear(low, high) {
  if (low === high) { low -= Math.abs(low) * 0.05 || 0.5; high += Math.abs(high) * 0.05 || 0.5; }
  const rough = (high - low) / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * STEPS.find((s) => s * power >= rough * 0.999);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i += 1) ticks.push(i * step);
  return { at: (value) => (value - low) / (high - low), ticks };
}

/** A logarithmic scale over [low, high], both positive; ticks at decades, closer where these are few. */
export function logarithmic(low, high) {
  if (high / low < 1.2) { low /= 1.1; high *= 1.1; }
  const [a, b] = [Math.log10(low), Math.log10(high)];
  const every = Math.max(1, Math.ceil((b - a) / 6));
  const marks = b - a < 2 ? STEPS.slice(0, 3) : [1];
  const ticks = [];
  for (let power = Math.floor(a); power <= b; power += 1) {
    if (power % every) continue;
    for (const mark of marks) {
      const tick = mark * 10 ** power;
      if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick);
    }
  }
  const at = (value) => (Math.log10(value) - a) / (b - a);
  return { at, ticks: ticks.length > 1 ? ticks : linear(low, high).ticks };
}
