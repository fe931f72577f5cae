// Which view is shown: the part of the address behind #.  A view is a function that fills <main> and may return a
// callback for when it is left.

import { ask, list, showMoment } from "./api.js";
import { announce, h } from "./dom.js";
import { showMap } from "./map.js";
import { showPage } from "./page.js";
import { showSegment, showSegments } from "./segments.js";
import { showIndex } from "./tree.js";
import { showRow } from "./row.js";
import { showLive } from "./live.js";
import { showLog } from "./log.js";
import { showCompare } from "./compare.js";

const VIEWS = {
  map: showMap, page: showPage, segments: showSegments, segment: showSegment, index: showIndex, row: showRow,
  live: showLive, log: showLog, compare: showCompare,
};

let about;
let leave = () => {};
let turn = 0;

async function show() {
  const [view, ...rest] = decodeURIComponent(location.hash.slice(1) || "map").split("/");
  const mine = ++turn;
  leave();
  leave = () => {};
  const main = document.getElementById("main");
  main.replaceChildren(h("p", { class: "quiet" }, "Reading…"));
  complain("");
  announce("");
  for (const link of document.querySelectorAll("nav a")) {
    const isHere = link.hash === `#${view}` || (view === "segment" || view === "index") && link.hash === "#segments";
    if (isHere) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  const place = h("div", { class: `view ${view}` });
  try {
    if (!VIEWS[view]) throw new Error(`there is no view ${view}`);
    const wasLive = about.live;
    about = await ask("about");
    if (about.live !== wasLive) offerMoments();
    const left = await VIEWS[view](place, rest.join("/"), about);
    if (mine !== turn) { left?.(); return; }
    leave = left ?? (() => {});
    main.replaceChildren(place);
    place.dispatchEvent(new Event("shown"));
    document.title = `${about.name}: ${rest.join("/") || view}`;
  } catch (error) {
    if (mine === turn) { main.replaceChildren(); complain(error.message); }
  }
}

export function complain(text) {
  const place = document.getElementById("trouble");
  place.textContent = text;
  place.hidden = !text;
}

async function goTo(text) {
  if (/^\d+:\d+:\d+$/.test(text)) location.hash = `row/${text}`;
  else if (/^\d+:\d+$/.test(text) || /^\d+$/.test(text)) location.hash = `page/${text}`;
  else {
    const found = (await list("segments")).rows.find((one) => one.object?.toLowerCase() === text.toLowerCase());
    if (!found) complain(`there is no page, row, table or index ${text}`);
    else location.hash = found.type === "btree" || found.type === "hash" ? `index/${found.object}` : `segment/${found.object}`;
  }
}

// The states to choose from; memory, if a process has the database open.
function offerMoments() {
  const select = document.getElementById("moment");
  const offered = [["files", "as the files are"], ["end", "with all of the log replayed"], ["at", "up to an LSN of the log…"]];
  if (about.live) offered.unshift(["memory", "memory, live"]);
  select.replaceChildren(...offered.map(([value, text]) => h("option", { value }, text)));
  showMoment(about.live ? "memory" : "files");
}

function listenToMoments() {
  const select = document.getElementById("moment");
  let before = select.value;
  select.addEventListener("change", () => {
    let chosen = select.value;
    if (chosen === "at") {
      chosen = prompt("Replay the log up to which LSN? The view Log shows them.") ?? "";
      if (!/^\d+$/.test(chosen)) { select.value = before; return; }
      select.append(h("option", { value: chosen }, `up to LSN ${chosen}`));
      select.value = chosen;
    }
    before = chosen;
    showMoment(chosen);
    announce(`State: ${select.selectedOptions[0].textContent}`);
    show();
  });
}

async function start() {
  try {
    about = await ask("about");
  } catch (error) {
    complain(error.message);
    return;
  }
  document.getElementById("name").textContent = about.name;
  document.getElementById("name").title = about.path;
  offerMoments();
  listenToMoments();
  const wanted = document.getElementById("wanted");
  document.getElementById("goto").addEventListener("submit", (event) => {
    event.preventDefault();
    if (wanted.value.trim()) goTo(wanted.value.trim()).catch((error) => complain(error.message));
  });
  document.querySelector(".skip").addEventListener("click", (event) => { // its address would be that of a view
    event.preventDefault();
    document.getElementById("main").focus();
  });
  document.addEventListener("keydown", (event) => {
    const isTyping = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey) { event.preventDefault(); wanted.focus(); }
  });
  window.addEventListener("hashchange", show);
  await show();
}

start();
