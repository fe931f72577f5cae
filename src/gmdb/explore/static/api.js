// Requests to the server.  A listing's rows become objects by the names of its columns.

let moment = "files";

export const showMoment = (chosen) => { moment = chosen; };

export async function ask(name, parameters = {}, signal) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(parameters)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null) query.append(key, one);
    }
  }
  const response = await fetch(`/api/${name}?${query}`, { signal });
  const document = await response.json();
  if (document.error) throw new Error(document.error);
  return document;
}

export async function list(name, args = [], options = {}, signal) {
  const found = await ask("listing", { name, arg: args, at: moment, ...options }, signal);
  return listing(found);
}

export async function differences(one, other, page) {
  return listing(await ask("diff", { one, other, page }));
}

function listing(found) {
  const names = found.columns.map((column) => column.name);
  return { ...found, rows: found.rows.map((row) => Object.fromEntries(row.map((value, n) => [names[n], value]))) };
}
