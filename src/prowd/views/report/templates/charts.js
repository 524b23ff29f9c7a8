// The lines of the page: values where one points, methods that can be switched off in all charts at once.
(() => {
  "use strict";
  const root = document.documentElement;
  const DASH = 1.9; // pixels a unit of dashes
  const hidden = new Set(); // names of lines that are switched off
  const charts = []; // every chart that is drawn: { plot, lines }
  const keys = []; // the buttons that switch lines off

  const make = (tag, className, text) => {
    const made = document.createElement(tag);
    made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  };

  // Colours: the page's own, which change with its theme
  const palette = {};
  const readColours = () => {
    const probe = document.body.appendChild(make("i", ""));
    for (const name of ["ink", "quiet", "line", "card", "c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7"]) {
      probe.style.color = `var(--${name})`;
      palette[name] = getComputedStyle(probe).color;
    }
    probe.remove();
  };
  const colour = (line) => palette[`c${line.colour}`];

  // Numbers
  const digits = (value, unit) => value.toFixed(unit ? 2 : 3);
  const interval = (line, at, unit) => {
    const half = line.half?.[at] ?? null;
    return digits(line.mean[at], unit) + (half === null ? "" : ` ± ${digits(half, unit)}`) + unit;
  };
  const places = (line, against) => (against === "rounds" ? line.round : line.mb);

  // All places of a panel in order, and of every line the point that it has at each of them
  const align = (lines, against) => {
    const moving = lines.filter((line) => against === "rounds" || !line.level);
    const some = moving.length ? moving : lines;
    const xs = [...new Set(some.flatMap((line) => places(line, against)))].sort((a, b) => a - b);
    const row = new Map(xs.map((x, n) => [x, n]));
    const points = lines.map((line) => {
      const found = new Array(xs.length).fill(null);
      if (some.includes(line)) places(line, against).forEach((x, at) => (found[row.get(x)] = at));
      else xs.forEach((_, n) => (found[n] = line.mean.length - 1)); // a level line
      return found;
    });
    const means = points.map((found, n) => found.map((at) => (at === null ? null : lines[n].mean[at])));
    return { xs, points, means };
  };

  const nearest = (column, at) => {
    for (let away = 0; away < column.length; away++) {
      if (column[at - away] != null) return at - away;
      if (column[at + away] != null) return at + away;
    }
    return at;
  };

  // From the lowest to the highest line that is shown: bands of few seeds are wider than all accuracies there are
  const span = (options) => (plot) => {
    const { min, max } = plot.scales.x;
    let [low, high] = [Infinity, -Infinity];
    for (let n = 1; n < plot.series.length; n++) {
      if (!plot.series[n].show) continue;
      plot.data[n].forEach((value, at) => {
        const x = plot.data[0][at];
        if (value === null || (min != null && (x < min || x > max))) return;
        [low, high] = [Math.min(low, value), Math.max(high, value)];
      });
    }
    if (low > high) return options.bounds ?? [0, 1];
    const margin = Math.max(0.08 * (high - low), options.margin);
    const [least, most] = options.bounds ?? [-Infinity, Infinity];
    return [Math.max(low - margin, least), Math.min(high + margin, most === 100 ? 100.5 : most)];
  };

  // Confidence intervals, under the lines: drawn where they are worth it, from three seeds on
  const drawBands = (lines, points, note) => (plot) => {
    const { ctx, bbox } = plot;
    const edge = (line, sign) => ([point, x]) => [
      plot.valToPos(plot.data[0][x], "x", true),
      plot.valToPos(line.mean[point] + sign * (line.half[point] ?? 0), "y", true),
    ];
    const bands = lines.flatMap((line, n) => {
      if (!plot.series[n + 1].show || !line.half || line.seeds < 3) return [];
      const at = points[n].map((point, x) => [point, x]).filter(([point]) => point !== null);
      return [{ line, corners: [...at.map(edge(line, 1)), ...at.map(edge(line, -1)).reverse()] }];
    });
    const isSeen = ([, y]) => y > bbox.top && y < bbox.top + bbox.height;
    note.hidden = !bands.length || bands.some(({ corners }) => corners.some(isSeen));
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.globalAlpha = note.hidden ? 0.15 : 0.05;
    for (const { line, corners } of bands) {
      ctx.beginPath();
      corners.forEach(([x, y]) => ctx.lineTo(x, y));
      ctx.closePath();
      ctx.fillStyle = colour(line);
      ctx.fill();
    }
    ctx.restore();
  };

  const swatch = (line) => {
    const key = make("i", "swatch");
    const [on, off] = line.dash.length ? line.dash : [1, 0];
    const stops = off ? `var(--c${line.colour}) 0 ${on * 2}px, transparent 0 ${(on + off) * 2}px` : "";
    key.style.background = off ? `repeating-linear-gradient(90deg, ${stops})` : `var(--c${line.colour})`;
    return key;
  };

  // The values at a place, in words: every line at its own nearest point
  const tell = (tip, plot, lines, points, options) => {
    const { left, top, idx } = plot.cursor;
    const isOver = left >= 0 && idx !== null && tip.dataset.on === "true";
    tip.hidden = !isOver;
    if (!isOver) return;
    const rows = lines.flatMap((line, n) => {
      const at = points[n][plot.cursor.idxs[n + 1] ?? -1];
      if (!plot.series[n + 1].show || at == null) return [];
      const level = options.against !== "rounds" && line.level;
      const [where, moved] = [level ? "final" : `round ${line.round[at]}`, `${Number(line.mb[at]?.toPrecision(4))} MB`];
      return [{ line, at, where: options.against === "rounds" || level ? where : `${where}, ${moved}` }];
    });
    const same = rows.every(({ where }) => where === rows[0].where);
    const head = make("strong", "", same && rows.length ? rows[0].where : "nearest points");
    tip.replaceChildren(head);
    rows.sort((one, other) => other.line.mean[other.at] - one.line.mean[one.at]);
    for (const { line, at, where } of rows) {
      const row = make("div", "");
      const name = make("span", "name", line.name);
      row.append(swatch(line), name, make("span", "value", interval(line, at, options.unit)));
      if (!same) {
        const [round, moved] = where.split(",");
        const told = make("span", "where", round);
        if (moved) told.append(make("span", "moved", `,${moved}`)); // for which a phone has no room
        row.append(told);
      }
      tip.append(row);
    }
    if (rows.some(({ line }) => line.half)) tip.append(make("small", "", "± 95 % interval over the seeds"));
    else if (rows.some(({ line }) => line.seeds === 1)) tip.append(make("small", "", "one seed: no interval"));
    const box = plot.over.getBoundingClientRect();
    const isNarrow = box.width < 2 * tip.offsetWidth; // then below the lines, not on them
    const x = isNarrow ? 0 : left + 14 + tip.offsetWidth > box.width ? left - 14 - tip.offsetWidth : left + 14;
    const y = isNarrow ? box.height + 26 : Math.max(Math.min(top - tip.offsetHeight / 2, box.height - tip.offsetHeight), 0);
    tip.style.left = `${Math.max(Math.min(x, root.clientWidth - box.left - tip.offsetWidth - 8), 4 - box.left)}px`;
    tip.style.top = `${y}px`;
  };

  const axis = (more) => ({
    stroke: () => palette.quiet,
    font: "12px system-ui, sans-serif",
    grid: { stroke: () => palette.line, width: 0.5 },
    ticks: { show: false },
    ...more,
  });

  const height = (width) => Math.round(Math.min(Math.max(0.58 * width, 210), 330));

  const draw = (place, panel, options, key) => {
    const { lines } = panel;
    const { xs, points, means } = align(lines, options.against);
    const tip = make("div", "tip");
    tip.setAttribute("role", "status");
    tip.hidden = true;
    const note = make("span", "", " · intervals go beyond");
    note.hidden = true;
    place.previousElementSibling.append(note); // the title of the axis
    const isWhole = options.against === "rounds";
    const ends = (_, low, high) => (low === high ? [low - 0.5, high + 0.5] : [low, high]);
    const set = {
      width: place.clientWidth,
      height: height(place.clientWidth),
      padding: [10, 14, 0, 0],
      legend: { show: false },
      scales: { x: { time: false, range: ends }, y: { range: span(options) } },
      cursor: {
        sync: { key },
        y: false,
        drag: { x: true, y: false, dist: 8 },
        points: { size: 8, width: 2, fill: () => palette.card, stroke: (_, n) => colour(lines[n - 1]) },
        dataIdx: (plot, n, at) => (n ? nearest(plot.data[n], at) : at),
      },
      axes: [
        axis({ size: 30, space: 46, incrs: isWhole ? [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000] : undefined,
          values: (_, marks) => marks.map((mark) => Number(mark.toPrecision(6)).toLocaleString("en")) }),
        axis({ size: 44, space: 34, values: (_, marks) => marks.map((mark) => String(Number(mark.toPrecision(6)))) }),
      ],
      series: [{}, ...lines.map((line) => ({
        label: line.name,
        show: !hidden.has(line.name),
        stroke: () => colour(line),
        width: 2,
        dash: line.dash.map((part) => part * DASH),
        spanGaps: true,
        points: { size: 6, width: 1.5, fill: () => palette.card },
      }))],
      hooks: {
        drawAxes: [drawBands(lines, points, note)],
        setCursor: [(plot) => tell(tip, plot, lines, points, options)],
      },
    };
    const plot = new uPlot(set, [xs, ...means], place);
    plot.over.append(tip);
    const on = (is) => () => (tip.dataset.on = String(is));
    plot.over.addEventListener("mouseenter", on(true), true);
    plot.over.addEventListener("mouseleave", () => { on(false)(); tip.hidden = true; });
    readByKeys(place, plot, tip, xs);
    const chart = { plot, lines, place };
    charts.push(chart);
    sizes.observe(place);
    return chart;
  };

  // Arrow keys read point by point, Escape ends it
  const readByKeys = (place, plot, tip, xs) => {
    const leave = () => {
      tip.dataset.on = "false";
      plot.setCursor({ left: -10, top: -10 });
    };
    place.addEventListener("blur", leave);
    place.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, Home: -xs.length, End: xs.length }[event.key];
      if (event.key === "Escape") leave();
      if (step === undefined) return;
      event.preventDefault();
      const now = tip.dataset.on === "true" ? plot.cursor.idx ?? -1 : step > 0 ? -1 : xs.length;
      const at = Math.min(Math.max(now + step, 0), xs.length - 1);
      tip.dataset.on = "true";
      plot.setCursor({ left: plot.valToPos(xs[at], "x"), top: plot.over.clientHeight / 2 });
    });
  };

  const sizes = new ResizeObserver((seen) => {
    for (const { target } of seen) {
      const width = target.clientWidth;
      const { plot } = charts.find(({ place }) => place === target) ?? {};
      if (plot && width && width !== plot.width) plot.setSize({ width, height: height(width) });
    }
  });

  const forget = (chart) => {
    sizes.unobserve(chart.place);
    charts.splice(charts.indexOf(chart), 1);
    chart.plot.destroy();
  };

  const showChosen = () => {
    for (const { plot, lines } of charts)
      plot.batch(() => lines.forEach((line, n) => {
        if (plot.series[n + 1].show === hidden.has(line.name)) plot.setSeries(n + 1, { show: !hidden.has(line.name) });
      }));
    for (const { button, name } of keys) button.setAttribute("aria-pressed", String(!hidden.has(name)));
    const isEmpty = keys.every(({ name }) => hidden.has(name));
    document.querySelectorAll(".all").forEach((button) => (button.textContent = isEmpty ? "Show all" : "Hide all"));
  };

  const switchAll = () => {
    const isEmpty = keys.every(({ name }) => hidden.has(name));
    keys.forEach(({ name }) => (isEmpty ? hidden.delete(name) : hidden.add(name)));
    showChosen();
  };

  const legend = (panels) => {
    const bar = make("div", "keys");
    bar.setAttribute("role", "group");
    bar.setAttribute("aria-label", "Lines that are shown, in all charts");
    const known = new Map(panels.flatMap(({ lines }) => lines.map((line) => [line.name, line])));
    for (const [name, line] of known) {
      const button = make("button", "key");
      button.type = "button";
      button.append(swatch(line), make("span", "", name));
      button.addEventListener("click", () => {
        if (!hidden.delete(name)) hidden.add(name);
        showChosen();
      });
      keys.push({ button, name });
      bar.append(button);
    }
    if (known.size > 3) { // then one or two of them are easier to find from nothing
      const button = make("button", "all");
      button.type = "button";
      button.addEventListener("click", switchAll);
      bar.append(button);
    }
    return bar;
  };

  const place = (panel, options, within) => {
    const titled = make("div", "panel");
    const box = make("div", "plot");
    box.tabIndex = 0;
    box.setAttribute("role", "group");
    const words = `${panel.title}: ${options.measure} against ${options.across}. Arrow keys read the values.`;
    box.setAttribute("aria-label", words);
    titled.append(make("div", "panel-title", panel.title), make("div", "axis-title", options.measure), box,
      make("div", "axis-title across", options.across));
    within.append(titled);
    return box;
  };

  // One panel at a time: a person is chosen from a list, or by a click on a row of the table beside it
  const chooser = (panels, options, plots, live) => {
    const label = make("label", "chooser", `${options.chosenBy[0].toUpperCase()}${options.chosenBy.slice(1)} `);
    const list = make("select", "");
    panels.forEach(({ title }, n) => list.append(new Option(title, String(n))));
    label.append(list);
    const rows = [...(live.closest(".pair")?.querySelectorAll("tbody tr") ?? [])];
    const isOf = (row) => row.cells[0].textContent === panels[list.value].title;
    let drawn = null;
    const show = () => {
      if (drawn) forget(drawn);
      plots.replaceChildren();
      drawn = draw(place(panels[list.value], options, plots), panels[list.value], options, undefined);
      rows.forEach((row) => row.classList.toggle("is-chosen", isOf(row)));
    };
    list.addEventListener("change", show);
    for (const row of rows) {
      const at = panels.findIndex(({ title }) => title === row.cells[0].textContent);
      if (at < 0) continue;
      row.classList.add("can-be-chosen");
      row.addEventListener("click", () => {
        list.value = String(at);
        show();
      });
    }
    return { label, show };
  };

  const begin = (live, number) => {
    const panels = JSON.parse(document.getElementById(live.dataset.lines).textContent);
    const options = JSON.parse(live.dataset.chart);
    const plots = make("div", "plots");
    live.hidden = false;
    live.closest("figure").classList.add("is-live");
    const bar = legend(panels);
    live.append(bar);
    if (number === 0) bar.append(make("span", "hint", "Point or tap to read values, drag to zoom, double-click to zoom out."));
    if (options.chosenBy) {
      const { label, show } = chooser(panels, options, plots, live);
      live.prepend(label);
      live.append(plots);
      show();
    } else {
      live.append(plots);
      for (const [panel, box] of panels.map((panel) => [panel, place(panel, options, plots)]))
        draw(box, panel, options, `figure-${number}`);
    }
  };

  readColours();
  document.querySelectorAll(".live").forEach(begin);
  showChosen();
  const recolour = () => {
    readColours();
    charts.forEach(({ plot }) => plot.redraw(false, true));
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
  document.addEventListener("themechange", recolour);
  matchMedia("print").addEventListener("change", recolour); // paper is light
})();
