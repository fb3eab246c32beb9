/* Day 1, who looks at whom: the weights of every head, for a sentence of the reader's. */
(function () {
    'use strict';
    const { figure, percent, clip } = window.candecode;

    const MODELS = ['story-230k', 'story-3m'];

    /** The weights of all heads of a sentence of story-3m, from heads.js. */
    function unpacked({ tokens, weights }) {
        const bytes = atob(weights),
            n = tokens.length;
        let at = 0;
        const layers = Array.from({ length: 6 }, () =>
            Array.from({ length: 6 }, () =>
                Array.from({ length: n }, (_, row) =>
                    Array.from({ length: n }, (_, i) =>
                        i <= row ? bytes.charCodeAt(at++) / 255 : 0,
                    ),
                ),
            ),
        );
        return { tokens, layers, cut: 0 };
    }

    figure('attention', {
        question: 'Which tokens does each token look at, in each head?',
        tryThis:
            'Press the last token and go through the four heads. Is there one that looks only at the ' +
            'neighbor? Then let every token see the whole text. The model was never trained for that.',
        mistakes: [{ mistake: 'day01 no_scale', label: 'scores are not divided by √D' }],
        state: { layer: 0, head: 0, token: null },
        controls: [
            {
                name: 'model',
                label: 'model',
                kind: 'select',
                options: MODELS,
                value: MODELS[0],
                change: (f) => Object.assign(f.state, { layer: 0, head: 0, token: null }),
            },
            {
                name: 'sentence',
                label: 'sentence of story-3m',
                kind: 'range',
                min: 1,
                max: 10,
                step: 1,
                value: 1,
                when: (values) => values.model !== MODELS[0],
                change: (f) => {
                    f.state.token = null;
                },
            },
            {
                name: 'text',
                label: 'Your sentence, for story-230k',
                kind: 'text',
                value: 'Lily and Tom found a cat. The cat was sad.',
                when: (values) => values.model === MODELS[0],
                change: (f) => {
                    f.state.token = null;
                },
            },
            {
                name: 'causal',
                label: 'causal mask',
                kind: 'check',
                value: true,
                when: (values) => values.model === MODELS[0],
            },
        ],
        ask: (values) =>
            values.model === MODELS[0]
                ? { ask: 'attention', text: values.text, causal: values.causal }
                : null,
        async more(answer, { values }) {
            if (values.model === MODELS[0]) return;
            const sentences = await window.candecode.data('heads');
            Object.assign(answer, unpacked(sentences[values.sentence - 1]));
        },

        draw(answer, s, f) {
            const w = s.width,
                n = answer.tokens.length,
                state = f.state;
            // What was pressed may have been a part of another answer's picture.
            const token = Math.min(state.token === null ? n : state.token, n - 1);
            const layer = Math.min(state.layer, answer.layers.length - 1);
            const head = Math.min(state.head, answer.layers[layer].length - 1);
            const heads = answer.layers.flatMap((layer, l) =>
                layer.map((weights, h) => ({ l, h, weights })),
            );
            const now = answer.layers[layer][head];

            // The four heads, small; the chosen one has a thick border.
            const many = heads.length > 4,
                columns = many ? (s.narrow ? 6 : 12) : heads.length;
            const gap = many ? 5 : s.narrow ? 10 : 24;
            const side = Math.min((w - (columns - 1) * gap - 2) / columns, 158);
            heads.forEach(({ l, h, weights }, i) => {
                const x = 1 + (i % columns) * (side + gap),
                    top = 22 + Math.floor(i / columns) * (side + 22),
                    cell = side / n;
                const chosen = l === layer && h === head;
                const group = s.group(chosen ? 'new' : 'known', () => {
                    s.rect(x, top, side, side, 'box');
                    weights.forEach((row, a) =>
                        row.forEach((weight, b) => {
                            if (weight > 0.02)
                                s.rect(x + b * cell, top + a * cell, cell, cell, 'bar', {
                                    'fill-opacity': Math.min(1, weight + 0.05).toFixed(2),
                                });
                        }),
                    );
                    s.rect(x, top + token * cell, side, cell, 'wire');
                    s.text(
                        x + side / 2,
                        top - 11,
                        s.narrow || many ? `${l}.${h}` : `layer ${l}, head ${h}`,
                        chosen ? 'strong' : 'note',
                    );
                });
                s.press(group, `layer ${l}, head ${h}`, () => {
                    state.layer = l;
                    state.head = h;
                    f.redraw();
                });
            });

            // The sentence: the chosen token, and how much of its look each token gets.
            let y = Math.ceil(heads.length / columns) * (side + 22) + 22;
            s.text(
                0,
                y,
                s.narrow
                    ? 'the thick token looks at the others:'
                    : 'the token with the thick border looks at the others (press another one):',
                'left note',
            );
            y += 16;
            let x = 1;
            answer.tokens.forEach((word, i) => {
                const wide = Math.max(34, [...clip(word, 14)].length * 8 + 12);
                if (x + wide > w - 1) {
                    x = 1;
                    y += 60;
                }
                const weight = now[token][i];
                const chosen = i === token;
                const group = s.group(chosen ? 'new' : weight >= 0.01 ? 'kept' : 'known', () => {
                    s.rect(x, y, wide, 26, 'box');
                    s.text(
                        x + wide / 2,
                        y + 13,
                        clip(word, 14),
                        `mono${weight < 0.01 && !chosen ? ' faint' : ''}`,
                    );
                    s.rect(x + wide / 2 - 12, y + 29, 24, 5, 'wire faint');
                    s.rect(x + wide / 2 - 12, y + 29, 24 * weight, 5, 'bar');
                    if (weight >= 0.01)
                        s.text(x + wide / 2, y + 44, `${Math.round(weight * 100)}%`, 'note');
                });
                const look = () => {
                    if (token !== i) {
                        state.token = i;
                        f.redraw();
                    }
                };
                s.press(group, `token ${i + 1}, ${word}`, look);
                group.addEventListener('pointerenter', (event) => {
                    if (event.pointerType === 'mouse') look();
                });
                x += wide + 4;
            });
            s.height = y + 58;
            const row = now[token];
            const best = row
                .map((weight, i) => [weight, i])
                .sort((a, b) => b[0] - a[0])
                .slice(0, 3)
                .filter(([weight]) => weight > 0.005);
            return (
                `In layer ${layer}, head ${head}, “${answer.tokens[token]}” looks at ` +
                best.map(([weight, i]) => `“${answer.tokens[i]}” (${percent(weight)})`).join(', ') +
                '.' +
                (answer.cut ? ` The last ${answer.cut} tokens have no room here.` : '')
            );
        },
    });
})();
