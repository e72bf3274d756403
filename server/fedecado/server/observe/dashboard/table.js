// The workers: a sortable table that draws only the rows in sight, so thousands cost what thirty do.

import { number, span } from "./words.js";

const ROW = 30; // pixels, as in style.css
const SPARE = 8; // rows drawn above and below what is in sight

const COLUMNS = [
  { key: "id", width: 13, name: "Worker", text: (w) => w.id },
  { key: "state", width: 13, name: "State", text: state },
  { key: "device", width: 9, name: "Device", text: (w) => w.device || "–" },
  { key: "samples", width: 7, name: "Samples", text: (w) => number(w.samples), number: true },
  { key: "rate", width: 6, name: "η", title: "learning rate", text: (w) => number(w.rate, 3), number: true },
  { key: "epochs", width: 6, name: "Epochs", text: (w) => number(w.epochs, 3), number: true },
  { key: "window", width: 6, name: "T_i", title: "window", text: (w) => number(w.window), number: true },
  { key: "flow", width: 8, name: "‖I_i‖", title: "strength of the flow", text: (w) => number(w.flow, 3), number: true },
  { key: "behind", width: 6, name: "Behind", title: "versions behind", text: (w) => number(w.behind), number: true },
  { key: "accepted", width: 7, name: "Updates", text: (w) => number(w.accepted), number: true },
  { key: "error_at", width: 19, name: "Last error", text: error },
];

function state(worker) {
  const done = worker.done === null ? "" : ` ${Math.round(100 * worker.done)} %`;
  return `${worker.state}${worker.state === "working" ? done : ""}${worker.role === "evaluator" ? " (evaluator)" : ""}`;
}

function error(worker, now) {
  const when = worker.error_at === null ? "" : ` (${span(Math.max(0, now - worker.error_at))} ago)`;
  return worker.error ? `${worker.error}${when}` : "";
}

export class WorkerTable {
  constructor(parent, { filter, shown }) {
    this.shown = shown;
    this.filter = filter;
    this.workers = [];
    this.view = [];
    this.order = { key: "id", sign: 1 };
    this.box = document.createElement("div");
    this.box.className = "rows";
    this.box.tabIndex = 0;
    this.box.setAttribute("role", "region");
    this.box.setAttribute("aria-label", "Workers, scrollable");
    const table = document.createElement("table");
    this.table = table;
    table.append(this.columns(), this.head());
    this.body = table.createTBody();
    this.above = this.spacer();
    this.below = this.spacer();
    this.body.append(this.above, this.below);
    this.pool = [];
    this.box.append(table);
    parent.append(this.box);
    this.onDrop = () => {};
    this.body.addEventListener("click", (event) => {
      if (event.target.className === "drop") this.onDrop(event.target.closest("tr").dataset.id);
    });
    this.box.addEventListener("scroll", () => this.schedule(), { passive: true });
    filter.addEventListener("input", () => this.arrange());
    new ResizeObserver(() => this.schedule()).observe(this.box);
  }

  /** Show these workers; `now` is the server's time in seconds. */
  show(workers, now) {
    this.workers = workers;
    this.now = now;
    this.arrange();
  }

  /** Sort and filter again. */
  arrange() {
    const { key, sign } = this.order;
    const wanted = this.filter.value.trim().toLowerCase();
    const fits = (w) => `${w.id} ${w.state} ${w.role} ${w.device} ${w.error}`.toLowerCase().includes(wanted);
    this.view = wanted ? this.workers.filter(fits) : this.workers.slice();
    this.view.sort((a, b) => sign * compare(a[key], b[key]) || compare(a.id, b.id));
    const all = this.workers.length;
    const text = this.view.length === all ? `${all} workers` : `${this.view.length} of ${all} workers`;
    if (this.shown.textContent !== text) this.shown.textContent = text;
    this.table.setAttribute("aria-rowcount", this.view.length + 1);
    this.schedule();
  }

  schedule() {
    this.due ??= requestAnimationFrame(() => { this.due = undefined; this.render(); });
  }

  /** Fill the few rows that are in sight, and make the spaces above and below as high as the rest. */
  render() {
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW) - SPARE);
    const count = Math.min(this.view.length - first, Math.ceil(this.box.clientHeight / ROW) + 2 * SPARE);
    while (this.pool.length < count) this.pool.push(this.row());
    this.pool.forEach((row, i) => {
      row.hidden = i >= count;
      if (i < count) this.fill(row, this.view[first + i], first + i);
    });
    this.above.firstChild.style.height = `${first * ROW}px`;
    this.below.firstChild.style.height = `${Math.max(0, this.view.length - first - count) * ROW}px`;
  }

  fill(row, worker, index) {
    row.setAttribute("aria-rowindex", index + 2);
    const drop = row.lastChild.firstChild;
    if (row.dataset.id !== worker.id) {
      row.dataset.id = worker.id;
      drop.setAttribute("aria-label", `Drop ${worker.id}`);
    }
    drop.disabled = worker.state === "offline" || worker.state === "away";
    COLUMNS.forEach(({ key, text }, i) => {
      const cell = row.cells[i];
      const words = text(worker, this.now);
      if (cell.textContent !== words) { cell.textContent = words; cell.title = words; }
      if (key === "state") cell.dataset.state = worker.state;
    });
  }

  row() {
    const row = document.createElement("tr");
    row.dataset.row = "";
    for (const column of COLUMNS) {
      const cell = document.createElement(column.key === "id" ? "th" : "td");
      if (column.key === "id") cell.scope = "row";
      cell.className = column.number ? "number" : column.key === "error_at" ? "error" : "";
      row.append(cell);
    }
    const drop = document.createElement("button");
    drop.type = "button";
    drop.className = "drop";
    drop.textContent = "Drop";
    const cell = document.createElement("td");
    cell.className = "act";
    cell.append(drop);
    row.append(cell);
    this.body.insertBefore(row, this.below);
    return row;
  }

  spacer() {
    const row = document.createElement("tr");
    row.className = "space";
    row.setAttribute("aria-hidden", "true");
    row.append(document.createElement("td"));
    row.firstChild.colSpan = COLUMNS.length + 1;
    return row;
  }

  columns() {
    const group = document.createElement("colgroup");
    for (const column of COLUMNS) {
      const col = document.createElement("col");
      col.style.width = `${column.width}%`;
      group.append(col);
    }
    const act = document.createElement("col");
    act.className = "act";
    group.append(act);
    return group;
  }

  head() {
    const head = document.createElement("thead");
    const row = head.insertRow();
    for (const column of COLUMNS) {
      const cell = document.createElement("th");
      const button = document.createElement("button");
      cell.scope = "col";
      cell.className = column.number ? "number" : "";
      button.type = "button";
      button.textContent = column.name;
      if (column.title) button.title = column.title;
      button.addEventListener("click", () => this.sortBy(column.key, row));
      cell.dataset.key = column.key;
      cell.append(button);
      row.append(cell);
    }
    const act = document.createElement("th");
    act.scope = "col";
    act.className = "act";
    act.textContent = "Action";
    row.append(act);
    row.cells[0].setAttribute("aria-sort", "ascending");
    return head;
  }

  sortBy(key, row) {
    this.order = { key, sign: this.order.key === key ? -this.order.sign : 1 };
    for (const cell of row.cells) cell.removeAttribute("aria-sort");
    const cell = [...row.cells].find((c) => c.dataset.key === key);
    cell.setAttribute("aria-sort", this.order.sign > 0 ? "ascending" : "descending");
    this.arrange();
  }
}

/** Numbers by size, words by alphabet with their numbers in order; what is missing comes last. */
function compare(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined || a === "") return 1;
  if (b === null || b === undefined || b === "") return -1;
  return typeof a === "string" ? collator.compare(a, b) : a - b;
}

const collator = new Intl.Collator("en", { numeric: true });
