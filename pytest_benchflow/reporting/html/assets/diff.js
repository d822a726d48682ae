// What an edit changed, line by line.

const MOST_COMPARED = 250_000;
const CONTEXT = 3;
const MOST_LINES = 2000;

// Return the lines between which two texts differ as [kind, line], by their longest common subsequence.
function changedLines(before, after) {
  if (before.length * after.length > MOST_COMPARED) {
    return [...before.map((line) => ["del", line]), ...after.map((line) => ["add", line])];
  }
  const common = Array.from({ length: before.length + 1 }, () => new Uint16Array(after.length + 1));
  for (let i = before.length - 1; i >= 0; i--) {
    for (let j = after.length - 1; j >= 0; j--) {
      common[i][j] =
        before[i] === after[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
    }
  }
  const lines = [];
  let [i, j] = [0, 0];
  while (i < before.length || j < after.length) {
    const isSame = i < before.length && j < after.length && before[i] === after[j];
    const isRemoved = j >= after.length || (i < before.length && common[i + 1][j] >= common[i][j + 1]);
    if (isSame) (lines.push(["same", before[i++]]), j++);
    else if (isRemoved) lines.push(["del", before[i++]]);
    else lines.push(["add", after[j++]]);
  }
  return lines;
}

function diffLines(oldText, newText) {
  const split = (text) => (text ? plain(text).replace(/\n$/, "").split("\n") : []);
  const [before, after] = [split(oldText), split(newText)];
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start++;
  let [oldEnd, newEnd] = [before.length, after.length];
  while (oldEnd > start && newEnd > start && before[oldEnd - 1] === after[newEnd - 1]) (oldEnd--, newEnd--);
  const same = (lines) => lines.map((line) => ["same", line]);
  const gap = (n) => (n > 0 ? [["gap", `⋯ ${plural(n, "line")}`]] : []);
  return [
    ...gap(start - CONTEXT),
    ...same(before.slice(Math.max(0, start - CONTEXT), start)),
    ...changedLines(before.slice(start, oldEnd), after.slice(start, newEnd)),
    ...same(before.slice(oldEnd, oldEnd + CONTEXT)),
    ...gap(before.length - oldEnd - CONTEXT),
  ];
}

const SIGNS = { add: "+", del: "−", same: " ", gap: " " };
const WORDS = { add: "added: ", del: "removed: " };
function diffView(path, oldText, newText) {
  const lines = diffLines(oldText, newText);
  const n = (kind) => lines.filter(([each]) => each === kind).length;
  const row = ([kind, line]) =>
    h(
      "div",
      { class: kind },
      h("span", { class: "sign", "aria-hidden": "true" }, SIGNS[kind]),
      WORDS[kind] ? h("span", { class: "hidden" }, WORDS[kind]) : null,
      line || " ",
    );
  const more =
    lines.length > MOST_LINES ? row(["gap", `⋯ ${plural(lines.length - MOST_LINES, "line")}`]) : null;
  return h(
    "div",
    { class: "diff" },
    h(
      "div",
      { class: "file" },
      h("code", {}, plain(path || "file")),
      isKnown(oldText) ? null : chip("neutral", "new"),
      h("span", { class: "added" }, `+${n("add")}`),
      h("span", { class: "removed" }, `−${n("del")}`),
    ),
    h("div", { class: "lines mono", tabindex: "0" }, lines.slice(0, MOST_LINES).map(row), more),
  );
}
