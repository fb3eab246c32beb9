/* Day 6: the growing loop, step by step, and all choices of one pass. */
(function () {
    'use strict';
    const { figure, clip } = window.candecode;

    figure('passes', {
        question: 'How many positions does the loop compute, and how many of them were new?',
        tryThis:
            'Take steps until there are eight new tokens, and compare the sum with the number of tokens. ' +
            'Then look at the last two rows: one pass over the finished text makes every choice again.',
        state: { new: 3 },
        controls: [
            {
                name: 'text',
                label: 'Prompt',
                kind: 'text',
                value: 'Once upon a time',
                change: (f) => {
                    f.state.new = 1;
                },
            },
            {
                name: 'step',
                label: 'Next step',
                kind: 'button',
                press: (f) => {
                    f.state.new = Math.min(f.state.new + 1, 12);
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
        ],
        ask: (values, state) => ({ ask: 'passes', text: values.text, new: state.new }),

        draw(answer, s) {
            const w = s.width,
                all = answer.text.length,
                p = answer.prompt.length;
            const room = w - (s.narrow ? 34 : 110);
            const cell = Math.min(room / all, 58),
                labels = cell > 26;
            let y = 12,
                sum = 0;
            s.text(
                0,
                y,
                s.narrow
                    ? 'each pass computes all positions again'
                    : 'each pass computes all positions again; the last one, with the thick border, chooses the next token',
                'left note',
            );
            y += 14;
            answer.steps.forEach((step) => {
                for (let i = 0; i < step.computed; i++) {
                    s.box(
                        i * cell + 1,
                        y,
                        cell - 2,
                        20,
                        labels ? clip(answer.text[i], cell / 8.5) : '',
                        i === step.computed - 1 ? 'new' : 'known',
                    );
                }
                sum += step.computed;
                s.text(
                    step.computed * cell + 6,
                    y + 10,
                    s.narrow ? `${step.computed}` : `${step.computed}, then ${clip(step.token, 9)}`,
                    'left note',
                );
                y += 24;
            });
            y += 14;
            s.text(
                0,
                y,
                s.narrow
                    ? 'one pass: below each token its choice'
                    : 'one pass over the finished text: below each token the one that it chooses to follow it (✓: it is the next one)',
                'left note',
            );
            y += 12;
            let right = 0,
                judged = 0;
            const wide = Math.min(62, (w - 2) / Math.min(all, s.narrow ? 5 : 11));
            const from = Math.max(0, all - Math.floor((w - 2) / wide));
            for (let i = from; i < all; i++) {
                const x = 1 + (i - from) * wide;
                s.box(x, y, wide - 4, 24, answer.text[i], i >= p ? 'new' : 'known');
                const chosen = answer.chosen[i];
                if (chosen !== undefined && i < all - 1) {
                    const equal = chosen === answer.text[i + 1];
                    s.box(x, y + 34, wide - 4, 24, chosen, equal ? 'kept' : 'dropped');
                    s.text(x + wide / 2 - 2, y + 68, equal ? '✓' : '✗', 'note');
                }
            }
            for (let i = p - 1; i < all - 1; i++) {
                judged += 1;
                if (answer.chosen[i] === answer.text[i + 1]) right += 1;
            }
            s.height = y + 80;
            return (
                `${answer.steps.length === 1 ? 'One pass has' : `${answer.steps.length} passes have`} computed ${sum} positions for a text of ${all} tokens, ` +
                `and ${sum - (all - 1)} of them had been computed before. One pass over the text chooses ${right} of its ${judged} new ${judged === 1 ? 'token' : 'tokens'} again.`
            );
        },
    });
})();
