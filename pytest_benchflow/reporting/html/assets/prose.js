// What agents say is Markdown: as much of it as makes reading easier, and never a link or a picture.

const INLINE = /(`+)([^`]|[^`].*?[^`])\1(?!`)|\*\*(\S(?:.*?\S)?)\*\*/g;
function inline(text) {
  const nodes = [];
  let done = 0;
  for (const match of text.matchAll(INLINE)) {
    nodes.push(
      text.slice(done, match.index),
      match[3] ? h("strong", {}, match[3]) : h("code", {}, match[2].trim()),
    );
    done = match.index + match[0].length;
  }
  return [...nodes, text.slice(done)];
}

function paragraph(text) {
  const title = /^(#{1,6})\s+(.*)$/.exec(text);
  if (title) return h("p", { class: "title" }, inline(title[2]));
  return h("p", {}, inline(text));
}

const ITEM = /^\s*(?:[-*+]|\d+[.)])\s+(.*)$/;
// A line that long was broken to fit somewhere, and goes on in the next.
const WRAPPED = 60;
const lineEnd = (line) => (line.length >= WRAPPED ? " " : "\n");
function blocks(text) {
  const nodes = [];
  let last = "";
  let kind = null; // what the last line was: an item of a list, a line of a paragraph
  for (const line of text.split("\n")) {
    const item = ITEM.exec(line);
    if (!line.trim()) kind = null;
    else if (item) {
      const isNumbered = /^\s*\d/.test(line);
      if (kind !== "item")
        nodes.push(h(isNumbered ? "ol" : "ul", isNumbered ? { start: parseInt(line, 10) } : {}));
      nodes.at(-1).append(h("li", {}, inline(item[1])));
      kind = "item";
    } else if (kind === "item") nodes.at(-1).lastChild.append(lineEnd(last), ...inline(line.trim()));
    else if (kind === "line" && !/^#/.test(line)) nodes.at(-1).append(lineEnd(last), ...inline(line));
    else {
      nodes.push(paragraph(line));
      kind = /^#/.test(line) ? null : "line";
    }
    last = line;
  }
  return nodes;
}

const FENCE = /^[ \t]*(`{3,}|~{3,})[^\n]*\n([\s\S]*?)(?:\n[ \t]*\1[ \t]*$|$(?![\s\S]))/gm;
function prose(markdown) {
  const text = plain(markdown);
  const nodes = [];
  let done = 0;
  for (const match of text.matchAll(FENCE)) {
    nodes.push(
      ...blocks(text.slice(done, match.index)),
      h("pre", { class: "block", tabindex: "0" }, match[2]),
    );
    done = match.index + match[0].length;
  }
  return h("div", { class: "prose" }, nodes, blocks(text.slice(done)));
}

// A text that is read as it is.
const block = (text, name) => [
  name ? h("p", { class: "label" }, name) : null,
  h("pre", { class: "block", tabindex: "0" }, plain(text)),
];
const asText = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));
