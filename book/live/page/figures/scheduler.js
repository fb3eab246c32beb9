/* Day 15, the scheduler: requests as bars over turns. */
(function () {
    'use strict';
    const { figure, clip } = window.candecode;
    const DEFAULTS = [
        ['Once upon a time', 14, 0],
        ['Lily', 6, 0],
        ['Tom had a big red', 8, 2],
        ['The cat', 5, 4],
    ];
    const controls = [];
    DEFAULTS.forEach(([text, fresh, at], i) => {
        controls.push({ name: `text${i}`, label: `Request ${i}`, kind: 'text', value: text });
        controls.push({
            name: `new${i}`,
            label: `request ${i}: new tokens`,
            kind: 'range',
            min: 1,
            max: 30,
            step: 1,
            value: fresh,
        });
        controls.push({
            name: `at${i}`,
            label: 'comes in turn',
            kind: 'range',
            min: 0,
            max: 20,
            step: 1,
            value: at,
        });
    });
    controls.push({
        name: 'bound',
        label: 'positions that the batch may hold',
        kind: 'range',
        min: 10,
        max: 160,
        step: 2,
        value: 60,
    });

    figure('scheduler', {
        question: 'When does each request run, when does it wait, and what for?',
        tryThis:
            'Lower the bound until only one request runs at a time. Then give the first request few new tokens and the last one many.',
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

        draw(answer, s, f) {
            const w = s.width,
                left = s.narrow ? 18 : 130,
                turns = Math.max(answer.turns.length, 1);
            const cell = Math.min((w - left - 2) / turns, 30);
            let y = 12;
            s.text(
                0,
                y,
                s.narrow
                    ? 'turns →'
                    : 'a column for each turn. Thick border: prefill. Plain: one more token. Dashed: waits. A dot: its last token.',
                'left note',
            );
            y += 14;
            DEFAULTS.forEach((_, id) => {
                s.text(
                    0,
                    y + 11,
                    s.narrow ? String(id) : `${id}: ${clip(f.values[`text${id}`], 13)}`,
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
                    ? 'positions held, padding outlined'
                    : 'positions that the batch holds after each turn; the outlined part is padding',
                'left note',
            );
            y += 10;
            const held = answer.turns.map((turn) => {
                const longest = Math.max(0, ...turn.running.map((row) => row.len + row.padding));
                return {
                    all: longest * turn.running.length,
                    real: turn.running.reduce((sum, row) => sum + row.len, 0),
                };
            });
            const bound = f.values.bound,
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
            for (let t = 0; t < turns; t += turns > 30 ? 10 : 5)
                s.text(left + (t + 0.5) * cell, base + 12, String(t), 'note');
            s.height = base + 22;
            const tokens = answer.turns.reduce((sum, turn) => sum + turn.tokens.length, 0);
            const waited = answer.turns.reduce((sum, turn) => sum + turn.waiting.length, 0);
            const refused = answer.refused.filter(Boolean).length;
            return (
                `${tokens} tokens in ${answer.turns.length} turns. Requests have waited ${waited} ${waited === 1 ? 'turn' : 'turns'} altogether.` +
                (refused ? ` ${refused} ${refused === 1 ? 'was' : 'were'} refused.` : '')
            );
        },
    });
})();
