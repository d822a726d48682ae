// The viewer's first page: the jobs below its directory, newest first.

function jobsPage() {
  document.title = report.title;
  byId("crumbs").replaceChildren(h("span", { "aria-current": "page" }, "Jobs"));
  const rows = report.jobs.map((job) =>
    h(
      "tr",
      { class: "row" },
      h(
        "td",
        { class: "name" },
        h("a", { href: job.href }, oneLine(job.name, 120)),
        job.running ? [" ", chip("running", "running")] : null,
      ),
      h("td", { class: "plot" }, job.rollouts ? jobBar(job) : h("span", { class: "sub" }, "nothing yet")),
      h(
        "td",
        { class: "n" },
        job.passed + job.failed ? `${count(job.passed)} of ${count(job.passed + job.failed)}` : "–",
      ),
      h("td", { class: "n" }, job.errors ? chip("error", job.errors) : "–"),
      h("td", { class: "n" }, money(job.cost_usd)),
      h("td", { class: "n" }, clock(job.changed)),
    ),
  );
  const head = heading(["Job", "Rollouts", "Passed", "Errors", "Cost", "Last change"], (i) => i > 1);
  show(
    h("h1", { tabindex: "-1" }, "Jobs"),
    h("p", { class: "sub mono" }, plain(report.directory)),
    rows.length
      ? h(
          "section",
          { "aria-label": "Jobs" },
          scrolling("Jobs", stacked(h("table", { class: "jobs" }, head, h("tbody", {}, rows)))),
        )
      : h("p", { class: "empty" }, "There is no job here yet."),
  );
}

function jobBar(job) {
  const parts = [
    ["passed", job.passed],
    ["failed", job.failed],
    ["error", job.errors],
    ["running", Math.max(0, job.rollouts - job.passed - job.failed - job.errors)],
  ];
  const words = parts.filter(([, n]) => n).map(([status, n]) => `${n} ${status}`);
  return h(
    "div",
    { class: "strip thin", role: "img", "aria-label": words.join(", "), title: words.join(", ") },
    parts.map(([status, n]) =>
      n ? h("span", { class: `fill-${status}`, style: { flex: String(n) } }) : null,
    ),
  );
}
