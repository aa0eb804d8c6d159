/* Times in the browser's zone, day headings, copying, folding and keys. Pages work without it:
   then times are shown as UTC. */
"use strict";
{
    const given = document.documentElement.lang || "ru";
    const language = given === "en" ? "en-GB" : given;
    const own = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
    const zone = document.querySelector("meta[name=zone]")?.content || own;
    // For what the server writes: files, notes, weeks.
    document.cookie = `annals_tz=${own}; path=/; max-age=31536000; SameSite=Lax`;
    const format = (options) => new Intl.DateTimeFormat(language, { ...options, timeZone: zone });
    // Of 24 hours in every language: the fraction of the second follows it.
    const clock = format({
        hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23",
    });
    const day = format({ weekday: "long", day: "numeric", month: "long", year: "numeric" });
    // As the dates in documents are shown: 2026-11-27, in Russian 27.11.2026.
    const date = new Intl.DateTimeFormat(given === "en" ? "sv" : given, {
        day: "2-digit", month: "2-digit", year: "numeric", timeZone: zone,
    });
    const offset = new Intl.DateTimeFormat("en", { timeZone: zone, timeZoneName: "longOffset" });

    const offsetOf = (moment) => {
        const part = offset.formatToParts(moment).find((one) => one.type === "timeZoneName");
        return part.value.replace("GMT", "UTC");
    };

    const showTime = (element) => {
        const stored = element.getAttribute("datetime");
        const moment = new Date(stored.replace(/(\.\d{3})\d+/, "$1"));
        if (Number.isNaN(moment.getTime())) {
            return;
        }
        const fraction = (/\.(\d+)/.exec(stored) || ["", ""])[1];
        const time = clock.format(moment);
        element.title = `${date.format(moment)}, ${time}${fraction && "." + fraction} `
            + `${offsetOf(moment)} (${zone})\n${element.dataset.utc || stored.replace("T", " ").replace("Z", " UTC")}`;
        const near = day.format(moment) === day.format(new Date())
            ? time : `${date.format(moment)}, ${time}`;
        const shown = { clock: time, date: date.format(moment), near };
        element.textContent = shown[element.dataset.when] || `${date.format(moment)}, ${time}`;
        element.dataset.day = day.format(moment).replace(/\sг\.$/, "");
    };

    const addDayHeadings = (list) => {
        let last = "";
        for (const item of list.querySelectorAll(":scope > .version")) {
            const time = item.querySelector("time[data-when=clock]");
            const name = time ? time.dataset.day : "";
            if (name && name !== last) {
                const head = document.createElement("li");
                head.className = "day";
                const text = document.createElement("h2");
                text.textContent = name;
                head.append(text);
                item.before(head);
                last = name;
            }
        }
    };

    const showZone = () => {
        const now = new Date();
        for (const element of document.querySelectorAll("[data-zone]")) {
            element.textContent = `${zone}, ${offsetOf(now)}`;
        }
        for (const input of document.querySelectorAll("input[name=tz]")) {
            input.value = zone;
        }
    };

    const offerCopy = (button) => {
        if (!navigator.clipboard) {
            return;
        }
        button.hidden = false;
        button.addEventListener("click", async () => {
            const { copy, copyFrom } = button.dataset;
            await navigator.clipboard.writeText(copyFrom
                ? await (await fetch(copyFrom, { redirect: "error" })).text()
                : copy.startsWith("/") ? new URL(copy, location).href : copy);
            const label = button.textContent;
            button.textContent = button.dataset.done;
            setTimeout(() => { button.textContent = label; }, 1500);
        });
    };

    const offerFolding = (button) => {
        const folds = document.querySelectorAll(".versions details, .comparison details");
        if (!folds.length) {
            return;
        }
        button.hidden = false;
        button.addEventListener("click", () => {
            const open = button.getAttribute("aria-pressed") !== "true";
            folds.forEach((fold) => { fold.open = open; });
            button.setAttribute("aria-pressed", String(open));
            button.textContent = open ? button.dataset.close : button.dataset.open;
        });
    };

    // The field stays a text, which takes words too: the browser's own calendar writes into it.
    const offerCalendar = (field) => {
        const picker = document.createElement("input");
        picker.type = "datetime-local";
        if (!picker.showPicker) {
            return;
        }
        picker.className = "picker";
        picker.tabIndex = -1;
        picker.setAttribute("aria-hidden", "true");
        const button = document.createElement("button");
        button.type = "button";
        button.className = "plain pick";
        button.title = field.dataset.pick;
        button.setAttribute("aria-label", field.dataset.pick);
        const group = document.createElement("span");
        group.className = "moment-field";
        field.before(group);
        group.append(field, button, picker);
        button.addEventListener("click", () => {
            const [, d, m, y, time] = /^(\d\d)\.(\d\d)\.(\d{4})(?: (\d\d:\d\d))?$/.exec(field.value) || [];
            picker.value = y ? `${y}-${m}-${d}T${time || "00:00"}`
                : field.value.replace(" ", "T").slice(0, 16);
            picker.showPicker();
        });
        picker.addEventListener("input", () => {
            const [, y, m, d, time] = /^(\d{4})-(\d\d)-(\d\d)T(\d\d:\d\d)/.exec(picker.value) || [];
            field.value = y ? `${d}.${m}.${y} ${time}` : "";
        });
    };

    // A menu lies over the page, so it closes when something else is clicked.
    const closeMenus = (event) => document.querySelectorAll(".take[open]").forEach((menu) => {
        if (!event || !menu.contains(event.target)) {
            menu.open = false;
        }
    });

    const step = (by) => {
        const stops = [...document.querySelectorAll(".version-number")];
        const here = stops.indexOf(document.activeElement);
        const next = stops[here < 0 ? (by > 0 ? 0 : stops.length - 1) : here + by];
        if (next) {
            next.focus({ preventScroll: true });
            next.closest(".version").scrollIntoView({ block: "start" });
        }
    };

    const keys = {
        "/": () => document.querySelector("[data-search]")?.focus(),
        "j": () => step(1),
        "k": () => step(-1),
        "o": () => document.querySelector("[data-fold]:not([hidden])")?.click(),
        "n": () => document.querySelector("a[rel=next]")?.click(),
        "p": () => document.querySelector("a[rel=prev]")?.click(),
        "x": () => document.activeElement.closest(".version")
            ?.querySelectorAll("details").forEach((one) => { one.open = !one.open; }),
        "c": () => document.activeElement.closest(".version")
            ?.querySelector("[data-copy]")?.click(),
        "?": () => document.querySelector(".keys")?.showModal(),
        "Escape": () => {
            closeMenus();
            document.querySelectorAll(".filter[open]").forEach((one) => { one.open = false; });
        },
    };
    // The same keys on a Russian keyboard.
    Object.assign(keys, { ".": keys["/"], "о": keys.j, "л": keys.k, "щ": keys.o, "т": keys.n,
        "з": keys.p, "ч": keys.x, "с": keys.c, ",": keys["?"],
        "[": keys.n, "]": keys.p, "х": keys.n, "ъ": keys.p });
    const off = () => localStorage.getItem("annals-keys") === "off";

    const onKey = (event) => {
        const typing = event.target.closest("input, textarea, select, [contenteditable], dialog");
        // The search box of the first page is focused: nobody searches for a question mark.
        const asks = event.key === "?" && event.target.matches("[data-search]:placeholder-shown");
        const action = keys[event.key];
        if (action && (asks || !typing) && !off() && !event.ctrlKey && !event.metaKey && !event.altKey) {
            event.preventDefault();
            action();
        }
    };

    // The header says that nobody did anything: an idle login still ends.
    const watch = (place) => setInterval(async () => {
        const headers = { "X-Annals-Poll": "1" };
        const answer = document.hidden ? null
            : await fetch(place.dataset.newer, { headers, redirect: "error" }).catch(() => null);
        const { text } = answer?.ok ? await answer.json() : {};
        if (text && text !== place.textContent) {
            const link = document.createElement("a");
            link.href = location.pathname;
            link.textContent = text;
            place.replaceChildren(link);
        }
    }, 30000);

    // A narrow window has no head of the table: each cell of a stock list says what it is.
    const labelCells = (table) => {
        const names = [...table.tHead.rows[0].cells].map((cell) =>
            cell.querySelector(".text")?.textContent.trim() || "");
        for (const row of table.tBodies[0].rows) {
            [...row.cells].forEach((cell, place) => {
                if (cell.tagName === "TD" && names[place] && !cell.matches(".action-checkbox")) {
                    cell.dataset.label = names[place];
                }
            });
        }
    };

    const showTimes = () => document.querySelectorAll("time[data-when]").forEach(showTime);

    const start = () => {
        showTimes();
        document.addEventListener("annals:shown", showTimes);
        document.querySelectorAll("ol.versions").forEach(addDayHeadings);
        showZone();
        document.querySelectorAll("[data-copy], [data-copy-from]").forEach(offerCopy);
        document.querySelectorAll("[data-fold]").forEach(offerFolding);
        document.querySelectorAll("[data-newer]").forEach(watch);
        document.querySelectorAll("[data-print]").forEach((button) => {
            button.hidden = false;
            button.addEventListener("click", () => window.print());
        });
        document.querySelectorAll("[data-help]").forEach((button) => {
            button.hidden = false;
            button.addEventListener("click", keys["?"]);
        });
        document.querySelectorAll("[data-keys]").forEach((box) => {
            box.checked = !off();
            box.addEventListener("change", () => {
                localStorage.setItem("annals-keys", box.checked ? "on" : "off");
            });
        });
        document.querySelectorAll("#result_list").forEach(labelCells);
        document.querySelectorAll("[data-pick]").forEach(offerCalendar);
        document.addEventListener("click", closeMenus);
        document.addEventListener("keydown", onKey);
        document.documentElement.dataset.ready = "true";
    };
    start();
}
