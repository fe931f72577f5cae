// What two moments differ in: fields, rows and bytes, of one page or of all.

import { differences } from "./api.js";
import { announce, h, table } from "./dom.js";

export async function showCompare(place, wanted, about) {
  const moments = [["files", "the files"], ["end", "all of the log replayed"]];
  if (about.live) moments.push(["memory", "memory, of one page"]);
  const choose = (id, chosen) => h("span", {},
    h("input", { id, list: `${id}-list`, value: chosen, required: true, autocomplete: "off" }),
    h("datalist", { id: `${id}-list` }, moments.map(([value, text]) => h("option", { value }, text))));
  const page = h("input", { id: "of-page", value: wanted, placeholder: "all pages", autocomplete: "off" });
  const result = h("div", { class: "result" });
  const form = h("form", { class: "tools" },
    h("label", { for: "one" }, "From"), choose("one", "files"), h("label", { for: "other" }, "to"),
    choose("other", wanted && about.live ? "memory" : "end"), h("label", { for: "of-page" }, "on page"), page, h("button", {}, "Compare"));
  const compare = async () => {
    result.replaceChildren(h("p", { class: "quiet" }, "Comparing…"));
    try {
      const found = await differences(form.querySelector("#one").value, form.querySelector("#other").value, page.value.trim() || undefined);
      const pages = new Set(found.rows.map((row) => row.page)).size;
      result.replaceChildren(
        h("p", {}, found.rows.length ? `${found.rows.length.toLocaleString("en")} differences on ${pages.toLocaleString("en")} pages.` : "Nothing differs."),
        table(found, null, { cells: { first: (value) => side(value, "gone"), second: (value) => side(value, "come") } }));
      announce(`${found.rows.length} differences`);
    } catch (error) {
      result.replaceChildren(h("p", { class: "damage", role: "alert" }, error.message));
    }
  };
  form.addEventListener("submit", (event) => { event.preventDefault(); compare(); });
  place.append(h("h2", {}, "What two moments differ in"),
    h("p", { class: "quiet" }, "A moment is “files”, “end”", about.live ? ", “memory”" : "", ", or an LSN of the log."), form, result);
  if (wanted) await compare();
}

const side = (value, kind) => (value === null ? null : h("code", { class: kind }, value));
