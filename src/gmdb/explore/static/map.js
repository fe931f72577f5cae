// The map: every page of the database a cell, or several to a cell where there are many.  Cells are asked for some at
// a time and painted as they come, and only those that are in sight: a map of any size opens at once.

import { ask, list } from "./api.js";
import { bad, free, good, heat, ink, nothing, objectColour } from "./colour.js";
import { announce, h } from "./dom.js";

const LEAST = 14, MOST = 44, ZOOM = 4, SLICE = 512; // sizes of a cell in pixels; cells that are asked for at a time
const MODES = {
  segment: "segment",
  fill: "how full",
  dead: "dead rows",
  age: "age",
  damage: "damage",
};
const LOOKS_INTO = new Set(["dead", "damage"]);
const kept = { first: 0, each: 0, mode: "segment" };

export async function showMap(place, wanted, about) {
  const map = new PageMap(place, about);
  if (wanted) map.wanted = (await ask("place", { page: wanted })).place;
  const observer = new ResizeObserver(() => map.resize());
  place.addEventListener("shown", () => { observer.observe(map.frame); map.canvas.focus({ preventScroll: true }); }, { once: true });
  const media = matchMedia("(prefers-color-scheme: dark)");
  const repaint = () => map.paint();
  media.addEventListener("change", repaint);
  return () => { observer.disconnect(); media.removeEventListener("change", repaint); map.stop(); };
}

class PageMap {
  constructor(place, about) {
    this.about = about;
    this.cells = [];
    this.focus = 0;
    this.canvas = h("canvas", { tabindex: "0", role: "application", "aria-roledescription": "map of pages", "aria-label":
      "All pages of the database. Arrow keys go from cell to cell, plus and minus zoom, Enter opens, Home shows all." });
    this.frame = h("div", { class: "frame" }, this.canvas);
    this.legend = h("ul", { class: "legend", "aria-label": "Legend" });
    this.where = h("p", { class: "where" });
    const modes = h("select", { id: "mode" }, Object.entries(MODES).map(([value, text]) => h("option", { value, selected: value === kept.mode }, text)));
    modes.addEventListener("change", () => { kept.mode = modes.value; this.load(); });
    const press = (text, title, act) => h("button", { type: "button", title, "aria-label": title, onclick: () => { act(); this.canvas.focus(); } }, text);
    place.append(
      h("div", { class: "tools" },
        h("label", { for: "mode" }, "Colour by"), modes,
        press("+", "Zoom in", () => this.zoomIn()), press("−", "Zoom out", () => this.zoomOut()),
        press("All", "Show all pages", () => this.showAll()), this.where),
      this.frame, this.legend);
    this.listen();
  }

  stop() { this.request?.abort(); }

  get capacity() { return this.columns * this.lines; }

  resize() {
    const { width, height } = this.frame.getBoundingClientRect();
    const room = Math.floor(Math.sqrt(width * height / Math.max(this.about.pages, 1))) - 1;
    this.cell = Math.max(LEAST, Math.min(MOST, room));
    const wereAll = kept.each === this.all;
    this.columns = Math.max(1, Math.floor(width / this.cell));
    this.lines = Math.max(1, Math.floor(height / this.cell));
    this.all = this.least();
    if (!kept.each || wereAll || kept.each > this.all) kept.each = this.all;
    if (this.wanted === undefined || this.wanted === null) this.load();
    else this.goTo(this.wanted, kept.each === this.all ? 1 : kept.each);
    delete this.wanted;
  }

  // Make the canvas as large as its cells.
  fit(count) {
    const ratio = devicePixelRatio || 1;
    const width = this.columns * this.cell, height = Math.ceil(count / this.columns) * this.cell;
    this.canvas.width = width * ratio;
    this.canvas.height = height * ratio;
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    Object.assign(this.canvas.dataset, { cell: this.cell, columns: this.columns, each: kept.each });
  }

  // So many pages to a cell that all of them are in sight: a power of 2.
  least() {
    let each = 1;
    while (each * this.capacity < this.about.pages) each *= 2;
    return each;
  }

  showAll() { kept.first = 0; kept.each = this.least(); this.focus = 0; this.load(); }

  zoomIn() {
    if (kept.each === 1) return;
    const page = kept.first + this.focus * kept.each;
    this.goTo(page, Math.max(1, kept.each / ZOOM));
  }

  zoomOut() {
    const page = kept.first + this.focus * kept.each;
    this.goTo(page, Math.min(this.least(), kept.each * ZOOM));
  }

  // Show a page in the middle, with so many pages to a cell.
  goTo(page, each) {
    const line = each * this.columns;
    const last = Math.max(0, Math.ceil(this.about.pages / line) - this.lines) * line;
    kept.each = each;
    kept.first = Math.max(0, Math.min(last, Math.floor(page / line - this.lines / 2) * line));
    this.focus = Math.floor((page - kept.first) / each);
    this.load();
  }

  async load() {
    this.request?.abort();
    this.request = new AbortController();
    const { signal } = this.request;
    this.cells = [];
    delete this.canvas.dataset.painted;
    const count = Math.min(this.capacity, Math.ceil((this.about.pages - kept.first) / kept.each));
    this.focus = Math.max(0, Math.min(this.focus, count - 1));
    this.fit(count);
    this.paint();
    try {
      for (let done = 0; done < count && !signal.aborted; done += SLICE) {
        const args = [kept.first + done * kept.each, kept.each, Math.min(SLICE, count - done), LOOKS_INTO.has(kept.mode) ? 1 : 0];
        const found = await list("cells", args, {}, signal);
        this.cells.push(...found.rows);
        this.paint();
      }
      this.canvas.dataset.painted = `${kept.mode} ${this.cells.length}`;
      this.say();
    } catch (error) {
      if (error.name !== "AbortError") announce(error.message);
    }
  }

  // What a cell is coloured by.
  colourOf(cell) {
    if (cell.kind === "empty") return nothing();
    if (kept.mode === "segment") return cell.kind === "free" ? free() : objectColour(cell.obj_id);
    if (kept.mode === "fill") return cell.fill === null ? nothing() : heat(cell.fill);
    if (kept.mode === "dead") return cell.rows ? heat(cell.dead_rows / cell.rows) : nothing();
    if (kept.mode === "damage") return cell.problem ? bad() : good();
    const [from, to] = this.ages;
    return heat(to === from ? 1 : (cell.ckpt_id - from) / (to - from));
  }

  get ages() {
    const found = this.cells.filter((cell) => cell.kind !== "empty").map((cell) => cell.ckpt_id);
    return [found.reduce((a, b) => Math.min(a, b), Infinity), found.reduce((a, b) => Math.max(a, b), 0)];
  }

  paint() {
    const brush = this.canvas.getContext("2d");
    const ratio = devicePixelRatio || 1;
    brush.setTransform(ratio, 0, 0, ratio, 0, 0);
    brush.clearRect(0, 0, this.canvas.width, this.canvas.height);
    const size = this.cell, third = Math.round(size / 3);
    this.cells.forEach((cell, n) => {
      const x = (n % this.columns) * size, y = Math.floor(n / this.columns) * size;
      brush.fillStyle = this.colourOf(cell);
      brush.fillRect(x + 1, y + 1, size - 2, size - 2);
      if (cell.kind === "segment_entry" || cell.kind === "map" || cell.kind === "device_head") {
        brush.fillStyle = ink();
        brush.fillRect(x + third, y + third, size - 2 * third, size - 2 * third);
      }
      if (cell.problem) { // not by colour alone
        brush.strokeStyle = ink();
        brush.beginPath();
        brush.moveTo(x + 3, y + 3); brush.lineTo(x + size - 3, y + size - 3);
        brush.moveTo(x + size - 3, y + 3); brush.lineTo(x + 3, y + size - 3);
        brush.stroke();
      }
    });
    if (this.cells[this.focus]) {
      brush.strokeStyle = ink();
      brush.lineWidth = 2;
      brush.strokeRect((this.focus % this.columns) * size + 1, Math.floor(this.focus / this.columns) * size + 1, size - 2, size - 2);
      brush.lineWidth = 1;
    }
    this.explain();
  }

  explain() {
    const size = kept.each.toLocaleString("en");
    const from = this.cells[0]?.page ?? "", to = this.cells.at(-1)?.page ?? "";
    this.where.textContent = `${from} – ${to} of ${this.about.pages.toLocaleString("en")} pages, ${size} to a cell`;
    const entry = (colour, text) => h("li", {}, swatch(colour), text);
    const scale = (from, to) => [entry(heat(0), from), entry(heat(0.5), ""), entry(heat(1), to)];
    let made;
    if (kept.mode === "segment") {
      const objects = new Map();
      for (const cell of this.cells) if (cell.kind !== "empty" && cell.kind !== "free" && !objects.has(cell.obj_id)) objects.set(cell.obj_id, cell);
      made = [...objects.values()].slice(0, 40).map((cell) => entry(this.colourOf(cell), cell.object ?? (cell.kind === "device_head" ? "device head" : cell.kind)));
      made.push(entry(free(), "free"), entry(nothing(), "never written"), h("li", {}, "■ within a cell: a head, entry or map page"));
    } else if (kept.mode === "fill") made = [...scale("empty", "full"), entry(nothing(), "has no entries")];
    else if (kept.mode === "dead") made = [...scale("no row is dead", "all are"), entry(nothing(), "has no rows")];
    else if (kept.mode === "damage") made = [entry(good(), "checksum and place are right"), entry(bad(), "damaged (a cross)")];
    else { const [from, to] = this.ages; made = scale(`checkpoint ${from}`, `checkpoint ${to}`); }
    const partly = this.cells.find((cell) => cell.read < cell.pages);
    if (partly) made.push(h("li", { class: "quiet" }, `sampled: ${partly.read} of the ${partly.pages.toLocaleString("en")} pages of a cell; zoom in for all`));
    this.legend.replaceChildren(...made);
  }

  say() {
    const cell = this.cells[this.focus];
    if (cell) announce(described(cell));
  }

  open() {
    const cell = this.cells[this.focus];
    if (!cell) return;
    if (kept.each === 1) location.hash = `page/${cell.page}`;
    else this.zoomIn();
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    return Math.floor((event.clientY - box.top) / this.cell) * this.columns + Math.floor((event.clientX - box.left) / this.cell);
  }

  move(by) {
    const wanted = this.focus + by;
    if (wanted >= 0 && wanted < this.cells.length) { this.focus = wanted; this.paint(); this.say(); }
    else if (wanted < 0 && kept.first > 0 || wanted >= this.cells.length && kept.first + this.cells.length * kept.each < this.about.pages) {
      this.goTo(kept.first + wanted * kept.each, kept.each);
    }
  }

  listen() {
    this.canvas.addEventListener("mousemove", (event) => {
      const cell = this.at(event);
      if (this.cells[cell] && cell !== this.focus) { this.focus = cell; this.paint(); this.say(); }
    });
    this.canvas.addEventListener("click", (event) => { this.focus = this.at(event); this.open(); });
    this.canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      if (event.deltaY < 0) this.zoomIn(); else this.zoomOut();
    }, { passive: false });
    this.canvas.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.columns, ArrowDown: this.columns, PageUp: -this.capacity, PageDown: this.capacity };
      const acts = { "+": () => this.zoomIn(), "=": () => this.zoomIn(), "-": () => this.zoomOut(), Home: () => this.showAll(), Enter: () => this.open(), " ": () => this.open() };
      if (event.key in moves) this.move(moves[event.key]);
      else if (event.key in acts) acts[event.key]();
      else return;
      event.preventDefault();
    });
  }
}

function swatch(colour) { // styles in attributes are not allowed here, so it is a picture
  const made = h("canvas", { class: "swatch", width: 24, height: 24, "aria-hidden": "true" });
  const brush = made.getContext("2d");
  brush.fillStyle = colour;
  brush.fillRect(0, 0, 24, 24);
  return made;
}

export function described(cell) {
  const of = cell.pages > 1 ? `pages ${cell.page} and ${(cell.pages - 1).toLocaleString("en")} more` : `page ${cell.page}`;
  const parts = [of, cell.object ? `${cell.kind} of ${cell.object}` : cell.kind];
  if (cell.fill !== null) parts.push(`${Math.round(cell.fill * 100)} % full`);
  if (cell.rows) parts.push(`${cell.dead_rows} of ${cell.rows} rows dead`);
  if (cell.kind !== "empty") parts.push(`checkpoint ${cell.ckpt_id}`);
  if (cell.problem) parts.push(`DAMAGED: ${cell.problem}`);
  return parts.join(", ");
}
