"use strict";
/* Draws figures as they come into sight, filters by domain, sorts tables, follows dark and light. Nothing is fetched. */
(() => {
  const chosen = new Set();                       // domains; empty is all
  const drawn = new Map();                        // element of a chart -> its figure
  const root = document.documentElement;
  const narrow = (element) => element.clientWidth < 560;

  const failed = (why) => {
    const note = document.getElementById("no-figures");
    note.textContent = "The interactive figures cannot be drawn in this browser (" + why +
      "). Their numbers, and pictures unless they were left out, lie in the folder beside this page.";
    note.hidden = false;
  };

  async function unpack(id) {
    const packed = atob(document.getElementById(id).textContent.trim());
    const bytes = Uint8Array.from(packed, (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }

  async function loadPlotly() {
    const script = document.createElement("script");
    script.textContent = await unpack("plotly");
    document.head.append(script);
    if (!window.Plotly) throw new Error("its code did not load");
  }

  const shown = (domain) => domain == null || chosen.size === 0 || chosen.has(domain);

  function inks() {
    const style = getComputedStyle(root);
    const of = (name) => style.getPropertyValue(name).trim();
    return { ink: of("--ink"), grid: of("--grid"), paper: of("--paper"), line: of("--line") };
  }

  function coloured(layout) {
    const { ink, grid, paper, line } = inks();
    const changed = { "font.color": ink, "font.family": getComputedStyle(document.body).fontFamily, "hoverlabel.bgcolor": paper, "hoverlabel.bordercolor": line, "hoverlabel.font.color": ink };
    for (const key of Object.keys(layout)) {
      if (!/^[xy]axis\d*$/.test(key)) continue;
      changed[key + ".gridcolor"] = grid; changed[key + ".zerolinecolor"] = grid; changed[key + ".linecolor"] = grid;
    }
    return changed;
  }

  function put(layout, changes) {
    const copy = structuredClone(layout);
    for (const [path, value] of Object.entries(changes)) {
      const names = path.split(".");
      let place = copy;
      for (const name of names.slice(0, -1)) place = place[name] = place[name] || {};
      place[names.at(-1)] = value;
    }
    return copy;
  }

  function laidOut(element, figure) {
    const layout = narrow(element) && figure.narrow ? put(figure.layout, figure.narrow) : figure.layout;
    const square = layout.yaxis && layout.yaxis.scaleanchor && !layout.xaxis2 && narrow(element);
    const height = square ? Math.min(layout.height, element.clientWidth + 160) : layout.height;
    const top = Math.max((layout.margin || {}).t || 0, 34);  // room for the buttons, which would lie on points
    return put(layout, { ...coloured(layout), "margin.t": top, height });
  }

  function draw(element) {
    if (drawn.has(element) || !window.Plotly || element.closest("[hidden]")) return;
    const figure = JSON.parse(document.getElementById(element.dataset.figure).textContent);
    drawn.set(element, figure);
    const layout = laidOut(element, figure);
    element.style.height = layout.height + "px";
    const options = { displaylogo: false, responsive: true, modeBarButtonsToRemove: ["lasso2d", "select2d"],
      toImageButtonOptions: { format: "svg", filename: element.dataset.key } };
    Plotly.newPlot(element, visible(figure), layout, options).then(() => {
      element.dataset.drawn = "yes";
      element.on("plotly_hover", (event) => peek(element, event));
      element.on("plotly_unhover", hidePeek);
    });
  }

  const visible = (figure) => figure.data.map((trace) =>
    ({ ...trace, visible: shown(trace.meta && trace.meta.domain) ? (trace.visible ?? true) : false }));

  function redraw(element) {
    const figure = drawn.get(element);
    const layout = laidOut(element, figure);
    element.style.height = layout.height + "px";
    return Plotly.react(element, visible(figure), layout);
  }

  // The picture of the sample under the pointer.
  const box = document.createElement("div");
  box.id = "peek"; box.hidden = true;
  document.body.append(box);
  function peek(element, event) {
    const point = event.points[0], meta = point.data.meta, sprite = element.dataset.sprite;
    const tile = meta && meta.tiles ? meta.tiles[point.pointIndex ?? point.pointNumber] : -1;
    if (!sprite || !(tile >= 0)) return hidePeek();
    const columns = +element.dataset.columns, size = +element.dataset.tile, side = 96, zoom = side / size;
    const picture = document.getElementById(sprite);
    box.style.backgroundImage = `url("${picture.src}")`;
    box.style.backgroundSize = `${picture.naturalWidth * zoom}px ${picture.naturalHeight * zoom}px`;
    box.style.backgroundPosition = `${-(tile % columns) * side}px ${-Math.floor(tile / columns) * side}px`;
    box.style.width = box.style.height = side + "px";
    const x = event.event.clientX, y = event.event.clientY;
    box.style.left = Math.max(4, Math.min(x - side / 2, innerWidth - side - 8)) + "px";
    box.style.top = (y - side - 18 > 4 ? y - side - 18 : y + 24) + "px";
    box.hidden = false;
  }
  function hidePeek() { box.hidden = true; }

  function filter() {
    for (const button of document.querySelectorAll("[data-choose]"))
      button.setAttribute("aria-pressed", button.dataset.choose === "" ? chosen.size === 0 : chosen.has(button.dataset.choose));
    for (const element of document.querySelectorAll("[data-domain]")) element.hidden = !shown(element.dataset.domain);
    for (const element of document.querySelectorAll("[data-domains]"))
      element.hidden = !JSON.parse(element.dataset.domains).some(shown);
    for (const element of drawn.keys()) if (!element.closest("[hidden]")) redraw(element);
    look();
  }

  function look() { for (const element of document.querySelectorAll(".chart")) watcher.observe(element); }
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) { draw(entry.target); if (drawn.has(entry.target)) watcher.unobserve(entry.target); }
  }, { rootMargin: "400px" });

  function number(cell) {
    if ("value" in cell.dataset) return parseFloat(cell.dataset.value);
    const found = cell.textContent.replace(/\u2212/g, "-").match(/[-+]?\d+(\.\d+)?/);
    return found ? parseFloat(found[0]) : NaN;
  }
  function sort(heading) {
    const table = heading.closest("table"), place = [...heading.parentNode.children].indexOf(heading);
    const words = place === 0, first = words ? "ascending" : "descending", second = words ? "descending" : "ascending";
    const order = heading.getAttribute("aria-sort") === first ? second : first, sign = order === "ascending" ? 1 : -1;
    for (const other of heading.parentNode.children) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", order);
    const rows = [...table.tBodies[0].rows];
    rows.sort((one, other) => {
      const [a, b] = [one.cells[place], other.cells[place]];
      if (words) return a.textContent.localeCompare(b.textContent) * sign;
      const [x, y] = [number(a), number(b)];
      if (isNaN(x) || isNaN(y)) return isNaN(x) - isNaN(y);
      return (x - y) * sign;
    });
    table.tBodies[0].append(...rows);
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button"), heading = event.target.closest("th.sortable");
    if (heading) sort(heading);
    if (!button) return;
    if ("choose" in button.dataset) {
      const name = button.dataset.choose;
      if (name === "") chosen.clear();
      else if (chosen.has(name)) chosen.delete(name);
      else chosen.add(name);
      filter();
    } else if (button.id === "theme") {
      const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      theme(dark ? "light" : "dark");
    } else if ("more" in button.dataset) {
      const table = document.getElementById(button.dataset.more);
      const fewer = table.classList.toggle("fewer");
      button.setAttribute("aria-pressed", !fewer);
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.target.matches("th.sortable")) sort(event.target);
  });
  document.addEventListener("change", (event) => {
    if (event.target.id !== "choose-domain") return;
    chosen.clear();
    if (event.target.value !== "") chosen.add(JSON.parse(event.target.value));
    filter();
  });

  function theme(name) { root.dataset.theme = name; recolour(); }
  function recolour() {
    for (const [element, figure] of drawn) Plotly.relayout(element, coloured(figure.layout));
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);

  let width = innerWidth, waiting = 0;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth; clearTimeout(waiting);
    waiting = setTimeout(() => { for (const element of drawn.keys()) if (!element.closest("[hidden]")) redraw(element); }, 200);
  });
  // Paper is white, and shows all of the page.
  let before;
  addEventListener("beforeprint", () => {
    before = root.dataset.theme; root.dataset.theme = "light";
    document.querySelectorAll("details").forEach((notes) => { notes.open = true; });
    document.querySelectorAll(".chart").forEach(draw); recolour();
  });
  addEventListener("afterprint", () => {
    if (before === undefined) delete root.dataset.theme; else root.dataset.theme = before;
    recolour();
  });

  loadPlotly().then(look).catch((error) => failed(error.message)).finally(() => { root.dataset.ready = "yes"; });
})();
