// Segments, and one of them with its map, its free lists and how full its pages are.

import { list } from "./api.js";
import { heat } from "./colour.js";
import { h, svg, table } from "./dom.js";

const isIndex = (type) => type === "btree" || type === "hash";

export async function showSegments(place) {
  const [segments, spaces, devices] = await Promise.all([list("segments"), list("spaces"), list("devices")]);
  const name = (value, row) => h("a", { href: `#${isIndex(row.type) ? "index" : "segment"}/${value ?? row.entry}` }, value ?? row.entry);
  place.append(h("h2", {}, "Segments"), table(segments, null, { cells: { object: name } }), table(spaces, "Tablespaces"), table(devices, "Devices"));
}

export async function showSegment(place, wanted) {
  const [maps, free, fill, segments] = await Promise.all([
    list("maps", [wanted]), list("freelists", [wanted]), list("fill", [wanted]), list("segments"),
  ]);
  const found = segments.rows.find((one) => one.object === wanted || one.entry === wanted);
  place.append(h("h2", {}, `Segment ${wanted}`));
  if (found) place.append(table({ ...segments, rows: [found], problems: [], notes: [] }, null));
  if (found && isIndex(found.type)) place.append(h("p", {}, h("a", { href: `#index/${wanted}` }, "The index as a tree")));
  place.append(
    histogram(fill),
    table(free, "Free lists: pages that have room, link by link"),
    table(maps, "Map: every data page of the segment", { rowClass: (row) => (row.problem ? "wrong" : null) }));
}

function histogram(fill) {
  const most = Math.max(1, ...fill.rows.map((row) => row.pages));
  const bars = fill.rows.map((row, n) => {
    const height = 100 * row.pages / most;
    return svg("g", {},
      svg("title", {}, `${row.from_percent} to ${row.to_percent} % full: ${row.pages} pages`),
      svg("rect", { x: n * 60 + 4, y: 110 - height, width: 52, height: Math.max(height, row.pages ? 1 : 0), fill: heat((row.from_percent + 5) / 100) }),
      text(n * 60 + 30, 124, `${row.from_percent}–${row.to_percent} %`), text(n * 60 + 30, 106 - height, row.pages ? row.pages.toLocaleString("en") : ""));
  });
  return h("section", {}, h("h3", {}, "How full its pages are"), svg("svg", { viewBox: "0 -12 600 142", class: "histogram", role: "img", "aria-label": fill.notes[0] ?? "" }, ...bars),
    h("p", { class: "quiet" }, fill.notes.join("; ")));
}

function text(x, y, said) {
  return svg("text", { x, y, "text-anchor": "middle" }, document.createTextNode(said));
}
