// Jobs compared, and trajectories side by side.

function comparisonSections() {
  const comparison = report.comparison;
  if (!comparison) return null;
  return [];
}

async function sidePage(ids) {
  const rows = ids.map((id) => rowsById.get(id)).filter(Boolean);
  if (rows.length < 2) {
    location.hash = "#/";
    return;
  }
  document.title = `${oneLine(rows[0].task, 80)} · side by side`;
  showCrumbs([
    [oneLine(rows[0].task, 60), addressOf(rows[0])],
    ["side by side", null],
  ]);
  const details = await Promise.all(rows.map((row) => source.rollout(row)));
  const column = (row, i) =>
    h(
      "div",
      {},
      h(
        "div",
        { class: "panel" },
        h(
          "h2",
          {},
          h("a", { href: addressOf(row) }, row.group, row.trial > 1 ? ` · trial ${row.trial}` : ""),
          " ",
          chip(row.status),
        ),
        h(
          "p",
          { class: "sub" },
          `reward ${reward(row.reward)} · ${duration(row.seconds)} · ${plural(row.tools ?? 0, "tool call")} · ${money(row.cost)}`,
        ),
        phaseBar(details[i].result.timing ?? {}),
        row.message ? h("p", { class: "sub" }, plain(row.message)) : null,
      ),
      trajectoryView(details[i], null, `s${i}-`).node,
    );
  show(
    h("h1", { tabindex: "-1" }, oneLine(rows[0].task, 200)),
    h("div", { class: "side" }, rows.map(column)),
  );
}
