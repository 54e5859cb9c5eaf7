"use strict";
// Draws the pictures and tables from the data in the page. Text of the data is only ever set as
// text, and styles only through the object model, as the page's Content-Security-Policy asks for.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { tables, pictures, strings } = data;
  const PRINTED_ROWS = 500;
  const ROW_HEIGHT = 28;
  const KINDS = ["valid", "padding", "damaged-bytes", "mixed"];
  const KIND_NAMES = ["valid", "padding", "damaged", "valid and damaged"];

  // ---- Words ----

  const whole = new Intl.NumberFormat("en");
  const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
  const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

  function number(value) {
    return typeof value === "string" ? value : whole.format(value);
  }

  function bytes(value) {
    let power = 0;
    let rest = Number(value);
    while (Math.abs(rest) >= 1023.95 && power < UNITS.length - 1) {
      rest /= 1024;
      power += 1;
    }
    return `${power ? rest.toFixed(1) : rest} ${UNITS[power]}`;
  }

  function time(value) {
    const date = new Date(Number(value));
    if (Number(value) < 0) return "none";
    return Number.isNaN(date.getTime()) ? `${value} ms` : date.toISOString().replace(".000Z", "Z");
  }

  function counted(count, one, many = `${one}s`) {
    return `${number(count)} ${count === 1 ? one : many}`;
  }

  const SHOWN = { number, bytes, timestamp: time };

  function shown(value, kind) {
    if (value === null) return "?";
    return kind === "text" ? strings[value] : SHOWN[kind](value);
  }

  // ---- Elements ----

  function element(name, className, text) {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  }

  const tip = document.getElementById("tip");

  function hint(selection, words) {
    selection
      .classed("hover", true)
      .attr("tabindex", 0)
      .attr("role", "img")
      .attr("aria-label", (each) => words(each))
      .on("pointermove", (event, each) => showTip(words(each), event.clientX, event.clientY))
      .on("focus", (event, each) => {
        const box = event.target.getBoundingClientRect();
        showTip(words(each), box.left + box.width / 2, box.bottom);
      })
      .on("pointerleave blur", () => { tip.hidden = true; });
  }

  function showTip(text, x, y) {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = Math.min(x + 14, window.innerWidth - box.width - 8);
    const top = y + 18 + box.height > window.innerHeight ? y - box.height - 12 : y + 18;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${Math.max(8, top)}px`;
  }

  const charts = [];

  function chart(id, draw) {
    const box = document.getElementById(id);
    if (!box) return;
    let width = 0;
    const redraw = (wanted) => {
      if (wanted === width || wanted < 50) return;
      width = wanted;
      box.replaceChildren();
      draw(box, width);
    };
    const inner = () => {
      const style = getComputedStyle(box);
      return Math.floor(box.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight));
    };
    redraw(inner());
    charts.push({ redraw, inner });
  }

  function canvas(box, width, height, label) {
    return d3.select(box).append("svg")
      .attr("viewBox", `0 0 ${width} ${height}`)
      .attr("role", "group")
      .attr("aria-label", label);
  }

  function legend(id, entries) {
    const box = document.getElementById(id);
    if (!box) return;
    for (const [className, text] of entries) {
      const entry = element("span");
      entry.append(element("i", className), element("bdi", "", text));
      box.append(entry);
    }
  }

  function clipped(text, width, letter = 6.6) {
    const most = Math.floor(width / letter);
    if (text.length <= most) return text;
    return most < 3 ? "" : `${text.slice(0, most - 1)}…`;
  }

  // ---- Maps of damaged partitions ----

  function runWords(run) {
    const [kind, start, end, first, last] = run;
    const lines = [`${KIND_NAMES[kind]}: ${bytes(end - start)}`, `bytes ${number(start)} to ${number(end - 1)}`];
    if (first !== null) lines.push(`offsets ${number(first)} to ${number(last)}`);
    return lines.join("\n");
  }

  function around(runs, at) {
    const before = runs.slice(0, at).reverse().find((run) => run[4] !== null);
    const after = runs.slice(at + 1).find((run) => run[3] !== null);
    const words = [];
    if (before) words.push(`after offset ${number(before[4])}`);
    if (after) words.push(`before offset ${number(after[3])}`);
    return words.join(", ");
  }

  function mapWords(runs, at) {
    const nearby = around(runs, at);
    return runWords(runs[at]) + (runs[at][3] === null && nearby ? `\n${nearby}` : "");
  }

  function drawMaps(box, width) {
    for (const each of pictures.maps.maps) {
      const map = element("div", "map");
      map.append(element("h3", "", strings[each.name]));
      map.append(element("p", "", strings[each.verdict] || strings[each.dir]));
      box.append(map);
      drawMap(map, each, width);
      map.append(ranges(each));
    }
  }

  function drawMap(box, map, width) {
    const lineHeight = 44;
    const svg = canvas(box, width, map.segments.length * lineHeight, `Map of ${strings[map.name]}`);
    const ends = map.segments.map((segment) => Math.max(
      0, ...segment.runs.map((run) => run[2]), ...segment.quarantined.map((each) => Number(each[1]))));
    const x = d3.scaleLinear([0, Math.max(1, ...ends)], [0, width]);
    map.segments.forEach((segment, line) => {
      const y = line * lineHeight;
      svg.append("text").attr("class", "soft").attr("x", 0).attr("y", y + 12)
        .text(clipped(`${strings[segment.log]}  ${bytes(ends[line])}`, width));
      const parts = segment.runs.map((run, at) => ({ run, at }));
      const isWide = ({ run }) => run[0] >= 2;
      const bars = svg.append("g").selectAll("rect")
        .data([...parts.filter((each) => !isWide(each)), ...parts.filter(isWide)]).join("rect")
        .attr("class", ({ run }) => KINDS[run[0]])
        .attr("x", ({ run }) => Math.min(x(run[1]), width - 3)).attr("y", y + 17).attr("height", 16)
        .attr("width", ({ run }) => Math.max(x(run[2]) - x(run[1]), run[0] >= 2 ? 3 : 0.5));
      hint(bars, ({ at }) => mapWords(segment.runs, at));
      const aside = svg.append("g").selectAll("rect").data(segment.quarantined).join("rect")
        .attr("class", "quarantined")
        .attr("x", (each) => Math.min(x(Number(each[0])), width - 3)).attr("y", y + 34).attr("height", 5)
        .attr("width", (each) => Math.max(x(Number(each[1])) - x(Number(each[0])), 3));
      hint(aside, (each) => `quarantined by salvage: ${bytes(each[1] - each[0])}\n`
        + `from bytes ${number(each[0])} to ${number(each[1])} of the log as it was`);
    });
  }

  function ranges(map) {
    const list = element("ul");
    const most = 5;
    let count = 0;
    for (const segment of map.segments) {
      segment.runs.forEach((run, at) => {
        if (run[0] < 2) return;
        count += 1;
        if (count > most) return;
        const nearby = around(segment.runs, at);
        list.append(element("li", "", `${strings[segment.log]}: ${KIND_NAMES[run[0]]}, bytes `
          + `${number(run[1])} to ${number(run[2] - 1)}${nearby ? `, ${nearby}` : ""}`));
      });
      if (segment.quarantined.length) {
        const size = segment.quarantined.reduce((sum, each) => sum + (each[1] - each[0]), 0);
        list.append(element("li", "", `${strings[segment.log]}: ${bytes(size)} quarantined by salvage`));
      }
    }
    if (count > most) list.append(element("li", "", `and ${counted(count - most, "more damaged range")}`));
    if (map.more) list.append(element("li", "", `and ${counted(map.more, "more damaged segment")}`));
    return list;
  }

  // ---- Size by topic ----

  function drawSizes(box, width) {
    const topics = pictures.sizes.filter((each) => each.bytes > 0);
    if (!topics.length) {
      box.append(element("p", "none", "There are no bytes."));
      return;
    }
    const height = Math.round(Math.max(240, Math.min(420, width * 0.38)));
    const svg = canvas(box, width, height, "Size by topic");
    const root = d3.hierarchy({ children: topics }).sum((each) => each.bytes)
      .sort((left, right) => right.value - left.value);
    d3.treemap().size([width, height]).padding(1).round(true)(root);
    const leaves = root.leaves();
    const sum = root.value;
    const tiles = svg.selectAll("g").data(leaves).join("g")
      .attr("transform", (each) => `translate(${each.x0},${each.y0})`);
    const inner = (each) => each.x1 - each.x0;
    const rectangles = tiles.append("rect")
      .attr("class", (each) => (each.data.damaged ? "tile hurt" : "tile"))
      .attr("width", (each) => Math.max(0, inner(each)))
      .attr("height", (each) => Math.max(0, each.y1 - each.y0))
      .attr("fill-opacity", (each) => 0.82 + 0.18 * Math.sqrt(each.value / leaves[0].value));
    hint(rectangles, (each) => `${strings[each.data.name]}\n${bytes(each.value)}, `
      + `${(100 * each.value / sum).toFixed(1)} %\n${counted(each.data.partitions, "partition")}`
      + (each.data.damaged ? `, ${number(each.data.damaged)} damaged` : ""));
    const large = tiles.filter((each) => inner(each) > 44 && each.y1 - each.y0 > 20);
    large.append("text").attr("class", "tile-name").attr("x", 6).attr("y", 16)
      .attr("pointer-events", "none")
      .text((each) => clipped(strings[each.data.name], inner(each) - 8, 7.9));
    large.filter((each) => each.y1 - each.y0 > 38 && inner(each) > 66).append("text")
      .attr("class", "tile-size").attr("x", 6).attr("y", 32).attr("pointer-events", "none")
      .text((each) => bytes(each.value));
  }

  // ---- Over time ----

  function drawTimes(box, width) {
    const times = pictures.times;
    const height = 150;
    const left = 74;
    ["bytes", "records"].forEach((measure, at) => {
      const svg = canvas(box, width, height + (at ? 26 : 14), `${measure} over time`);
      const x = d3.scaleUtc([times.start, times.start + times.width * times.count], [left, width - 6]);
      const tops = new Array(times.count).fill(0);
      const bars = [];
      times.series.forEach((series, color) => {
        for (const [bar, amount] of series[measure]) {
          bars.push({ series, color, bar, amount, from: tops[bar] });
          tops[bar] += amount;
        }
      });
      const y = d3.scaleLinear([0, d3.max(tops) || 1], [height - 4, 22]).nice(4);
      svg.append("text").attr("class", "title").attr("x", 0).attr("y", 12)
        .text(measure === "bytes" ? "Bytes" : "Records");
      const format = measure === "bytes" ? (value) => bytes(value) : (value) => compact.format(value);
      svg.append("g").attr("class", "axis").attr("transform", `translate(${left},0)`)
        .call(d3.axisLeft(y).ticks(4).tickSize(-(width - 6 - left)).tickFormat(format))
        .call((axis) => axis.select(".domain").remove());
      const barWidth = (width - 6 - left) / times.count;
      const drawn = svg.append("g").selectAll("rect").data(bars).join("rect")
        .attr("class", (each) => `c${Math.min(each.color, 6)}`)
        .attr("x", (each) => left + each.bar * barWidth)
        .attr("width", Math.max(1, barWidth - (barWidth > 4 ? 1 : 0)))
        .attr("y", (each) => y(each.from + each.amount))
        .attr("height", (each) => Math.max(0.5, y(each.from) - y(each.from + each.amount)));
      hint(drawn, (each) => `${strings[each.series.name]}\n`
        + `${time(times.start + each.bar * times.width)}, ${span(times.width)}\n`
        + (measure === "bytes" ? bytes(each.amount) : counted(each.amount, "record")));
      drawn.attr("tabindex", null);
      if (at) {
        svg.append("g").attr("class", "axis").attr("transform", `translate(0,${height - 4})`)
          .call(d3.axisBottom(x).ticks(Math.max(2, Math.floor(width / 130))).tickSizeOuter(0));
      }
    });
  }

  function span(milliseconds) {
    const seconds = milliseconds / 1000;
    for (const [size, name] of [[86400, "day"], [3600, "hour"], [60, "minute"]]) {
      if (seconds >= size) return counted(seconds / size, name);
    }
    return counted(seconds, "second");
  }

  // ---- Batches ----

  function drawSizesOfBatches(box, width) {
    const found = pictures.batches.sizes;
    const first = found[0][0];
    const last = found[found.length - 1][0];
    const height = 200;
    const svg = canvas(box, width, height + 28, "Batches by size");
    const x = d3.scaleBand(d3.range(first, last + 1), [56, width]).padding(0.12);
    const y = d3.scaleLinear([0, d3.max(found, (each) => each[1])], [height, 24]).nice(4);
    svg.append("text").attr("class", "title").attr("x", 0).attr("y", 12).text("Batches by size");
    svg.append("g").attr("class", "axis").attr("transform", "translate(56,0)")
      .call(d3.axisLeft(y).ticks(4).tickSize(-(width - 56)).tickFormat((value) => compact.format(value)))
      .call((axis) => axis.select(".domain").remove());
    const step = Math.ceil((last - first + 1) / Math.max(2, Math.floor(width / 64)));
    svg.append("g").attr("class", "axis").attr("transform", `translate(0,${height})`)
      .call(d3.axisBottom(x).tickSizeOuter(0)
        .tickValues(d3.range(first, last + 1, step))
        .tickFormat((power) => bytes(2 ** power).replace(".0", "")));
    const bars = svg.append("g").selectAll("rect").data(found).join("rect")
      .attr("class", "c0").attr("x", (each) => x(each[0])).attr("width", x.bandwidth())
      .attr("y", (each) => Math.min(y(each[1]), height - 1)).attr("height", (each) => Math.max(1, height - y(each[1])));
    hint(bars, (each) => `${bytes(2 ** each[0])} to ${bytes(2 ** (each[0] + 1))}\n`
      + `${counted(each[1], "batch", "batches")}, ${counted(each[2], "record")}\n${bytes(each[3])}`);
  }

  function drawBars(box, width, rows, label, isBytes) {
    // Rows: a name, parts with a class and an amount, words at the end, words on hover.
    const lineHeight = 40;
    const top = label ? 22 : 0;
    const svg = canvas(box, width, top + rows.length * lineHeight, label || "Bars");
    if (label) svg.append("text").attr("class", "title").attr("x", 0).attr("y", 12).text(label);
    const most = d3.max(rows, (row) => d3.sum(row.parts, (part) => part.amount)) || 1;
    const x = d3.scaleLinear([0, most], [0, width]);
    rows.forEach((row, line) => {
      const y = top + line * lineHeight;
      const end = row.end ?? (isBytes ? bytes : number)(d3.sum(row.parts, (part) => part.amount));
      svg.append("text").attr("x", 0).attr("y", y + 13).text(clipped(row.name, width - end.length * 7 - 10));
      svg.append("text").attr("class", "soft").attr("x", width).attr("y", y + 13)
        .attr("text-anchor", "end").text(end);
      let from = 0;
      const parts = row.parts.map((part) => {
        const placed = { ...part, from };
        from += part.amount;
        return placed;
      });
      const bars = svg.append("g").selectAll("rect").data(parts).join("rect")
        .attr("class", (part) => part.className).attr("x", (part) => x(part.from)).attr("y", y + 18)
        .attr("height", 12).attr("width", (part) => (part.amount ? Math.max(1, x(part.amount)) : 0));
      hint(bars, (part) => `${row.name}\n${part.words}`);
    });
  }

  function drawCodecs(box, width) {
    const rows = pictures.batches.codecs.map(([name, batches, records, size]) => ({
      name,
      end: bytes(size),
      parts: [{
        className: "c0",
        amount: size,
        words: `${bytes(size)}\n${counted(batches, "batch", "batches")}, ${counted(records, "record")}`,
      }],
    }));
    drawBars(box, width, rows, "Bytes by codec", true);
  }

  function drawLag(box, width) {
    const rows = pictures.lag.groups.map((group) => ({
      name: strings[group.name],
      end: `${number(group.lag)}${group.unknown ? " + ?" : ""}`,
      parts: [{
        className: "c0",
        amount: Number(group.lag),
        words: `lag ${number(group.lag)} in ${counted(group.partitions, "partition")}`
          + (group.unknown ? `\nunknown in ${number(group.unknown)}` : ""),
      }],
    }));
    drawBars(box, width, rows, "", false);
  }

  function drawSpace(box, width) {
    const rows = pictures.space.topics.map((topic) => ({
      name: strings[topic.name],
      parts: [
        { className: "c1", amount: topic.retention, words: `retention deletes ${bytes(topic.retention)}` },
        { className: "c0", amount: topic.cleanable, words: `the log cleaner rewrites ${bytes(topic.cleanable)}` },
      ],
    }));
    drawBars(box, width, rows, "", true);
  }

  // ---- Transactions ----

  function drawTransactions(box, width) {
    const lineHeight = 46;
    const found = pictures.transactions.partitions;
    const svg = canvas(box, width, found.length * lineHeight, "Open transactions");
    found.forEach((each, line) => {
      const y = line * lineHeight;
      const [start, end] = [Number(each.start), Number(each.end)];
      const x = d3.scaleLinear([start, Math.max(end, start + 1)], [0, width - 2]).clamp(true);
      const stable = each.stable === null ? null : Number(each.stable);
      const held = stable === null ? "last stable offset unknown"
        : `${number(end - stable)} of ${number(end - start)} held back`;
      svg.append("text").attr("x", 0).attr("y", y + 13).text(clipped(strings[each.name], width - held.length * 7 - 10));
      svg.append("text").attr("class", "soft").attr("x", width).attr("y", y + 13).attr("text-anchor", "end").text(held);
      const parts = stable === null ? [["padding", start, end, "offsets, of unknown stability"]]
        : [["valid", start, stable, "stable offsets"], ["mixed", stable, end, "offsets held back"]];
      const bars = svg.append("g").selectAll("rect").data(parts).join("rect")
        .attr("class", (part) => part[0]).attr("x", (part) => x(part[1])).attr("y", y + 19).attr("height", 12)
        .attr("width", (part) => Math.max(0, x(part[2]) - x(part[1])));
      hint(bars, (part) => `${part[3]}\n${number(part[1])} to ${number(part[2])}`);
      if (each.mark !== null) {
        svg.append("line").attr("class", "mark").attr("x1", x(Number(each.mark))).attr("x2", x(Number(each.mark)))
          .attr("y1", y + 16).attr("y2", y + 34);
      }
      const dots = svg.append("g").selectAll("circle").data(each.open).join("circle")
        .attr("class", "dot").attr("r", 4).attr("cx", (offset) => Math.max(4, x(Number(offset)))).attr("cy", y + 25);
      hint(dots, (offset) => `open transaction\nfirst offset ${number(offset)}`);
    });
  }

  // ---- Tables ----

  const shownTables = [];

  class DataTable {
    constructor(box) {
      this.table = tables[box.dataset.table];
      this.columns = this.table.columns.map((column, at) => ({ ...column, at, isText: column.kind === "text" }));
      this.order = d3.range(this.table.rows);
      this.sorted = null;
      this.texts = null;
      this.needle = "";
      this.facet = null;
      this.rowsShown = new Map();
      this.widths = this.columns.map((column) => this.widthOf(column));
      this.template = this.widths.map((width) => `${width}px`).join(" ");
      this.build(box);
      this.select();
    }

    widthOf(column) {
      const most = { severity: 90, worst: 90, code: 200, path: 330, what: 420, verdict: 460, directory: 230, partition: 230,
        group: 220, log_dir: 200, transactional_id: 220 }[column.key];
      return most || { text: 170, bytes: 105, number: 115, timestamp: 200 }[column.kind];
    }

    build(box) {
      const tools = element("div", "tools");
      this.input = element("input");
      this.input.type = "search";
      this.input.placeholder = "Filter";
      this.input.setAttribute("aria-label", `Filter ${box.dataset.name}`);
      this.input.addEventListener("input", () => { this.needle = this.input.value.toLowerCase(); this.select(); });
      this.shown = element("span", "shown");
      tools.append(this.input, ...this.facets(box), this.shown);
      this.scroll = element("div", "scroll");
      this.scroll.tabIndex = 0;
      this.scroll.setAttribute("role", "table");
      this.scroll.setAttribute("aria-rowcount", String(this.table.rows));
      this.body = element("div", "body");
      this.body.setAttribute("role", "rowgroup");
      this.scroll.append(this.head(), this.body);
      this.scroll.addEventListener("scroll", () => this.draw(), { passive: true });
      this.body.addEventListener("click", (event) => {
        const row = event.target.closest(".row");
        if (row) this.choose(Number(row.dataset.row));
      });
      this.body.addEventListener("keydown", (event) => {
        const row = event.target.closest(".row");
        if (row && event.key === "Enter") this.choose(Number(row.dataset.row));
      });
      this.detail = element("dl", "detail");
      this.detail.hidden = true;
      box.append(tools, this.scroll, this.detail);
    }

    facets(box) {
      const column = this.columns.find((each) => each.key === box.dataset.facet);
      if (!column) return [];
      const cells = this.table.cells[column.at];
      const counts = d3.rollup(cells, (found) => found.length, (cell) => cell);
      if (counts.size < 2) return [];
      const select = element("select");
      select.setAttribute("aria-label", column.label);
      select.append(new Option(`${column.label}: all`, ""));
      for (const [cell, count] of counts) {
        select.append(new Option(`${shown(cell, "text")} (${number(count)})`, String(cell)));
      }
      select.addEventListener("change", () => {
        this.facet = select.value === "" ? null : { cells, cell: Number(select.value) };
        this.select();
      });
      return [select];
    }

    head() {
      const head = element("div", "head");
      this.heads = head;
      head.setAttribute("role", "row");
      head.style.gridTemplateColumns = this.template;
      this.headings = this.columns.map((column) => {
        const cell = element("div");
        cell.setAttribute("role", "columnheader");
        cell.setAttribute("aria-sort", "none");
        const button = element("button", column.isText ? "" : "num", column.label);
        button.type = "button";
        button.addEventListener("click", () => this.sort(column));
        cell.append(button);
        head.append(cell);
        return cell;
      });
      return head;
    }

    sort(column) {
      const isSame = this.sorted && this.sorted.column === column;
      const isDown = isSame ? !this.sorted.isDown : !column.isText;
      this.sorted = { column, isDown };
      const cells = this.table.cells[column.at];
      const sign = isDown ? -1 : 1;
      const ranks = column.isText ? this.ranks() : null;
      const value = ranks ? (row) => ranks[cells[row]] : (row) => Number(cells[row]);
      this.order = d3.range(this.table.rows).sort((left, right) => {
        if (cells[left] === null || cells[right] === null) {
          return (cells[left] === null) - (cells[right] === null) || left - right;
        }
        return sign * (value(left) - value(right)) || left - right;
      });
      this.headings.forEach((heading, at) => heading.setAttribute(
        "aria-sort", at === column.at ? (isDown ? "descending" : "ascending") : "none"));
      this.select();
    }

    ranks() {
      const collator = new Intl.Collator("en", { numeric: true });
      const order = d3.range(strings.length).sort((left, right) => collator.compare(strings[left], strings[right]));
      const ranks = new Array(strings.length);
      order.forEach((text, rank) => { ranks[text] = rank; });
      DataTable.prototype.ranks = () => ranks;
      return ranks;
    }

    select() {
      if (this.needle && !this.texts) {
        const texts = this.columns.filter((column) => column.isText).map((column) => this.table.cells[column.at]);
        this.texts = d3.range(this.table.rows).map((row) => texts
          .map((cells) => (cells[row] === null ? "" : strings[cells[row]])).join("\n").toLowerCase());
      }
      this.rows = this.order.filter((row) => (!this.needle || this.texts[row].includes(this.needle))
        && (!this.facet || this.facet.cells[row] === this.facet.cell));
      const all = number(this.table.rows);
      const leftOut = this.table.leftOut ? `; ${number(this.table.leftOut)} more are not in this page` : "";
      this.shown.textContent = (this.rows.length === this.table.rows ? `${all} rows`
        : `${number(this.rows.length)} of ${all} rows`) + leftOut;
      this.body.style.height = `${this.rows.length * ROW_HEIGHT}px`;
      this.scroll.scrollTop = 0;
      this.clear();
      this.draw();
    }

    clear() {
      this.body.replaceChildren();
      this.rowsShown.clear();
    }

    draw() {
      const first = Math.max(0, Math.floor(this.scroll.scrollTop / ROW_HEIGHT) - 8);
      const last = Math.min(this.rows.length, first + Math.ceil((this.scroll.clientHeight || 460) / ROW_HEIGHT) + 18);
      this.drawRows(first, last);
    }

    drawRows(first, last) {
      for (const [place, row] of this.rowsShown) {
        if (place < first || place >= last) {
          row.remove();
          this.rowsShown.delete(place);
        }
      }
      for (let place = first; place < last; place += 1) {
        if (!this.rowsShown.has(place)) {
          const row = this.row(place);
          this.rowsShown.set(place, row);
          this.body.append(row);
        }
      }
    }

    row(place) {
      const at = this.rows[place];
      const row = element("div", "row");
      row.setAttribute("role", "row");
      row.setAttribute("aria-rowindex", String(place + 1));
      row.tabIndex = -1;
      row.dataset.row = String(at);
      row.style.gridTemplateColumns = this.template;
      row.style.transform = `translateY(${place * ROW_HEIGHT}px)`;
      for (const column of this.columns) {
        const value = this.table.cells[column.at][at];
        const text = value === null && column.isText ? "" : shown(value, column.kind);
        const isWord = column.key === "severity" || column.key === "worst";
        const cell = element("div", `cell${column.isText ? "" : " num"}${isWord ? ` ${text}` : ""}`, text);
        cell.setAttribute("role", "cell");
        row.append(cell);
      }
      return row;
    }

    choose(at) {
      this.detail.replaceChildren();
      for (const column of this.columns) {
        const value = this.table.cells[column.at][at];
        if (value === null) continue;
        this.detail.append(element("dt", "", column.label), element("dd", "", shown(value, column.kind)));
      }
      this.detail.hidden = false;
      for (const row of this.rowsShown.values()) {
        row.classList.toggle("chosen", Number(row.dataset.row) === at);
      }
    }

    setTemplate(template) {
      this.template = template;
      this.heads.style.gridTemplateColumns = template;
      this.clear();
    }

    print() {
      // A sheet of paper does not scroll: the columns share its width.
      this.setTemplate(this.widths.map((width) => `minmax(0, ${width}fr)`).join(" "));
      this.drawRows(0, Math.min(this.rows.length, PRINTED_ROWS));
      const more = this.rows.length - PRINTED_ROWS;
      if (more > 0) {
        this.rest = element("p", "note", `${counted(more, "more row")} not printed: filter or sort before printing.`);
        this.scroll.after(this.rest);
      }
    }

    unprint() {
      if (this.rest) this.rest.remove();
      this.rest = null;
      this.setTemplate(this.widths.map((width) => `${width}px`).join(" "));
      this.draw();
    }
  }

  // ---- Begin ----

  legend("maps-legend", [...KINDS.slice(0, 3).map((kind, at) => [kind, KIND_NAMES[at]]),
    ["quarantined", "quarantined by salvage (places in the log as it was)"]]);
  if (pictures.times) {
    legend("times-legend", pictures.times.series.map((series, at) => [`c${Math.min(at, 6)}`, strings[series.name]]));
  }
  legend("transactions-legend", [["valid", "up to the last stable offset"], ["mixed", "held back"],
    ["c1", "high watermark"], ["damaged-bytes", "first offset of an open transaction"]]);
  legend("space-legend", [["c1", "retention deletes"], ["c0", "the log cleaner rewrites"]]);
  chart("maps-chart", drawMaps);
  chart("sizes-chart", drawSizes);
  chart("times-chart", drawTimes);
  chart("batches-chart", drawSizesOfBatches);
  chart("codecs-chart", drawCodecs);
  chart("lag-chart", drawLag);
  chart("transactions-chart", drawTransactions);
  chart("space-chart", drawSpace);
  for (const box of document.querySelectorAll(".table")) shownTables.push(new DataTable(box));

  const fit = () => charts.forEach((each) => each.redraw(each.inner()));
  window.addEventListener("resize", () => requestAnimationFrame(fit));
  let closed = [];
  window.addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    closed.forEach((each) => { each.open = true; });
    charts.forEach((each) => each.redraw(680));
    shownTables.forEach((each) => each.print());
  });
  window.addEventListener("afterprint", () => {
    closed.forEach((each) => { each.open = false; });
    fit();
    shownTables.forEach((each) => each.unprint());
  });
})();
