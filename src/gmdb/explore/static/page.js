// A page: its fields with their meanings beside its bytes, either lighting up the other; slots with arrows to their
// entries; and its rows, as the chosen reader sees them.

import { list } from "./api.js";
import { announce, h, pageLink, svg, table, troubles } from "./dom.js";
import { seenRows } from "./seen.js";

const GROUPS = 6, STEPS = 200;

export async function showPage(place, wanted) {
  const [regions, image, pages] = await Promise.all([
    list("regions", [wanted]), list("image", [wanted]), list("pages", [], { pages: wanted }),
  ]);
  const page = pages.rows[0];
  const bytes = Uint8Array.from(image.rows[0].bytes.match(/../g) ?? [], (two) => parseInt(two, 16));
  const name = image.rows[0].page;
  const [device, number] = name.split(":").map(Number);
  const go = (to, text, title) => (to < 0 ? null : h("a", { href: `#page/${device}:${to}`, title, "aria-label": title }, text));
  place.append(
    h("h2", {}, `Page ${name}: ${page.page_type === "data" ? page.seg_type : page.page_type} page`,
      page.object ? h("span", {}, " of ", h("a", { href: `#segment/${page.object}` }, page.object)) : "",
      h("span", { class: "turn" }, go(number - 1, "‹", "The page before"), " ", go(number + 1, "›", "The next page"), " ",
        h("a", { href: `#map/${name}` }, "on the map"))),
    h("p", { class: "quiet" }, facts(page, bytes.length)), ...troubles(regions));
  const view = new Anatomy(regions.rows, bytes);
  place.append(view.strip, view.readout, h("div", { class: "anatomy" }, view.fields, view.dump));
  if (page.live_rows !== null) place.append(await seenRows(name));
  place.append(h("p", {}, h("a", { href: `#compare/${name}` }, "What two moments differ in on this page")), history(name));
}

function facts(page, size) {
  const said = [`${size.toLocaleString("en")} bytes`, `${page.chg_num} changes`, `checkpoint ${page.ckpt_id}`];
  if (page.fill !== null) said.push(`${Math.round(page.fill * 100)} % full`);
  if (page.live_rows !== null) said.push(`${page.live_rows} live rows, ${page.dead_rows} dead, ${page.locked_rows} locked`);
  if (page.free_list !== null) said.push(`on free list ${page.free_list}`);
  said.push(page.crc_ok ? "checksum right" : "CHECKSUM WRONG");
  return said.join(", ");
}

// What the log did to the page; that takes a while for one that was changed often, so it is asked for when it is wanted.
function history(name) {
  const made = h("details", { class: "history" }, h("summary", {}, "What the log did to it"));
  made.addEventListener("toggle", async () => {
    if (!made.open || made.dataset.full) return;
    made.dataset.full = "1";
    const wait = h("p", { class: "quiet" }, "Reading…");
    made.append(wait);
    try {
      const found = await list("history", [name, STEPS]);
      const newest = { ...found, rows: found.rows.reverse() };
      wait.replaceWith(table(newest, newest.rows.length < STEPS ? "All steps, the newest first" : `The newest ${STEPS} steps`));
    } catch (error) {
      wait.replaceWith(h("p", { class: "damage" }, error.message));
    }
  });
  return made;
}

// rows[3].size → rows[3]; head.latch.mutex → head
const groupOf = (name) => name.replace(/^(\w+(\[\d+\])?).*$/, "$1");
const entryOf = (name) => /^(rows|entries|records)\[(\d+)\]/.exec(name);
const slotOf = (name) => /^slots\[(\d+)\]$/.exec(name);

class Anatomy {
  constructor(regions, bytes) {
    this.regions = regions;
    this.bytes = bytes;
    this.owner = new Int32Array(bytes.length).fill(-1);
    this.paints = new Uint8Array(regions.length);
    let group = "", paint = 0;
    regions.forEach((region, n) => {
      this.owner.fill(n, region.offset, region.offset + region.length);
      if (groupOf(region.name) !== group) { group = groupOf(region.name); paint = (paint + 1) % GROUPS; }
      this.paints[n] = region.name === "free" || region.name === "unused" ? 9 : paint;
    });
    this.at = 0;
    this.readout = h("p", { class: "readout", "aria-live": "polite" }, "Point at a field or a byte, or use the arrow keys in either.");
    this.fields = this.makeFields();
    this.dump = this.makeDump();
    this.strip = this.makeStrip();
  }

  makeFields() {
    this.lines = this.regions.map((region, n) => h("tr", { id: `field-${n}`, role: "option", "data-region": n, class: `paint${this.paints[n]}${region.problem ? " wrong" : ""}` },
      h("td", { class: "number" }, region.offset), h("td", {}, h("code", {}, region.name)),
      h("td", { class: "value" }, valueOf(region)), h("td", { class: "meaning" }, region.problem ?? region.meaning)));
    const body = h("tbody", {}, this.lines);
    const made = h("div", { class: "fields", tabindex: "0", role: "listbox", "aria-label": "Fields of the page" },
      h("table", { role: "presentation" }, h("thead", { "aria-hidden": "true" }, h("tr", {}, ["at", "field", "value", "meaning"].map((name) => h("th", {}, name)))), body));
    body.addEventListener("mouseover", (event) => this.light(regionAt(event), "fields"));
    body.addEventListener("click", (event) => this.light(regionAt(event), "fields", true));
    made.addEventListener("keydown", (event) => this.step(event, { ArrowDown: 1, ArrowUp: -1 }, "fields"));
    return made;
  }

  makeDump() {
    this.spans = new Array(this.bytes.length);
    const lines = [];
    for (let start = 0; start < this.bytes.length; start += 16) {
      const cells = [];
      let text = "";
      for (let at = start; at < Math.min(start + 16, this.bytes.length); at++) {
        const byte = this.bytes[at];
        const span = document.createElement("span");
        span.textContent = byte.toString(16).padStart(2, "0");
        span.className = `paint${this.paints[this.owner[at]] ?? 9}`;
        span.dataset.at = at;
        this.spans[at] = span;
        cells.push(span);
        text += byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "·";
      }
      lines.push(h("div", { class: "line" }, h("i", {}, String(start).padStart(5, " ")), cells, h("b", {}, text)));
    }
    const made = h("div", { class: "hex", tabindex: "0", role: "group", "aria-label": "Bytes of the page in hexadecimal. Arrow keys go from field to field." }, lines);
    const lit = (event, stays) => { const at = event.target.dataset?.at; if (at !== undefined) this.light(this.owner[at], "hex", stays); };
    made.addEventListener("mouseover", (event) => lit(event));
    made.addEventListener("click", (event) => lit(event, true));
    made.addEventListener("keydown", (event) => this.step(event, { ArrowDown: 1, ArrowUp: -1, ArrowRight: 1, ArrowLeft: -1 }, "hex"));
    return made;
  }

  // The page from its first to its last byte, and an arc from each slot to the entry that it leads to.
  makeStrip() {
    const width = 1000, height = 90, scale = width / this.bytes.length;
    const made = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "strip", role: "img", preserveAspectRatio: "none", "aria-label": "The page from its first to its last byte; arcs lead from slots to their entries" });
    this.blocks = [];
    let from = 0;
    for (let n = 1; n <= this.regions.length; n++) {
      if (n < this.regions.length && groupOf(this.regions[n].name) === groupOf(this.regions[from].name)) continue;
      const begin = this.regions[from].offset, end = this.regions[n - 1].offset + this.regions[n - 1].length;
      const block = svg("rect", { x: begin * scale, y: 60, width: Math.max((end - begin) * scale, 0.5), height: 24, class: `paint${this.paints[from]}`, "data-region": from });
      this.blocks.push(block);
      made.append(block);
      from = n;
    }
    this.arcs = new Map();
    const entries = new Map();
    this.regions.forEach((region) => { const found = entryOf(region.name); if (found && !entries.has(found[2])) entries.set(found[2], region); });
    this.regions.forEach((region, n) => {
      const slot = slotOf(region.name), target = slot && entries.get(slot[1]);
      if (!target) return;
      const a = (region.offset + 1) * scale, b = target.offset * scale, top = Math.max(4, 56 - Math.abs(a - b) / 16);
      const arc = svg("path", { d: `M${a} 60 C${a} ${top} ${b} ${top} ${b} 60`, class: "arc", "data-region": n });
      this.arcs.set(slot[1], arc);
      made.append(arc);
    });
    made.addEventListener("mouseover", (event) => { const n = event.target.dataset?.region; if (n !== undefined) this.light(Number(n), "strip"); });
    return made;
  }

  step(event, moves, from) {
    const by = moves[event.key] ?? { Home: -this.at, End: this.regions.length - 1 - this.at, PageDown: 20, PageUp: -20 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    this.light(Math.max(0, Math.min(this.regions.length - 1, this.at + by)), from, true);
  }

  // Highlight a region in all three drawings, and scroll the other two to it.
  light(n, from, stays = false) {
    if (n === undefined || n < 0 || Number.isNaN(n)) return;
    for (const one of this.lit ?? []) one.classList.remove("lit", "target");
    this.at = n;
    const region = this.regions[n];
    const lit = [this.lines[n], ...this.spans.slice(region.offset, region.offset + region.length)];
    const slot = slotOf(region.name) ?? entryOf(region.name);
    const arc = slot && this.arcs.get(slot.at(-1));
    if (arc) lit.push(arc);
    for (const one of lit) one.classList.add("lit");
    const isSlot = slotOf(region.name);
    const targets = isSlot ? this.regions.flatMap((other, m) => (entryOf(other.name)?.[2] === isSlot[1] ? [m] : [])) : [];
    for (const m of targets) {
      const other = this.regions[m];
      for (const span of this.spans.slice(other.offset, other.offset + other.length)) { span.classList.add("target"); lit.push(span); }
    }
    this.lit = lit;
    this.fields.setAttribute("aria-activedescendant", `field-${n}`);
    if (from !== "fields" || stays) near(this.fields, this.lines[n]);
    if (from !== "hex" || stays) near(this.dump, this.spans[region.offset]?.parentElement);
    const value = region.value === null ? "" : ` = ${region.value}`;
    this.readout.replaceChildren(h("code", {}, region.name), `${value}: ${region.meaning}`, h("span", { class: "quiet" }, `  ${region.length} bytes at ${region.offset}`),
      region.problem ? h("strong", { class: "wrong" }, ` ${region.problem}`) : "");
    announce(`${region.name}${value}`);
  }
}

const regionAt = (event) => Number(event.target.closest("tr")?.dataset.region ?? -1);

function near(box, element) {
  if (!element) return;
  const outer = box.getBoundingClientRect(), inner = element.getBoundingClientRect();
  if (inner.top < outer.top + 30 || inner.bottom > outer.bottom) box.scrollTop += inner.top - outer.top - outer.height / 2;
}

function valueOf(region) {
  const number = Number(region.value);
  if (/page(_id)?$|\.next$|\.prior$|\.prev$/.test(region.name) && Number.isInteger(number) && region.value !== null) {
    if (number === 0xffffffff) return "none";
    return pageLink(`${Math.floor(number / 4194304)}:${number % 4194304}`);
  }
  const text = region.value ?? "";
  return text.length > 40 ? h("span", { title: text }, `${text.slice(0, 39)}…`) : text;
}
