// One row: every version of it that undo still has, and which of them a reader sees.

import { list } from "./api.js";
import { h, pageLink, table } from "./dom.js";
import { seenRows } from "./seen.js";

export async function showRow(place, wanted) {
  const found = await list("row", [wanted]);
  const page = wanted.split(":").slice(0, 2).join(":");
  place.append(
    h("h2", {}, `Row ${wanted}`), h("p", {}, "on page ", pageLink(page)),
    table(found, "Versions, the newest first", { rowClass: (row) => (row._commit === "in flight" ? "open" : null) }),
    await seenRows(wanted));
}
