// Data is inside this file, compressed, or comes from the viewer that serves the page.

async function inflate(node) {
  const bytes = Uint8Array.from(atob(node.textContent), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Response(stream).json();
}
async function ask(name) {
  const answer = await fetch(name, { cache: "no-store" });
  if (!answer.ok) throw new Error(`the viewer answered ${answer.status}: ${await answer.text()}`);
  return answer.json();
}

const KEPT_PACKS = 8;
const packs = new Map();
async function packOf(number) {
  if (!packs.has(number)) {
    if (packs.size >= KEPT_PACKS) packs.delete(packs.keys().next().value);
    packs.set(number, inflate(byId(`bf-blob-${number}`)));
  }
  return packs.get(number);
}

const isFile = byId("bf-overview") !== null;
const source = isFile
  ? {
      overview: () => inflate(byId("bf-overview")),
      rollout: async (row) => (await packOf(row.blob))[row.place],
    }
  : {
      overview: () => ask("overview.json"),
      rollout: (row) => ask(`rollout.json?id=${encodeURIComponent(row.id)}`),
    };

// What is shown: the overview, its rollouts by id, and the names of their groups in order of appearance, each with a
// row of it.
let report = null;
let rowsById = new Map();
let groups = [];
let groupRows = new Map();
const groupName = (row) => [row.job, row.agent, row.model, row.scene].filter(Boolean).join(" / ");
// The last colour is grey, for all others.
const COLOURED = 7;
const colourOf = (name) => `var(--g${Math.min(COLOURED, groups.indexOf(name))})`;

function take(overview) {
  report = overview;
  report.rollouts ??= [];
  rowsById = new Map(report.rollouts.map((row) => [row.id, row]));
  groupRows = new Map([...(report.groups ?? []), ...report.rollouts].map((row) => [groupName(row), row]));
  groups = [...groupRows.keys()];
  for (const row of report.rollouts) {
    const said = [
      row.id,
      row.task,
      row.job,
      row.agent,
      row.model,
      row.scene,
      row.status,
      row.category,
      row.message,
    ];
    row.text = [...said, ...(row.tags ?? [])].join(" ").toLowerCase();
    row.group = groupName(row);
  }
}

// ---- addresses: #/?q=…&status=… and #/rollout/ID[/event/N] ------------------------------------------------------------

function route() {
  const [path, query] = location.hash.replace(/^#/, "").split("?");
  const decoded = (part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  };
  return { parts: path.split("/").filter(Boolean).map(decoded), query: new URLSearchParams(query ?? "") };
}
const addressOf = (row, event) =>
  `#/rollout/${encodeURIComponent(row.id)}${isKnown(event) ? `/event/${event}` : ""}`;
function filtered(changes) {
  const { parts, query } = route();
  const next = parts.length ? new URLSearchParams() : query;
  for (const [key, value] of Object.entries(changes)) value ? next.set(key, value) : next.delete(key);
  return `#/${next.size ? `?${next}` : ""}`;
}

const matches = (row, status) => row.status === status || (status === "integrity" && row.integrity);
function chosenRows(query) {
  const words = (query.get("q") ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  const [status, group] = [query.get("status"), query.get("group")];
  return report.rollouts.filter(
    (row) =>
      (!status || matches(row, status)) &&
      (!group || row.group === group) &&
      words.every((word) => row.text.includes(word)),
  );
}
