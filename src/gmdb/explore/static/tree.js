// An index: a B-tree to unfold, down to the entries of a leaf; a hash index as the list of its pages.

import { list } from "./api.js";
import { h, pageLink, table, troubles } from "./dom.js";

export async function showIndex(place, wanted) {
  const segments = await list("segments");
  const found = segments.rows.find((one) => one.object === wanted || one.entry === wanted);
  place.append(h("h2", {}, `Index ${wanted}`), h("p", {}, h("a", { href: `#segment/${wanted}` }, "Its segment, with map and free lists")));
  if (found?.type === "hash") {
    place.append(table(await list("hash", [wanted]), "Pages of the hash index"));
    return;
  }
  const pages = await list("index", [wanted]);
  const children = new Map();
  for (const page of pages.rows) {
    if (!children.has(page.parent)) children.set(page.parent, []);
    children.get(page.parent).push(page);
  }
  const levels = new Map();
  for (const page of pages.rows) levels.set(page.level, (levels.get(page.level) ?? 0) + 1);
  const counts = [...levels].sort((a, b) => b[0] - a[0]).map(([level, count]) => `level ${level}: ${count.toLocaleString("en")}`).join(", ");
  const tops = (children.get(null) ?? []).filter((page) => page.level !== null);
  place.append(h("p", { class: "quiet" }, `Pages by level: ${counts}`), ...troubles(pages),
    h("div", { class: "tree" }, tops.map((page) => branch(page, children, wanted, true))));
}

function branch(page, children, index, isOpen) {
  const below = children.get(page.page) ?? [];
  const made = h("details", { open: isOpen },
    h("summary", {}, h("span", { class: "keys" }, `${page.first_key ?? "–∞"} … ${page.up_to ?? page.last_key ?? "∞"}`), " ",
      h("span", { class: "quiet" }, `page `), pageLink(page.page),
      h("span", { class: "quiet" }, `, level ${page.level}, ${page.entries} entries, ${Math.round((page.fill ?? 0) * 100)} % full`)));
  const unfold = async () => {
    if (!made.open || made.dataset.full) return;
    made.dataset.full = "1";
    if (below.length) made.append(h("div", { class: "below" }, below.map((one) => branch(one, children, index, false))));
    else made.append(table(await list("entries", [index], { pages: page.page }), null));
  };
  made.addEventListener("toggle", unfold);
  if (isOpen) unfold();
  return made;
}
