/* Day 10, the cache, stepped: computed, kept and wasted positions, and bytes. */
(function () {
    'use strict';
    const { figure, clip } = window.candecode;
    const bytes = (n) =>
        n >= 1e9
            ? `${(n / 1e9).toFixed(1)} GB`
            : n >= 1e6
              ? `${(n / 1e6).toFixed(1)} MB`
              : `${(n / 1e3).toFixed(1)} kB`;

    /** Three numbers: SmolLM2-135M has 30 layers with 3 heads of keys and values, of 64 numbers. */
    function shape(text) {
        // Capped, so that a huge number fits in 32 bits and is refused with the limits.
        const numbers = (text.match(/\d+/g) || []).map((n) => Math.min(Number(n), 1e6));
        if (numbers.length !== 3)
            throw new Error(
                'Your model wants three numbers: layers, heads of keys and values, and numbers in a head.',
            );
        return numbers;
    }

    figure('cache', {
        question: 'What does each step compute, what is kept for it, and what does that weigh?',
        tryThis:
            'Take ten steps without a cache and read the sum, then with one. Then let a static cache be too small.',
        state: { new: 5 },
        controls: [
            {
                name: 'text',
                label: 'Prompt',
                kind: 'text',
                value: 'Once upon a time',
                change: (f) => {
                    f.state.new = 2;
                },
            },
            {
                name: 'kind',
                label: 'cache',
                kind: 'select',
                options: ['none', 'dynamic', 'static'],
                value: 'dynamic',
            },
            {
                name: 'capacity',
                label: 'capacity of the static cache',
                kind: 'range',
                min: 4,
                max: 32,
                step: 1,
                value: 16,
                when: (values) => values.kind === 'static',
            },
            {
                name: 'step',
                label: 'Next step',
                kind: 'button',
                press: (f) => {
                    f.state.new = Math.min(f.state.new + 1, 14);
                },
            },
            {
                name: 'again',
                label: 'From the beginning',
                kind: 'button',
                press: (f) => {
                    f.state.new = 1;
                },
            },
            {
                name: 'positions',
                label: 'for the bytes: positions',
                kind: 'range',
                min: 128,
                max: 8192,
                step: 128,
                value: 8192,
            },
            {
                name: 'rows',
                label: 'rows at once',
                kind: 'range',
                min: 1,
                max: 64,
                step: 1,
                value: 1,
            },
            {
                name: 'yours',
                label: 'Your model: layers, KV heads, head size',
                kind: 'text',
                value: '30, 3, 64',
            },
        ],
        ask: (v, state) => ({
            ask: 'cache',
            yours: shape(v.yours),
            text: v.text,
            new: state.new,
            kind: v.kind,
            capacity: v.capacity,
            positions: v.positions,
            rows: v.rows,
        }),

        draw(answer, s, f, { values }) {
            const w = s.width,
                kind = values.kind;
            const last = answer.steps.length
                ? answer.steps[answer.steps.length - 1].length
                : answer.prompt;
            const columns = Math.max(last, kind === 'static' ? values.capacity : 0, 1);
            const room = w - (s.narrow ? 44 : 170),
                cell = Math.min(room / columns, 40);
            let y = 12;
            s.text(
                0,
                y,
                s.narrow
                    ? 'thick: computed, plain: from the cache'
                    : 'a row for each step. Thick border: computed. Plain: came from the cache. Dashed: reserved, and empty.',
                'left note',
            );
            y += 14;
            let wasted = 0;
            answer.steps.forEach((step) => {
                const old = step.length - step.computed;
                for (let i = 0; i < step.length; i++)
                    s.group(i < old ? 'kept' : 'new', () =>
                        s.rect(i * cell + 1, y, cell - 2, 15, 'box'),
                    );
                if (kind === 'static') {
                    for (let i = step.length; i < values.capacity; i++)
                        s.group('known', () =>
                            s.rect(i * cell + 1, y, cell - 2, 15, 'box dashed faint'),
                        );
                    wasted = values.capacity - step.length;
                }
                const end =
                    Math.max(step.length, kind === 'static' ? values.capacity : 0) * cell + 6;
                s.text(
                    end,
                    y + 8,
                    s.narrow ? `${step.computed}` : `computed ${step.computed}, kept ${step.kept}`,
                    'left note',
                );
                y += 19;
            });
            if (answer.refused) {
                s.group('dropped', () =>
                    s.text(0, y + 8, clip(answer.refused, s.narrow ? 52 : 100), 'left note'),
                );
                y += 22;
            }
            y += 20;
            s.text(
                0,
                y,
                s.narrow
                    ? 'keys and values in bf16'
                    : `keys and values in bf16, of ${values.rows} ${values.rows === 1 ? 'row' : 'rows'} of ${values.positions} positions`,
                'left note',
            );
            y += 12;
            const most = Math.max(...answer.bytes.map((model) => Math.log10(model.all)));
            const left = s.narrow ? 90 : 110;
            answer.bytes.forEach((model) => {
                s.text(left - 8, y + 10, model.name, 'note right');
                s.group('kept', () =>
                    s.rect(
                        left,
                        y + 2,
                        ((w - left - (s.narrow ? 80 : 200)) *
                            Math.max(Math.log10(model.all) - 4, 0.1)) /
                            Math.max(most - 4, 1),
                        16,
                        'bar',
                    ),
                );
                s.text(
                    left +
                        ((w - left - (s.narrow ? 80 : 200)) *
                            Math.max(Math.log10(model.all) - 4, 0.1)) /
                            Math.max(most - 4, 1) +
                        6,
                    y + 10,
                    s.narrow
                        ? bytes(model.all)
                        : `${bytes(model.all)}, ${bytes(model.a_position)} a position`,
                    'left note',
                );
                y += 23;
            });
            s.text(left, y + 8, 'the bars have a logarithmic scale', 'left note faint');
            s.height = y + 20;
            return (
                `${answer.computed} positions were computed in ${answer.steps.length} ${answer.steps.length === 1 ? 'step' : 'steps'}, for a text of ${last} tokens.` +
                (kind === 'static' && !answer.refused
                    ? ` ${wasted} positions are reserved and empty.`
                    : '') +
                (answer.refused ? ` Then: ${answer.refused}.` : '')
            );
        },
    });
})();
