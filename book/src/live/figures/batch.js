/* Day 12, padding and masks of the reader's own prompts. */
(function () {
    'use strict';
    const { figure, clip } = window.candecode;

    figure('batch', {
        question: 'What has to be hidden so that every row of a batch is what it would be alone?',
        tryThis:
            'Switch the mask off and watch the difference in the logits. Then pad on the right, ' +
            'where no mask is needed. Why doesn’t everybody do that?',
        mistakes: [{ mistake: 'day12 padding_is_visible', label: 'the mask shows the padding' }],
        state: { row: 1 },
        controls: [
            { name: 'one', label: 'Row 0', kind: 'text', value: 'Once upon a time' },
            { name: 'two', label: 'Row 1', kind: 'text', value: 'Lily' },
            { name: 'three', label: 'Row 2', kind: 'text', value: 'Tom had a' },
            {
                name: 'side',
                label: 'padding on the',
                kind: 'select',
                options: ['left', 'right'],
                value: 'left',
            },
            {
                name: 'masked',
                label: 'hide the padding',
                kind: 'check',
                value: true,
                when: (values) => values.side === 'left',
            },
        ],
        ask: (v) => ({
            ask: 'batch',
            prompts: [v.one, v.two, v.three],
            side: v.side,
            masked: v.masked,
        }),

        draw(answer, s, f, { values }) {
            const w = s.width,
                n = answer.width;
            // Empty rows are left out, so a row's number isn't its place.
            const shown = answer.rows.find(({ row }) => row === f.state.row) || answer.rows[0];
            const left = 26,
                end = s.narrow ? 92 : 250;
            const cell = Math.min((w - left - end) / n, s.narrow ? 40 : 64);
            let y = 12;
            const right = Math.max(left + n * cell + 8, s.narrow ? 170 : 190);
            s.text(left, y, s.narrow ? 'tokens, positions' : 'tokens and positions', 'left note');
            s.text(right, y, s.narrow ? 'next' : 'the next token, and the one alone', 'left note');
            y += 12;
            answer.rows.forEach((row) => {
                const chosen = row === shown;
                const group = s.group(chosen ? 'strong' : '', () => {
                    s.text(10, y + 13, String(row.row), chosen ? 'strong' : 'note');
                    for (let j = 0; j < n; j++) {
                        const at = j - (values.side === 'left' ? row.padding : 0);
                        const real = at >= 0 && at < row.tokens.length;
                        s.box(
                            left + j * cell + 1,
                            y,
                            cell - 2,
                            25,
                            real ? clip(row.tokens[at], cell / 8.5) : '',
                            real ? 'known' : 'dropped faint',
                        );
                        s.text(
                            left + (j + 0.5) * cell,
                            y + 35,
                            String(row.positions[j]),
                            `note${real ? '' : ' faint'}`,
                        );
                    }
                });
                s.press(group, `show the mask of row ${row.row}`, () => {
                    f.state.row = row.row;
                    f.redraw();
                });
                const equal = row.next === row.alone;
                s.box(right, y, s.narrow ? 80 : 86, 25, row.next, equal ? 'kept' : 'dropped');
                if (!s.narrow) {
                    s.box(right + 92, y, 70, 25, row.alone, 'known');
                    s.text(
                        right + 166,
                        y + 13,
                        `off ${row.off < 1e-4 ? '< 0.0001' : row.off.toFixed(row.off < 0.1 ? 4 : 2)}`,
                        'note left',
                    );
                } else
                    s.text(
                        right + 40,
                        y + 35,
                        `off ${row.off < 1e-4 ? '0' : row.off.toFixed(2)}`,
                        'note',
                    );
                y += 48;
            });

            // The mask of the chosen row.
            y += 8;
            const mask = shown.mask,
                side = Math.min(s.narrow ? 200 : 210, 26 * n),
                unit = side / n;
            s.text(
                left,
                y,
                s.narrow
                    ? `the mask of row ${shown.row}`
                    : `the mask of row ${shown.row} (press another): a line for each token, filled where it may look`,
                'left note',
            );
            y += 12;
            mask.forEach((line, a) =>
                line.forEach((may, b) => {
                    s.group(may ? 'kept' : 'known', () =>
                        s.rect(left + b * unit, y + a * unit, unit, unit, 'cell', {
                            'fill-opacity': may ? 0.85 : 0.12,
                        }),
                    );
                }),
            );
            s.height = y + side + 8;
            const wrong = answer.rows.filter((row) => row.off > 1e-3).length;
            return wrong === 0
                ? 'Every row gets the logits that it would get alone.'
                : `${wrong} of ${answer.rows.length} rows get other logits than alone: the padding has been looked at.`;
        },
    });
})();
