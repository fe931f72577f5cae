// The log as it is written: the newest records first, more as they come.

import { list } from "./api.js";
import { announce, h, table } from "./dom.js";

const EVERY = 700, KEPT = 400, BEFORE = 1 << 18; // milliseconds; records; bytes of the log before the newest checkpoint

export async function showLog(place) {
  const checkpoints = await list("checkpoints", [], { at: "files" });
  const newest = checkpoints.rows.find((one) => one.is_newest);
  const rows = h("div", {});
  const pause = h("input", { type: "checkbox", id: "pause" });
  const only = h("input", { id: "only", placeholder: "transaction, page, table or kind", autocomplete: "off" });
  place.append(h("h2", {}, "The log"),
    h("p", {}, h("label", {}, "Only ", only), " ", h("label", {}, pause, " pause")), rows,
    table(checkpoints, "Checkpoints"));
  let since = Math.max(0, Number(newest?.redo_lsn ?? 0) - BEFORE), found = [], columns = [], timer, isLeft = false;
  const draw = () => {
    const wanted = only.value.trim().toLowerCase();
    const chosen = found.filter((one) => !wanted || [one.transaction, one.page, one.object, one.kind].some((value) => String(value ?? "").toLowerCase() === wanted));
    rows.replaceChildren(table({ columns, rows: chosen.slice(-KEPT).reverse(), problems: [], notes: [] }, "Records, the newest first",
      { hide: ["file", "item"], rowClass: (row) => (row.kind === "COMMIT" ? "commit" : null) }));
  };
  const look = async () => {
    if (!pause.checked) {
      try {
        const more = await list("redo", [], { since, last: KEPT, at: "files" });
        columns = more.columns;
        if (more.rows.length) {
          if (found.length) announce(`${more.rows.length} more records`);
          since = Math.max(...more.rows.map((one) => Number(one.lsn))) + 8;
          found = [...found, ...more.rows].slice(-10 * KEPT);
        }
        if (more.rows.length || !rows.firstChild) draw();
      } catch (error) {
        announce(error.message);
      }
    }
    if (!isLeft) timer = setTimeout(look, EVERY);
  };
  only.addEventListener("input", draw);
  await look();
  return () => { isLeft = true; clearTimeout(timer); };
}
