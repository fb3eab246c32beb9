/* Days 7 to 9, the sampler bench: what the processors leave, and what is drawn. */
(function () {
    'use strict';
    const { figure, percent, clip } = window.candecode;
    const NAMES = {
        repetition: 'repetition',
        presence: 'presence, frequency',
        temperature: 'temperature',
        top_k: 'top-k',
        top_p: 'top-p',
        min_p: 'min-p',
    };
    const BARS = 12;
    const fixed = (digits) => (value) => value.toFixed(digits);
    const off = (neutral, show) => (value) => (value === neutral ? 'off' : show(value));

    function move(figure, name, by) {
        const order = figure.state.order;
        const from = order.indexOf(name);
        const to = Math.min(Math.max(from + by, 0), order.length - 1);
        order.splice(to, 0, ...order.splice(from, 1));
        if (to !== from) figure.refresh();
    }

    figure('sampler', {
        question: 'Which tokens are left after the processors, and which of them is drawn?',
        tryThis:
            'Leave top-p at 0.9 and raise the temperature to 2. Now drag top-p in front of temperature. ' +
            'How many tokens are left each time, and why?',
        note: 'The model in this page is story-230k. It is smaller than the text\'s story-3m, and less sure, so its numbers differ.',
        mistakes: [
            {
                mistake: 'day08 top_p_drops_the_crossing_token',
                label: 'top-p drops the token that crosses the line',
            },
        ],
        state: {
            order: ['repetition', 'presence', 'temperature', 'top_k', 'top_p', 'min_p'],
            seed: 0,
            draws: 0,
            generated: [],
        },
        controls: [
            {
                name: 'text',
                label: 'Prompt',
                kind: 'text',
                value: 'Once upon a time, there was a little',
                change: (f) => {
                    f.state.generated = [];
                    f.state.draws = 0;
                },
            },
            {
                name: 'temperature',
                label: 'temperature',
                kind: 'range',
                min: 0.1,
                max: 3,
                step: 0.05,
                value: 1,
                show: fixed(2),
            },
            {
                name: 'top_k',
                label: 'top-k',
                kind: 'range',
                min: 0,
                max: 50,
                step: 1,
                value: 0,
                show: off(0, String),
            },
            {
                name: 'top_p',
                label: 'top-p',
                kind: 'range',
                min: 0.01,
                max: 1,
                step: 0.01,
                value: 0.9,
                show: off(1, fixed(2)),
            },
            {
                name: 'min_p',
                label: 'min-p',
                kind: 'range',
                min: 0,
                max: 1,
                step: 0.01,
                value: 0,
                show: off(0, fixed(2)),
            },
            {
                name: 'repetition',
                label: 'repetition penalty',
                kind: 'range',
                min: 0.5,
                max: 2,
                step: 0.05,
                value: 1,
                show: off(1, fixed(2)),
            },
            {
                name: 'presence',
                label: 'presence penalty',
                kind: 'range',
                min: -2,
                max: 2,
                step: 0.1,
                value: 0,
                show: off(0, fixed(1)),
            },
            {
                name: 'frequency',
                label: 'frequency penalty',
                kind: 'range',
                min: -2,
                max: 2,
                step: 0.1,
                value: 0,
                show: off(0, fixed(1)),
            },
            {
                name: 'draw',
                label: 'Draw',
                kind: 'button',
                press: (f) => {
                    f.state.seed += 1;
                    f.state.draws = 1;
                },
            },
            {
                name: 'take',
                label: 'Take it, draw the next',
                kind: 'button',
                when: (values, state) => state.draws === 1, // of ten, which one is “it”?
                answered: true,
                press: (f, answer) => {
                    if (!answer || answer.draws.length !== 1) return;
                    f.state.generated.push(answer.draws[0].id);
                    f.state.seed += 1;
                },
            },
            {
                name: 'ten',
                label: 'Ten draws',
                kind: 'button',
                press: (f) => {
                    f.state.seed += 1;
                    f.state.draws = 10;
                },
            },
        ],

        ask: (values, state) => ({
            ask: 'sampler',
            text: values.text,
            generated: state.generated,
            order: state.order,
            temperature: values.temperature,
            top_k: values.top_k,
            top_p: values.top_p,
            min_p: values.min_p,
            repetition: values.repetition,
            presence: values.presence,
            frequency: values.frequency,
            bars: BARS,
            seed: state.seed,
            draws: state.draws,
        }),

        draw(answer, s, f, { values, state }) {
            const w = s.width;
            let y = 14;
            s.text(0, y, 'the text', 'left note');
            const newest = s.narrow ? 6 : 12;
            const end = answer.tokens.slice(-newest).join('');
            s.text(
                s.narrow ? 62 : 130,
                y,
                (answer.tokens.length > newest ? '…' : '') + clip(end, s.narrow ? 36 : 72),
                'left mono',
            );

            y += 20;
            s.text(
                0,
                y,
                s.narrow
                    ? 'outlined: the model; filled: what is left of it'
                    : 'outlined: what the model gave. Filled, and in numbers: what the processors leave of it, scaled up to 100%.',
                'left note',
            );

            // Bars: what the model says is an outline, what is left of it is filled.
            const left = s.narrow ? 92 : 130;
            const room = w - left - (s.narrow ? 84 : 190);
            const most = Math.max(
                ...answer.bars.map((bar) => Math.max(bar.before, bar.after)),
                0.05,
            );
            y += 12;
            for (const bar of answer.bars) {
                const drawn = answer.draws.filter((draw) => draw.id === bar.id).length;
                const gone = bar.dropped !== null;
                s.group(drawn ? 'new' : gone ? 'dropped' : 'kept', () => {
                    s.text(
                        left - 8,
                        y + 10,
                        clip(bar.token, s.narrow ? 10 : 15),
                        `mono right${gone ? ' faint' : ''}`,
                    );
                    s.rect(left, y + 2, (room * bar.after) / most, 16, 'bar');
                });
                s.rect(
                    left,
                    y + 2,
                    Math.max((room * bar.before) / most, 1),
                    16,
                    `wire${gone ? ' dashed faint' : ''}`,
                );
                const at = left + (room * Math.max(bar.after, bar.before)) / most + 6;
                const words = gone
                    ? s.narrow
                        ? NAMES[bar.dropped]
                        : `dropped by ${NAMES[bar.dropped]}`
                    : percent(bar.after) +
                      (drawn
                          ? s.narrow
                              ? ` ×${drawn}`
                              : `, drawn ${drawn === 1 ? 'once' : `${drawn} times`}`
                          : '');
                s.text(at, y + 10, words, `note left${gone ? ' faint' : drawn ? ' strong' : ''}`);
                y += 22;
            }

            // The line that a random number falls on.
            y += 14;
            const line = s.narrow ? 0 : 0,
                long = w - 1;
            s.text(
                0,
                y,
                s.narrow
                    ? 'laid end to end, in the order of ids'
                    : 'the tokens that are left, laid end to end in the order of their ids',
                'left note',
            );
            y += 14;
            s.rect(line, y, long, 22, 'wire faint');
            for (const part of answer.line) {
                const drawn = answer.draws.some((draw) => draw.id === part.id);
                const wide = (part.high - part.low) * long;
                s.group(drawn ? 'new' : 'kept', () => {
                    s.rect(line + part.low * long, y, wide, 22, 'box');
                    if (wide > 30)
                        s.text(
                            line + ((part.low + part.high) / 2) * long,
                            y + 11,
                            clip(part.token, wide / 8.5),
                            'mono',
                        );
                });
            }
            y += 22;
            answer.draws.forEach((draw) => {
                const x = Math.min(Math.max(line + draw.u * long, 2), w - 2);
                s.group('new', () => s.path(`M${x} ${y + 9} l-4 8 h8 z`, 'bar'));
                s.path(`M${x} ${y - 26} V${y + 9}`, 'wire');
            });
            if (answer.draws.length === 1) {
                const { u, token } = answer.draws[0];
                const x = Math.min(Math.max(u * long, 60), w - 60);
                s.text(x, y + 28, `${u.toFixed(4)}: ${clip(token, 12)}`, 'note strong');
            } else {
                s.text(0, y + 28, '0', 'note left');
                s.text(w, y + 28, '1', 'note right');
            }
            y += 46;

            // The processors, in their order.
            s.text(
                0,
                y,
                s.narrow
                    ? 'processors: drag, or use the arrow keys'
                    : 'the processors, in the order in which they run (the first two are of day 9): drag them, or use the arrow keys',
                'left note',
            );
            y += 14;
            const columns = s.narrow ? 2 : 6;
            const wide = (w - 1 - (columns - 1) * 10) / columns;
            const isOff = (name) => {
                const v = values;
                return {
                    repetition: v.repetition === 1,
                    presence: v.presence === 0 && v.frequency === 0,
                    temperature: v.temperature === 1,
                    top_k: v.top_k === 0,
                    top_p: v.top_p === 1,
                    min_p: v.min_p === 0,
                }[name];
            };
            state.order.forEach((name, i) => {
                const x = (i % columns) * (wide + 10),
                    top = y + Math.floor(i / columns) * 40;
                const box = s.group(isOff(name) ? 'known' : 'kept', () => {
                    s.rect(x, top, wide, 30, `box${isOff(name) ? ' dashed' : ''}`);
                    s.text(
                        x + wide / 2,
                        top + 15,
                        name === 'presence' && wide < 130 ? 'pres., freq.' : NAMES[name],
                        isOff(name) ? 'note faint' : 'note strong',
                    );
                });
                s.drag(
                    box,
                    NAMES[name],
                    { now: i + 1, min: 1, max: 6, text: `${i + 1} of 6` },
                    (px, py) => {
                        const column = Math.min(
                            Math.max(Math.floor(px / (wide + 10)), 0),
                            columns - 1,
                        );
                        const row = s.narrow
                            ? Math.min(Math.max(Math.floor((py - y) / 40), 0), 2)
                            : 0;
                        const to = row * columns + column;
                        const from = f.state.order.indexOf(name);
                        if (to !== from) move(f, name, to - from);
                    },
                    (dx, dy) => move(f, name, dx + dy * columns),
                );
            });
            y += Math.ceil(6 / columns) * 40;
            s.height = y;

            const dropped = answer.vocab - answer.kept;
            let said = dropped
                ? `${answer.kept} of ${answer.vocab} tokens ${answer.kept === 1 ? 'is' : 'are'} left. The model gave ${answer.kept === 1 ? 'it' : 'them'} ${percent(answer.mass)} of the probability.`
                : `All ${answer.vocab} tokens are left.`;
            if (answer.draws.length === 1) {
                const { u, token, low, high } = answer.draws[0];
                said += ` The random number ${u.toFixed(4)} falls between ${low.toFixed(4)} and ${high.toFixed(4)}, which is “${token}”.`;
            } else if (answer.draws.length) {
                said += ` Drawn: ${answer.draws.map((draw) => draw.token).join(', ')}.`;
            }
            return said;
        },
    });
})();
