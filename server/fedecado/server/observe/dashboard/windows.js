// The latest round's windows on their common time: how long each client went, and its trajectory Gamma.
//
//   Gamma_i(tau) = x_i_start + min(tau / T_i, rho) (x_i_end - x_i_start),  0 <= tau <= T
//
// Solid is what the client really did, dashed what is extrapolated, dotted where rho holds it.

import { axes, EDGE, lit, say, Scope, spot } from "./scope.js";
import { linear } from "./scale.js";
import { number } from "./words.js";

const FRESH = "--trace-1";
const STALE = "--trace-2";
const LEGEND = [
  { name: "trained", colour: FRESH },
  { name: "extrapolated", colour: FRESH, dashed: true },
  { name: "older start", colour: STALE },
];

export class Windows {
  constructor(parent) {
    this.lanes = new Scope(parent, {
      title: "Windows T_i",
      about: "how far each client went in simulated time",
      legend: LEGEND,
    });
    this.fan = new Scope(parent, {
      title: "Trajectories Γ",
      about: "the windows on their common time; 1 is a client's end",
      legend: LEGEND,
    });
  }

  /** `windows` is null where only results are known; `circuit` is false for algorithms without Gamma. */
  show(windows, rho, circuit, reason) {
    if (!windows) {
      for (const scope of [this.lanes, this.fan]) {
        scope.describe(reason);
        scope.paint((context, box) => say(context, box, reason));
      }
      return;
    }
    const clients = windows.clients.map(([id, T, behind, flow]) => ({ id, T, behind, flow })).sort((a, b) => b.T - a.T);
    const reach = windows.reach ?? rho; // of this round, where that is known
    const bound = reach ?? Infinity;
    const [longest, shortest] = [clients[0].T, clients[clients.length - 1].T];
    const text = `round ${windows.round}, ${clients.length} clients, windows from ${number(shortest)} to ${number(longest)}`;
    this.lanes.describe(text);
    this.lanes.paint((context, box) => drawLanes(context, box, clients, windows.T, circuit ? bound : 1));
    this.fan.describe(circuit ? `${text}, extrapolated up to ${number(reach ?? null)} times` : "not part of this algorithm");
    this.fan.paint((context, box) => {
      if (circuit) drawFan(context, box, clients, windows.T, bound);
      else say(context, box, "this algorithm does not synchronise trajectories");
    });
  }
}

function drawLanes(context, box, clients, T, rho) {
  const x = { ...linear(0, T), label: "simulated time τ" };
  const { px } = axes(context, box, x, { at: (v) => v, ticks: [] }, number);
  const room = box.height - EDGE.top - EDGE.bottom;
  const step = Math.min(28, room / clients.length);
  context.textAlign = "right";
  context.textBaseline = "middle";
  clients.forEach(({ id, T: own, behind }, i) => {
    const y = EDGE.top + (i + 0.5) * step;
    context.strokeStyle = box.colour(behind ? STALE : FRESH);
    context.lineCap = "butt"; // a round end would lengthen the window
    context.lineWidth = Math.max(1, Math.min(9, step * 0.55));
    segment(context, [px(0), y], [px(own), y]);
    const end = Math.min(rho * own, T);
    if (end > own) {
      context.lineWidth = Math.max(1, Math.min(3, step * 0.2));
      segment(context, [px(own), y], [px(end), y], [4, 3]);
    }
    if (step >= 11) {
      context.fillStyle = box.colour("--quiet");
      context.fillText(id.length > 9 ? `…${id.slice(-8)}` : id, EDGE.left - 4, y);
    }
  });
}

function drawFan(context, box, clients, T, rho) {
  const top = Math.max(1, ...clients.map(({ T: own }) => Math.min(rho, T / own)));
  const x = { ...linear(0, T), label: "simulated time τ" };
  const { px, py } = axes(context, box, x, linear(0, top * 1.05), number);
  context.globalAlpha = Math.max(0.15, Math.min(1, 12 / clients.length));
  const few = clients.length <= 60 ? box : { glow: 0 }; // light around a thousand lines would hide them
  for (const { T: own, behind } of clients) {
    const ink = box.colour(behind ? STALE : FRESH);
    context.strokeStyle = context.fillStyle = ink;
    context.lineWidth = 1.6;
    const end = Math.min(rho * own, T);
    const height = end / own;
    lit(context, few, ink, () => segment(context, [px(0), py(0)], [px(own), py(1)]));
    if (end > own) segment(context, [px(own), py(1)], [px(end), py(height)], [5, 4]);
    if (end < T) segment(context, [px(end), py(height)], [px(T), py(height)], [1, 4]);
    spot(context, few, ink, px(own), py(1));
  }
  context.globalAlpha = 1;
}

function segment(context, from, to, dash = []) {
  context.setLineDash(dash);
  context.beginPath();
  context.moveTo(...from);
  context.lineTo(...to);
  context.stroke();
  context.setLineDash([]);
}
