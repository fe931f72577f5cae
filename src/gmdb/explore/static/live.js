// Transactions, locks and waits as they are now; refreshed while the view is shown.

import { ask, list } from "./api.js";
import { announce, h, table } from "./dom.js";

const EVERY = 1000;

export async function showLive(place, wanted, about) {
  const held = h("div", { class: "columns" });
  const pause = h("input", { type: "checkbox", id: "pause" });
  place.append(h("h2", {}, "Transactions, locks and waits"),
    h("p", { class: "quiet" }, about.live ? "From the memory of the process that has the database open, once a second. " : "No process has the database open: this is what its files show. ",
      h("label", {}, pause, " pause")), held);
  let timer, before = "", isLeft = false;
  const look = async () => {
    if (!pause.checked) {
      try {
        if ((await ask("about")).live !== about.live) { // it was opened, closed or killed: look elsewhere from now on
          if (!isLeft) window.dispatchEvent(new Event("hashchange"));
          return;
        }
        const [transactions, waits, locks, snapshots] = await Promise.all(["transactions", "waits", "locks", "snapshots"].map((name) => list(name)));
        const now = JSON.stringify([transactions, waits, locks, snapshots.rows.map((one) => one.name)]);
        if (now !== before) {
          const count = transactions.rows.filter((one) => one.scn === null).length;
          if (before) announce(`${count} open transactions, ${locks.rows.length} locks, ${waits.rows.length} waits`);
          before = now;
          locks.rows = locks.rows.slice(0, 1000);
          held.replaceChildren(
            table(transactions, "Transactions", { rowClass: (row) => (row.scn === null ? "open" : null) }),
            table(waits, "Waits", { rowClass: () => "wrong" }), table(locks, "Locks"), table(snapshots, "Pinned snapshots"));
        }
      } catch (error) {
        announce(error.message);
      }
    }
    if (!isLeft) timer = setTimeout(look, EVERY);
  };
  await look();
  return () => { isLeft = true; clearTimeout(timer); };
}
