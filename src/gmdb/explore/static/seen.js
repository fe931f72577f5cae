// The rows of a page, or one row, as a reader sees them.  The reader is chosen from the transactions there are.

import { list } from "./api.js";
import { h, rowLink, table } from "./dom.js";

let reader = "0/";

export async function seenRows(where) {
  const held = h("div", {});
  const choice = h("select", { id: "reader" });
  const offered = [["0/", "a new reader"]];
  try {
    const found = await list("transactions");
    const commits = found.rows.filter((one) => one.scn !== null).map((one) => Number(one.scn)).sort((a, b) => a - b);
    for (const one of found.rows) if (one.scn === null) offered.push([`${one.transaction}/`, `transaction ${one.transaction}, ${one.state}`]);
    for (const scn of commits) offered.push([`0/${scn - 1}`, `a snapshot before commit ${scn}`]);
  } catch { /* the choice is smaller */ }
  choice.append(...offered.map(([value, text]) => h("option", { value, selected: value === reader }, text)));
  const show = async () => {
    reader = choice.value;
    const [transaction, scn] = reader.split("/");
    try {
      const found = await list("seen", scn ? [where, transaction, scn] : [where, transaction]);
      held.replaceChildren(table(found, null, {
        cells: { _rowid: (value) => rowLink(value), _line: (value) => h("span", { class: "why" }, value), _sees: (value) => h("strong", { class: `sees ${value.replace(" ", "-")}` }, value) },
        rowClass: (row) => (row._sees === "invisible" ? "unseen" : null),
      }));
    } catch (error) {
      held.replaceChildren(h("p", { class: "damage" }, error.message));
    }
  };
  choice.addEventListener("change", show);
  await show();
  return h("section", { class: "seen" }, h("h3", {}, h("label", { for: "reader" }, "Rows, as they are seen by "), choice), held);
}
