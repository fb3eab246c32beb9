/* Day 19: one block of weights, and one weight that can grow. */
(function () {
    'use strict';
    const { figure } = window.candecode;
    // The first block of story-3m's third gate projection.
    const NUMBERS = [
        0.0242, 0.0503, 0.0361, 0.0986, -0.0299, -0.0413, -0.0496, -0.0134, 0.0138, 0.0176, 0.0408,
        0.0728, 0.0618, 0.0618, 0.0104, -0.0515, -0.0425, 0.0386, -0.0178, -0.0312, -0.0199, 0.0605,
        0.0486, -0.0483, 0.0493, -0.0131, -0.0432, -0.0317, -0.0369, -0.0254, 0.0214, 0.0771,
    ];
    const MOVED = 3;
    const numbers = (weight) => NUMBERS.map((x, i) => (i === MOVED ? weight / 1000 : x));

    figure('blocks', {
        question: 'What does one large weight cost its neighbors?',
        tryThis:
            'Make the fourth weight three times as large, in 4 bits. Then make it equally large with the other sign.',
        controls: [
            {
                name: 'format',
                label: 'format',
                kind: 'select',
                options: ['Q4_0', 'Q8_0'],
                value: 'Q4_0',
            },
            {
                name: 'weight',
                label: 'fourth weight',
                kind: 'range',
                min: -400,
                max: 400,
                step: 2,
                value: 98,
                show: (value) => (value / 1000).toFixed(3),
            },
        ],
        ask: (values) => ({
            ask: 'blocks',
            format: values.format,
            numbers: numbers(values.weight),
        }),

        draw(answer, s, figure, asked) {
            const exact = numbers(asked.values.weight);
            const errors = exact.map((x, i) => Math.abs(x - answer.restored[i]));
            const columns = s.narrow ? 4 : 8,
                wide = s.width / columns;
            exact.slice(0, 8).forEach((x, i) => {
                const left = (i % columns) * wide,
                    top = Math.floor(i / columns) * 62;
                s.text(left + wide / 2, top + 9, x.toFixed(4), 'note');
                s.box(
                    left + 4,
                    top + 18,
                    wide - 8,
                    23,
                    String(answer.steps[i]),
                    i === MOVED ? 'new' : 'known',
                );
                s.text(left + wide / 2, top + 51, answer.restored[i].toFixed(4), 'note');
            });
            const top = (8 / columns) * 62 + 22,
                high = 90,
                base = top + high;
            const scale = high / Math.max(answer.bound, 1e-9),
                bar = s.width / 32;
            s.text(0, top - 11, 'how far each of the 32 is off', 'left note');
            s.path(`M0 ${top} H${s.width}`, 'wire dashed');
            s.text(s.width, top - 11, `bound ${answer.bound.toPrecision(2)}`, 'right note');
            errors.forEach((error, i) =>
                s.group(i === MOVED ? 'new' : 'kept', () =>
                    s.rect(i * bar + 1, base - error * scale, bar - 2, error * scale, 'bar'),
                ),
            );
            s.path(`M0 ${base} H${s.width}`, 'axis');
            s.height = base + 6;
            const norm = (list) => Math.sqrt(list.reduce((sum, x) => sum + x * x, 0));
            const others = (list) => list.filter((_, i) => i !== MOVED);
            const share = (100 * norm(others(errors))) / norm(others(exact));
            return `A step is ${Math.abs(answer.scale).toPrecision(3)} long. The other 31 weights are off by ${share.toFixed(1)} % of their own length.`;
        },
    });
})();
