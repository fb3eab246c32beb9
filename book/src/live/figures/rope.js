/* Day 2, the RoPE dial: move both tokens and the score stays, move one and it does not. */
(function () {
    'use strict';
    const { figure, clip } = window.candecode;
    const PLACES = 64;

    const both = (by) => (f) => {
        const { query_at, key_at } = f.values;
        if (
            query_at + by < 0 ||
            key_at + by < 0 ||
            query_at + by >= PLACES ||
            key_at + by >= PLACES
        )
            return;
        f.set('query_at', query_at + by);
        f.set('key_at', key_at + by);
    };

    figure('rope', {
        question:
            'What does the score of a query and a key depend on: where they stand, or how far apart they are?',
        tryThis:
            'Watch the score and move both tokens with the buttons. Now move only the key. ' +
            'Which dials turn fast, and which hardly turn at all?',
        note: 'The query and the key are those of the first head of story-230k\'s first layer. A text of several tokens stands for its last one.',
        state: { pair: null, low: 0, top: 0 },
        mistakes: [{ mistake: 'day02 both_added', label: 'a minus sign is missing' }],
        controls: [
            { name: 'query', label: 'query of', kind: 'text', value: ' cat' },
            { name: 'key', label: 'key of', kind: 'text', value: ' Tom' },
            {
                name: 'query_at',
                label: 'position of the query',
                kind: 'range',
                min: 0,
                max: PLACES - 1,
                step: 1,
                value: 20,
            },
            {
                name: 'key_at',
                label: 'position of the key',
                kind: 'range',
                min: 0,
                max: PLACES - 1,
                step: 1,
                value: 14,
            },
            { name: 'back', label: '← Both, by one', kind: 'button', press: both(-1) },
            { name: 'on', label: 'Both, by one →', kind: 'button', press: both(1) },
        ],
        ask: (v) => ({
            ask: 'rope',
            query: v.query,
            key: v.key,
            query_at: v.query_at,
            key_at: v.key_at,
            places: PLACES,
        }),

        /** The scores of all distances, before and after: the scale of the plot, which must not change
        while tokens move. */
        async more(answer, { values: { query, key }, part }, ask, f) {
            const pair = JSON.stringify([query, key, part]);
            if (f.state.pair !== pair) {
                const all = [];
                for (const query_at of [0, PLACES - 1]) {
                    const question = { ask: 'rope', query, key, query_at, key_at: 0, places: PLACES };
                    all.push(...(await ask(question)).scores);
                }
                Object.assign(f.state, { pair, low: Math.min(...all), top: Math.max(...all) });
            }
            Object.assign(answer, { low: f.state.low, top: f.state.top });
        },

        draw(answer, s, f, { values }) {
            const w = s.width,
                pairs = answer.frequencies.length,
                columns = s.narrow ? 4 : 8;
            const step = w / columns,
                r = Math.min(step / 2 - 8, 36);
            const half = answer.query.turned.length / 2;
            let y = 12;
            s.text(
                0,
                y,
                s.narrow
                    ? 'solid: the query, dashed: the key; directions only'
                    : `one dial for each pair. Solid: the query of “${clip(answer.query.token, 12)}”, dashed: the key of “${clip(answer.key.token, 12)}”. Directions only, no lengths.`,
                'left note',
            );
            y += 12;
            for (let i = 0; i < pairs; i++) {
                const cx = ((i % columns) + 0.5) * step,
                    cy = y + Math.floor(i / columns) * (2 * r + 24) + r + 4;
                s.circle(cx, cy, r, 'axis');
                const hand = ({ turned }, kind) => {
                    const [a, b] = [turned[i], turned[i + half]];
                    const length = Math.hypot(a, b) || 1;
                    s.path(
                        `M${cx} ${cy} L${(cx + (r * a) / length).toFixed(1)} ${(cy - (r * b) / length).toFixed(1)}`,
                        kind,
                    );
                };
                s.group('kept', () => hand(answer.key, 'plot dashed'));
                s.group('new', () => hand(answer.query, 'plot'));
                s.text(cx, cy + r + 9, `pair ${i}`, 'note faint');
            }
            y += Math.ceil(pairs / columns) * (2 * r + 24) + 24;

            // The score, and what it would be with the key anywhere else.
            const left = s.narrow ? 36 : 60,
                right = w - 12,
                high = 120;
            const low = Math.min(0, answer.low, ...answer.scores),
                top = Math.max(0, answer.top, ...answer.scores);
            const px = (at) => left + (at / (PLACES - 1)) * (right - left);
            const py = (score) => y + high - ((score - low) / (top - low || 1)) * high;
            s.text(
                0,
                y - 16,
                'the score for every position of the key (drag the dot)',
                'left note',
            );
            s.path(`M${left} ${py(0)} H${right}`, 'axis');
            s.path(`M${left} ${y} V${y + high}`, 'axis');
            s.text(left - 6, py(top), top.toFixed(1), 'note right');
            if (low < 0) s.text(left - 6, py(low), low.toFixed(1), 'note right');
            s.group('kept', () =>
                s.path(
                    answer.scores
                        .map(
                            (score, at) =>
                                `${at ? 'L' : 'M'}${px(at).toFixed(1)} ${py(score).toFixed(1)}`,
                        )
                        .join(' '),
                    'plot',
                ),
            );
            const { query_at, key_at } = values;
            s.group('new', () => {
                s.path(`M${px(query_at)} ${y} V${y + high}`, 'plot dashed');
                const at = Math.min(Math.max(px(query_at), left + 30), w - 36);
                s.text(at, y + high + 14, `query at ${query_at}`, 'note');
            });
            if (query_at > 10) s.text(left, y + high + 14, '0', 'note');
            if (query_at < PLACES - 11)
                s.text(right, y + high + 14, String(PLACES - 1), 'note');
            const dot = s.group('kept', () => s.circle(px(key_at), py(answer.score), 9, 'dot'));
            const set = (at) => {
                f.set('key_at', Math.min(Math.max(Math.round(at), 0), PLACES - 1));
                f.refresh();
            };
            s.drag(
                dot,
                'position of the key',
                { now: key_at, min: 0, max: PLACES - 1 },
                (x) => set(((x - left) / (right - left)) * (PLACES - 1)),
                (dx, dy) => set(f.values.key_at + dx - dy),
            );
            s.height = y + high + 28;
            const apart = query_at - key_at;
            const far = `${Math.abs(apart)} ${Math.abs(apart) === 1 ? 'position' : 'positions'}`;
            const where = !apart
                ? 'Both stand at the same position.'
                : apart > 0
                  ? `The key stands ${far} before the query.`
                  : `The key stands ${far} after the query, where the causal mask would hide it.`;
            const stuck = [
                [0, 'first', 'back'],
                [PLACES - 1, 'last', 'on'],
            ]
                .filter(([end]) => query_at === end || key_at === end)
                .map(([, which, way]) => {
                    const who = query_at === key_at ? 'Both are' : 'One of them is';
                    return ` ${who} at the ${which} position, so they can’t go ${way} together.`;
                });
            return `The score is ${answer.score.toFixed(4)}. ${where}${stuck.join('')}`;
        },
    });
})();
