// Elements, and tables of listings.

export function h(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "class") made.className = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((one) => one !== null && one !== undefined));
  return made;
}

const svgSpace = "http://www.w3.org/2000/svg";
export function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS(svgSpace, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

export const pageLink = (page) => h("a", { href: `#page/${page}` }, page);
export const rowLink = (row) => h("a", { href: `#row/${row}` }, row);

const isPage = (text) => /^\d+:\d+$/.test(text);
const isRow = (text) => /^\d+:\d+:\d+$/.test(text);
const LINKED = new Set(["page", "entry", "map_page", "first", "last", "parent", "prev", "next", "row", "_rowid",
  "waits_for", "prior"]);
const WITHIN_A_PAGE = new Set(["_place", "undo_record"]); // a row that may have moved, or an undo record: PAGE:SLOT

export function shown(name, value) {
  if (value === null) return h("span", { class: "null", "aria-label": "NULL" }, "–");
  if (typeof value === "string" && LINKED.has(name)) {
    if (isPage(value)) return pageLink(value);
    if (isRow(value)) return rowLink(value);
  }
  if (WITHIN_A_PAGE.has(name) && isRow(value)) return h("a", { href: `#page/${value.replace(/:\d+$/, "")}` }, value);
  if (typeof value === "boolean") return value ? "yes" : "no";
  const text = typeof value === "string" ? value : String(value);
  return text.length > 60 ? h("span", { title: text }, `${text.slice(0, 59)}…`) : text;
}

// A listing as a table.  `cells` may show a column in another way; columns that are details are left out.
export function table(listing, caption, { cells = {}, hide = [], rowClass } = {}) {
  const columns = listing.columns.filter((column) => !column.detail && !hide.includes(column.name));
  const numeric = new Set(columns.filter((c) => listing.rows.some((r) => typeof r[c.name] === "number")).map((c) => c.name));
  const head = columns.map((c) => h("th", { scope: "col", title: c.meaning, class: numeric.has(c.name) ? "number" : null }, c.name.replace(/^_/, "")));
  const body = listing.rows.map((row) => h("tr", { class: rowClass?.(row) },
    columns.map((c) => h("td", { class: numeric.has(c.name) ? "number" : null }, cells[c.name]?.(row[c.name], row) ?? shown(c.name, row[c.name])))));
  return h("section", { class: "listing" },
    caption ? h("h3", {}, caption) : null,
    ...troubles(listing),
    listing.rows.length === 0 ? h("p", { class: "quiet" }, "Nothing.") :
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption ?? "table" },
        h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, body))),
    ...listing.notes.map((note) => h("p", { class: "quiet" }, note)));
}

export function troubles(listing) {
  if (!listing.problems.length) return [];
  const lines = listing.problems.slice(0, 20).map(([where, what]) => h("li", {}, h("b", {}, where), `: ${what}`));
  const more = listing.problems.length - lines.length;
  return [h("div", { class: "damage", role: "note" }, h("strong", {}, "Damaged"), h("ul", {}, lines), more > 0 ? `and ${more} more` : null)];
}

// Text for screen readers and for the line at the bottom of the window.
export function announce(text) {
  document.getElementById("told").textContent = text;
}
