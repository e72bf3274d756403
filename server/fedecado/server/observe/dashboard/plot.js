// Traces over a common x axis, with a cursor for pointer and keyboard.

import { axes, EDGE, lit, say, Scope, spot } from "./scope.js";
import { linear, logarithmic } from "./scale.js";
import { number } from "./words.js";

const CROWDED = 160; // points beyond which a trace is drawn faintly, with its means over it
const STRETCHES = 64;

export class Plot {
  /** `traces` are { name, colour, dashed }; `scale` is "linear" or "log". */
  constructor(parent, { title, about, xLabel, scale, traces }) {
    this.scope = new Scope(parent, { title, about, legend: traces });
    this.xLabel = xLabel;
    this.log = scale === "log";
    this.traces = traces;
    this.lines = [];
    this.cursor = null; // an x value
    const canvas = this.scope.canvas;
    canvas.tabIndex = 0;
    canvas.addEventListener("pointermove", (event) => this.pointAt(event.offsetX));
    canvas.addEventListener("pointerleave", () => this.moveTo(null));
    canvas.addEventListener("blur", () => this.moveTo(null));
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  /** Names may change with the data (a task's own metrics). */
  setTraces(traces) {
    if (traces.map((t) => t.name).join() === this.traces.map((t) => t.name).join()) return;
    this.traces = traces;
    this.scope.setLegend(traces);
  }

  /** `lines` has, per trace, a list of [x, y] in order of x; missing values are left out. */
  show(lines) {
    const usable = ([, y]) => y !== null && y !== undefined && (!this.log || y > 0);
    this.lines = lines.map((line) => line.filter(usable));
    this.xs = [...new Set(this.lines.flatMap((line) => line.map(([x]) => x)))].sort((a, b) => a - b);
    this.scope.describe(this.summary());
    this.scope.paint((context, box) => this.draw(context, box));
    if (this.cursor !== null) this.read();
  }

  summary() {
    const parts = this.traces.flatMap(({ name }, i) => {
      const line = this.lines[i];
      return line.length ? [`${name} is ${number(line[line.length - 1][1])}, from ${number(line[0][1])}`] : [];
    });
    return parts.join("; ") || "no data yet";
  }

  draw(context, box) {
    if (!this.xs.length) { say(context, box, "no data yet"); return; }
    let [low, high] = [Infinity, -Infinity];
    for (const line of this.lines) for (const [, y] of line) { low = Math.min(low, y); high = Math.max(high, y); }
    const x = { ...linear(this.xs[0], this.xs[this.xs.length - 1]), label: this.xLabel };
    const room = this.log ? (high / low) ** 0.04 : (high - low) * 0.04; // so that no trace runs along the edge
    const y = this.log ? logarithmic(low / room, high * room) : linear(low - room, high + room);
    const { px, py } = axes(context, box, x, y, number);
    this.px = px;
    this.traces.forEach(({ colour, dashed }, i) => {
      const line = this.lines[i];
      const ink = box.colour(colour);
      context.strokeStyle = context.fillStyle = ink;
      context.setLineDash(dashed ? [6, 4] : []);
      const trace = (points) => {
        context.beginPath();
        for (const [a, b] of points) context.lineTo(px(a), py(b));
        context.stroke();
      };
      if (line.length > CROWDED) {
        context.globalAlpha = 0.22;
        context.lineWidth = 1;
        trace(line);
        context.globalAlpha = 1;
      }
      context.lineWidth = 1.8;
      const shown = line.length > CROWDED ? means(line, this.log) : line;
      lit(context, box, ink, () => trace(shown));
      context.setLineDash([]);
      if (shown.length && !dashed) spot(context, box, ink, px(shown[shown.length - 1][0]), py(shown[shown.length - 1][1]));
    });
    context.setLineDash([]);
    if (this.cursor !== null) {
      context.strokeStyle = box.colour("--quiet");
      context.lineWidth = 1;
      context.strokeRect(px(this.cursor), EDGE.top, 0, box.height - EDGE.top - EDGE.bottom);
    }
  }

  pointAt(offset) {
    if (!this.px || !this.xs?.length) return;
    let nearest = this.xs[0];
    for (const x of this.xs) if (Math.abs(this.px(x) - offset) < Math.abs(this.px(nearest) - offset)) nearest = x;
    this.moveTo(nearest);
  }

  key(event) {
    if (!this.xs?.length) return;
    const last = this.xs.length - 1;
    const here = this.cursor === null ? last + 1 : this.xs.findIndex((x) => x >= this.cursor);
    const to = { ArrowLeft: here - 1, ArrowRight: here + 1, Home: 0, End: last }[event.key];
    if (event.key === "Escape") this.moveTo(null);
    if (to === undefined) return;
    event.preventDefault();
    this.moveTo(this.xs[Math.max(0, Math.min(last, to))]);
  }

  moveTo(x) {
    if (x === this.cursor) return;
    this.cursor = x;
    this.scope.repaint();
    this.read();
  }

  read() {
    const values = this.cursor === null ? [] : this.traces.flatMap(({ name }, i) => {
      const point = this.lines[i].find(([x]) => x === this.cursor);
      return point ? [`${name} ${number(point[1])}`] : [];
    });
    this.scope.readout.textContent = values.length ? `${this.xLabel} ${number(this.cursor)}: ${values.join(", ")}` : "";
  }
}

/** Means over stretches of a long line; of logarithms where the scale is logarithmic. */
function means(line, log) {
  const size = Math.ceil(line.length / STRETCHES);
  const result = [];
  for (let from = 0; from < line.length; from += size) {
    const part = line.slice(from, from + size);
    const mean = (pick) => part.reduce((sum, point) => sum + pick(point), 0) / part.length;
    result.push([mean(([x]) => x), log ? Math.exp(mean(([, y]) => Math.log(y))) : mean(([, y]) => y)]);
  }
  return result;
}
