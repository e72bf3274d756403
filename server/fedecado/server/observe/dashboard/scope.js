// One screen of the oscilloscope: a figure with a caption, a legend, a canvas and a line of read-out.

const theme = matchMedia("(prefers-color-scheme: dark)");

export class Scope {
  /** `legend` is a list of { name, colour (a CSS variable), dashed }. */
  constructor(parent, { title, about, legend }) {
    const figure = document.createElement("figure");
    const caption = document.createElement("figcaption");
    const heading = document.createElement("h3");
    const words = document.createElement("p");
    heading.textContent = title;
    words.textContent = about;
    caption.append(heading, words);
    this.title = title;
    this.canvas = document.createElement("canvas");
    this.canvas.setAttribute("role", "img");
    this.readout = document.createElement("output");
    this.list = document.createElement("ul");
    const screen = document.createElement("div");
    screen.className = "screen";
    screen.append(this.canvas, this.readout);
    figure.append(caption, this.list, screen);
    parent.append(figure);
    this.setLegend(legend);
    this.describe("no data yet");
    new ResizeObserver(() => this.repaint()).observe(this.canvas);
    theme.addEventListener("change", () => this.repaint());
  }

  setLegend(legend) {
    this.list.replaceChildren(...legend.map(({ name, colour, dashed }) => {
      const item = document.createElement("li");
      const swatch = document.createElement("span");
      swatch.className = "swatch";
      swatch.style.borderColor = `var(${colour})`;
      if (dashed) swatch.dataset.dashed = "";
      item.append(swatch, name);
      return item;
    }));
  }

  /** What the picture shows, for those who do not see it. */
  describe(text) {
    const label = `${this.title}: ${text}`;
    if (this.canvas.getAttribute("aria-label") !== label) this.canvas.setAttribute("aria-label", label);
  }

  /** Draw now, and again whenever size or theme change. */
  paint(draw) {
    this.draw = draw;
    this.repaint();
  }

  repaint() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!this.draw || !width || !height) return;
    const ratio = devicePixelRatio || 1;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    const context = this.canvas.getContext("2d");
    context.scale(ratio, ratio);
    context.lineJoin = context.lineCap = "round";
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    context.font = `11px ${getComputedStyle(document.body).fontFamily}`;
    this.draw(context, { width, height, colour, glow: Number(colour("--glow")) });
  }
}

export const EDGE = { left: 56, right: 18, top: 14, bottom: 34 };

/** Graticule, tick labels and axis names; returns functions from values to pixels. */
export function axes(context, { width, height, colour }, x, y, format) {
  const { left, right, top, bottom } = EDGE;
  const px = (value) => left + x.at(value) * (width - left - right);
  const py = (value) => height - bottom - y.at(value) * (height - top - bottom);
  context.strokeStyle = colour("--grid");
  context.fillStyle = colour("--quiet");
  context.lineWidth = 1;
  context.strokeRect(left + 0.5, top + 0.5, width - left - right - 1, height - top - bottom - 1);
  context.beginPath();
  context.setLineDash([1, 4]);
  context.textAlign = "center";
  context.textBaseline = "top";
  for (const tick of x.ticks) {
    context.moveTo(Math.round(px(tick)) + 0.5, top);
    context.lineTo(Math.round(px(tick)) + 0.5, height - bottom);
    context.fillText(format(tick), px(tick), height - bottom + 5);
  }
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const tick of y.ticks) {
    context.moveTo(left, Math.round(py(tick)) + 0.5);
    context.lineTo(width - right, Math.round(py(tick)) + 0.5);
    context.fillText(format(tick), left - 7, py(tick));
  }
  context.stroke();
  context.setLineDash([]);
  context.textBaseline = "alphabetic";
  context.fillText(x.label ?? "", width - right, height - 4);
  return { px, py };
}

/** Draw with the light of a screen around the lines, where the theme has it. */
export function lit(context, { glow }, colour, draw) {
  context.shadowColor = colour;
  context.shadowBlur = glow;
  draw();
  context.shadowBlur = 0;
}

/** Where a trace stands now. */
export function spot(context, box, colour, x, y) {
  lit(context, { glow: box.glow * 1.5 }, colour, () => {
    context.beginPath();
    context.arc(x, y, 3, 0, 2 * Math.PI);
    context.fill();
  });
}

/** A sentence where a picture would be. */
export function say(context, { width, height, colour }, text) {
  context.fillStyle = colour("--quiet");
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillText(text, width / 2, height / 2);
}
