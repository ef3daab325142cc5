// The frame of every figure that can be explored: controls, downloads, colours of the page, keys.
const drawn = []; // what is on the page, to be drawn again when its width or its colours change

const colour = (name) =>
  name.startsWith("var(") ? getComputedStyle(document.documentElement).getPropertyValue(name.slice(4, -1)).trim() : name;

function palette() {
  const names = ["ink", "muted", "line", "card", "accent", "helped", "hurt", "unclear", "blue", "sky", "green", "vermilion"];
  const found = Object.fromEntries(names.map((name) => [name, colour(`var(--${name})`)]));
  return { ...found, same: found.unclear, "": found.unclear };
}

const verdictMarks = { helped: "circle", hurt: "diamond", unclear: "circle", same: "rect", "": "circle" };

// A figure: `make(colours, width)` gives what is drawn, `rows()` the numbers behind it for a CSV file.
function addChart(name, { make, rows, height, controls = [], click, key, about, caption, heavy = false }) {
  const figure = document.getElementById("figure-" + name);
  if (!figure) return null;
  const plain = figure.querySelector(".plot");
  const box = element("div", undefined, "chart");
  box.tabIndex = 0;
  box.setAttribute("role", "img");
  box.setAttribute("aria-label", figure.querySelector("h3").textContent + ". " + about);
  const bar = element("div", undefined, "controls");
  bar.append(...controls);
  const files = element("div", undefined, "files");
  files.setAttribute("role", "group");
  files.setAttribute("aria-label", "Download");
  const said = element("p", "", "about said");
  said.setAttribute("role", "status");
  bar.append(files);
  (plain || figure.querySelector("figcaption")).before(bar, box, said);
  if (plain) plain.hidden = true;
  if (caption) figure.querySelector("figcaption").firstChild.textContent = caption + " ";
  figure.hidden = false;
  const chart = { name, box, figure, said, make, height };
  chart.high = (width = box.clientWidth) => (typeof height === "function" ? height(width) : height);
  box.style.height = chart.high() + "px";
  chart.plot = echarts.init(box, null, { renderer: heavy ? "canvas" : "svg" });
  chart.draw = () => drawChart(chart);
  if (click) chart.plot.getZr().on("click", (event) => click(chart, event.offsetX, event.offsetY));
  if (key) box.addEventListener("keydown", (event) => { if (key(event.key)) event.preventDefault(); });
  addDownload(files, "SVG", () => save(name + ".svg", "image/svg+xml", svgOf(chart)));
  addDownload(files, "CSV", () => save(name + ".csv", "text/csv", csvOf(rows())));
  drawn.push(chart);
  chart.draw();
  return chart;
}

function drawChart(chart) {
  const height = chart.high() + "px";
  if (chart.box.style.height !== height) { chart.box.style.height = height; chart.plot.resize(); }
  const width = chart.box.clientWidth;
  chart.plot.setOption({ ...common(), ...foldTitle(chart.make(palette(), width), width) }, { notMerge: true });
}

const NARROW = 560; // of a figure, in pixels
const LABEL = 120; // at most this wide is the label of a row in a narrow figure
// Letters of a row's label, so that the plot beside it keeps most of a narrow figure.
const letters = (width, most) => (width < NARROW ? Math.min(most, 18) : most);

// Texts one after the other, in lines of at most so many letters.
function folded(texts, most) {
  const lines = [];
  for (const text of texts) {
    const last = lines.length - 1;
    if (last >= 0 && lines[last].length + text.length < most) lines[last] += " " + text;
    else lines.push(text);
  }
  return lines;
}

// The title below a narrow figure in several lines: a long one would be cut, and squeeze the plot.
function foldTitle(option, width) {
  if (width >= NARROW || !option.xAxis || !option.xAxis.name) return option;
  const lines = folded(option.xAxis.name.split(" "), Math.floor((width - LABEL - 28) / 6.2));
  return { ...option, xAxis: { ...option.xAxis, name: lines.join("\n"), nameTextStyle: { ...option.xAxis.nameTextStyle, lineHeight: 15 } } };
}

// Lines that the legend above a figure takes.
const legendLines = (names, width) => folded(names, Math.floor((width - 16) / 6.6 - 1)).length;

function common() {
  const colours = palette();
  return {
    animation: false,
    textStyle: { fontFamily: getComputedStyle(document.body).fontFamily, color: colours.ink },
    backgroundColor: "transparent",
  };
}

function addDownload(files, kind, made) {
  const button = element("button", kind);
  button.type = "button";
  button.setAttribute("aria-label", `Download as ${kind}`);
  button.addEventListener("click", made);
  files.append(button);
}

// Drawn anew as a file: with a background, a legend, and no parts that only a pointer sees.
function svgOf(chart) {
  const width = 900;
  const still = echarts.init(null, null, { renderer: "svg", ssr: true, width, height: Math.max(chart.high(width), 320) });
  const option = chart.make(palette(), width, true);
  still.setOption({ ...common(), ...option, dataZoom: [], backgroundColor: palette().card });
  const text = still.renderToSVGString();
  still.dispose();
  return text;
}

// A cell that a spreadsheet would take for a formula is made text.
function csvOf(rows) {
  const cell = (value) => {
    if (!known(value)) return "";
    if (typeof value === "number") return String(value);
    const text = /^[=+\-@\t\r]/.test(value) ? "'" + value : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => row.map(cell).join(",") + "\r\n").join("");
}

function save(name, type, text) {
  const link = element("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// One of several: buttons of which one is pressed.
function choices(label, names, chosen, changed) {
  const group = element("div");
  group.setAttribute("role", "group");
  group.setAttribute("aria-label", label);
  const buttons = names.map((name, place) => {
    const button = element("button", name);
    button.type = "button";
    button.addEventListener("click", () => {
      buttons.forEach((one, other) => one.setAttribute("aria-pressed", String(other === place)));
      changed(place);
    });
    button.setAttribute("aria-pressed", String(place === chosen));
    return button;
  });
  group.append(...buttons);
  return group;
}

// A legend that switches what it names.
function switches(label, entries, hidden, changed) {
  const group = element("div", undefined, "legend");
  group.setAttribute("role", "group");
  group.setAttribute("aria-label", label);
  for (const entry of entries) {
    const button = element("button");
    button.type = "button";
    const swatch = element("i");
    swatch.style.background = entry.colour;
    button.append(swatch, entry.name);
    button.setAttribute("aria-pressed", "true");
    button.addEventListener("click", () => {
      const off = hidden.has(entry.name);
      if (off) hidden.delete(entry.name);
      else hidden.add(entry.name);
      button.setAttribute("aria-pressed", String(off));
      changed();
    });
    group.append(button);
  }
  return group;
}

const axisLook = (colours, rest) => ({
  nameLocation: "middle",
  nameTextStyle: { color: colours.ink, fontSize: 12 },
  axisLine: { onZero: false, lineStyle: { color: colours.muted } },
  axisTick: { lineStyle: { color: colours.muted } },
  splitLine: { lineStyle: { color: colours.line } },
  ...rest,
  // ends are wherever the numbers end: only round ones between them are written
  axisLabel: { color: colours.ink, fontSize: 11, hideOverlap: true, showMinLabel: false, showMaxLabel: false, ...(rest.axisLabel || {}) },
});

// Ticks of a logarithmic axis: powers of ten, and over few of them 2 and 5 between.
function logTicks(least, most) {
  const steps = Math.log10(most / least) > 3 ? [1] : Math.log10(most / least) > 1.3 ? [1, 3] : [1, 2, 5];
  const found = [];
  for (let power = Math.floor(Math.log10(least)); power <= Math.log10(most); power += 1)
    found.push(...steps.map((step) => Number((step * 10 ** power).toPrecision(3))).filter((tick) => tick >= least && tick <= most));
  return found;
}

// Room for axes with their labels and names, inside the box.
const frame = (rest) => ({ left: 8, right: 20, top: 12, bottom: 8, outerBoundsMode: "same", outerBoundsContain: "all", ...rest });

// What is said beside the pointer: lines of text, never HTML.
const tip = (colours, trigger, lines, rest = {}) => ({
  trigger,
  confine: true,
  transitionDuration: 0,
  backgroundColor: colours.card,
  borderColor: colours.line,
  textStyle: { color: colours.ink, fontSize: 12 },
  formatter: (found) => {
    const box = element("div", undefined, "tip");
    lines(found).forEach((line, place) => box.append(element(place ? "div" : "b", line)));
    return box;
  },
  ...rest,
});

// The whole range, or all but a few far values that would flatten the rest.
function reach(values) {
  const sorted = Float64Array.from(values.filter((value) => Number.isFinite(value))).sort();
  if (!sorted.length) return [0, 1];
  const at = (part) => sorted[Math.round(part * (sorted.length - 1))];
  const wide = at(0.95) - at(0.05);
  const ends = [Math.max(sorted[0], at(0.05) - wide), Math.min(sorted[sorted.length - 1], at(0.95) + wide)];
  return ends[0] < ends[1] ? ends : [ends[0] - 0.5, ends[1] + 0.5];
}

// The middle goes, as labels often differ at their ends.
function shortened(text, most) {
  if (text.length <= most) return text;
  const end = Math.floor((most - 1) / 2);
  return text.slice(0, most - 1 - end) + "\u2026" + text.slice(text.length - end);
}
