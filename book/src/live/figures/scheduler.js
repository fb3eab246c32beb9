/* Day 15, the scheduler: requests as bars over iterations. */
(function () {
    'use strict';
    const { figure, clip } = window.candecode;
    const MOST = 60; // iterations that Rust answers for
    const DEFAULTS = [
        ['Once upon a time', 14, 0],
        ['Lily', 6, 0],
        ['Tom had a big red', 8, 2],
        ['The cat', 5, 4],
    ];
    const controls = [];
    controls.push({
        name: 'bound',
        label: 'bound, in positions',
        kind: 'range',
        min: 10,
        max: 160,
        step: 2,
        value: 60,
    });
    DEFAULTS.forEach(([text, fresh, at], i) => {
        controls.push({ name: `text${i}`, label: `Request ${i}`, kind: 'text', value: text });
        controls.push({
            name: `new${i}`,
            label: `${i}: new tokens`,
            kind: 'range',
            min: 1,
            max: 30,
            step: 1,
            value: fresh,
        });
        controls.push({
            name: `at${i}`,
            label: `${i}: comes in iteration`,
            kind: 'range',
            min: 0,
            max: 20,
            step: 1,
            value: at,
        });
    });
    /** The requests that have rows of the batch in this turn: not one that ends with its prefill. */
    const runs = (turn) =>
        DEFAULTS.map((_, id) => id).filter((id) => {
            const tokens = turn.tokens.filter((token) => token.id === id).length;
            return tokens > (turn.admitted.includes(id) ? 1 : 0);
        });

    /** How long each text may become, prompt included, as far as its row has been seen. */
    function may(answer, values) {
        const longest = {};
        const fresh = {};
        for (const turn of answer.turns) {
            for (const { id } of turn.tokens) fresh[id] = (fresh[id] || 0) + 1;
            for (const { id, len } of turn.running) longest[id] = len - fresh[id] + values[`new${id}`];
        }
        return longest;
    }

    /** Why the first request that waits does. */
    function why(answer, room, longest, bound) {
        const t = answer.turns.findIndex((turn) => turn.waiting.length);
        if (t < 0) return '';
        const id = answer.turns[t].waiting[0];
        const { rows, longest: so } = room[t];
        if (!longest[id] || !so) return '';
        const most = Math.max(so, longest[id]);
        return (
            ` In iteration ${t}, ${rows.length + 1} rows of up to ${most} positions would make ` +
            `${(rows.length + 1) * most}, more than ${bound}, so request ${id} waits.`
        );
    }

    figure('scheduler', {
        question: 'When does each request run, when does it wait, and what for?',
        tryThis:
            'Lower the bound until request 2 has to wait. The bars are far below the bound, so what is the room kept for? ' +
            'Then set the bound to 60 again, and request 2 to 30 new tokens. Request 3 would fit. Why does it wait, too?',
        controls,
        ask: (v) => ({
            ask: 'scheduler',
            max_batch_tokens: v.bound,
            requests: DEFAULTS.map((_, i) => ({
                text: v[`text${i}`],
                new: v[`new${i}`],
                at: v[`at${i}`],
            })),
        }),

        draw(answer, s, f, { values }) {
            const w = s.width,
                left = s.narrow ? 18 : 130,
                turns = Math.max(answer.turns.length, 1);
            const cell = Math.min((w - left - 2) / turns, 30);
            let y = 12;
            s.text(
                0,
                y,
                s.narrow
                    ? 'a column per iteration; thick: admitted, dashed: waits'
                    : 'a column for each iteration. Thick border: prefill and first step, two tokens. Plain: one more. Dashed: waits. Dot: the last.',
                'left note',
            );
            y += 14;
            DEFAULTS.forEach((_, id) => {
                s.text(
                    0,
                    y + 11,
                    s.narrow ? String(id) : `${id}: ${clip(values[`text${id}`], 13)}`,
                    'left note',
                );
                answer.turns.forEach((turn, t) => {
                    const x = left + t * cell;
                    const mine = turn.tokens.filter((token) => token.id === id);
                    if (turn.admitted.includes(id))
                        s.group('new', () => s.rect(x + 1, y, cell - 3, 22, 'box'));
                    else if (mine.length)
                        s.group('kept', () => s.rect(x + 1, y, cell - 3, 22, 'box'));
                    else if (turn.waiting.includes(id))
                        s.group('known', () => s.rect(x + 1, y, cell - 3, 22, 'box dashed faint'));
                    if (mine.some((token) => token.finish))
                        s.circle(x + cell / 2 - 0.5, y + 11, Math.min(4, cell / 4), 'dot');
                });
                if (answer.refused[id])
                    s.group('dropped', () =>
                        s.text(
                            left,
                            y + 11,
                            clip(answer.refused[id], (w - left) / 6.4),
                            'left note',
                        ),
                    );
                y += 28;
            });
            y += 16;
            s.text(
                0,
                y,
                s.narrow
                    ? 'positions held, padding outlined; line: reserved'
                    : 'positions that the batch holds after each iteration, with padding outlined. Thick line: what it may come to hold.',
                'left note',
            );
            y += 10;
            const longest = may(answer, values);
            const room = answer.turns.map((turn) => {
                const rows = runs(turn);
                const known = rows.every((id) => longest[id]);
                return { rows, longest: known ? Math.max(0, ...rows.map((id) => longest[id])) : 0 };
            });
            const held = answer.turns.map((turn) => {
                const longest = Math.max(0, ...turn.running.map((row) => row.len + row.padding));
                return {
                    all: longest * turn.running.length,
                    real: turn.running.reduce((sum, row) => sum + row.len, 0),
                };
            });
            const bound = values.bound,
                high = 80,
                scale = high / Math.max(bound, ...held.map((h) => h.all));
            const base = y + high + 6;
            s.path(`M${left} ${base - bound * scale} H${left + turns * cell}`, 'wire dashed');
            s.text(left - 6, base - bound * scale, s.narrow ? '' : `bound ${bound}`, 'note right');
            s.path(`M${left} ${base} H${left + turns * cell}`, 'axis');
            held.forEach((h, t) => {
                s.rect(
                    left + t * cell + 1,
                    base - h.all * scale,
                    cell - 3,
                    h.all * scale,
                    'wire faint',
                );
                s.group('kept', () =>
                    s.rect(
                        left + t * cell + 1,
                        base - h.real * scale,
                        cell - 3,
                        h.real * scale,
                        'bar',
                    ),
                );
            });
            s.group('new', () => {
                let line = '';
                room.forEach(({ rows, longest }, t) => {
                    if (!rows.length || !longest) return;
                    const at = (base - rows.length * longest * scale).toFixed(1);
                    const from = (left + t * cell).toFixed(1);
                    const joins = t && room[t - 1].rows.length && room[t - 1].longest;
                    line += `${joins ? 'L' : 'M'}${from} ${at} H${(left + (t + 1) * cell).toFixed(1)} `;
                });
                if (line) s.path(line, 'plot');
            });
            for (let t = 0; t < turns; t += turns > 30 ? 10 : 5)
                s.text(left + (t + 0.5) * cell, base + 12, String(t), 'note');
            s.height = base + 22;
            const tokens = answer.turns.reduce((sum, turn) => sum + turn.tokens.length, 0);
            const waited = answer.turns.reduce((sum, turn) => sum + turn.waiting.length, 0);
            const refused = answer.refused.filter(Boolean).length;
            const last = answer.turns[answer.turns.length - 1];
            const cut =
                answer.turns.length >= MOST && last.running.length + last.waiting.length > 0;
            return (
                `${tokens} tokens in ${answer.turns.length} iterations. Requests have waited ${waited} ${waited === 1 ? 'iteration' : 'iterations'} altogether.` +
                (refused ? ` ${refused} ${refused === 1 ? 'was' : 'were'} refused.` : '') +
                (cut ? ` The figure stops after ${MOST} iterations.` : '') +
                why(answer, room, longest, bound)
            );
        },
    });
})();
