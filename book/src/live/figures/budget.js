/* Day 23, a token budget: what each step computes, and who gives up blocks. */
(function () {
    'use strict';
    const { figure, clip } = window.candecode;
    const MOST = 60; // steps that Rust answers for
    const LONG =
        'Tom had a big red ball and a cat and a dog and a bird and a boat and a hat and a box and a bag and a toy and a cup and a cap';
    const REQUESTS = [
        { name: 'A', text: 'Once upon a time', new: 16, at: 0 },
        { name: 'B', text: 'Lily', new: 14, at: 0 },
        { name: 'C', text: 'The cat', new: 12, at: 1 },
        { name: 'D', new: 6, at: 4 },
    ];
    const SIZE = 4;
    const words = (n) => LONG.split(' ').slice(0, n).join(' ');
    const list = (all, say) => (all.length ? all.map(say).join(', ') : 'none');

    figure('budget', {
        question: 'What does each step compute, and who goes when the blocks run out?',
        tryThis:
            'Set the budget to 40, so that D’s prompt fits into one step, and then to 4. How many steps does D wait for its first token, ' +
            'and how full is a step? Then take blocks away until a request is preempted. Which one is it, and how much of it is computed again?',
        controls: [
            { name: 'step', label: 'step', kind: 'range', min: 0, max: MOST - 1, step: 1, value: 5 },
            {
                name: 'budget',
                label: 'budget, tokens per step',
                kind: 'range',
                min: 1,
                max: 40,
                step: 1,
                value: 8,
            },
            {
                name: 'blocks',
                label: `blocks of ${SIZE}`,
                kind: 'range',
                min: 6,
                max: 24,
                step: 1,
                value: 20,
            },
            {
                name: 'words',
                label: 'words in D’s prompt',
                kind: 'range',
                min: 2,
                max: 30,
                step: 1,
                value: 20,
            },
            { name: 'prefixes', label: 'cached prefixes (day 22)', kind: 'check', value: false },
        ],
        ask: (v) => ({
            ask: 'budget',
            max_num_batched_tokens: v.budget,
            max_num_seqs: 8,
            blocks: v.blocks,
            block_size: SIZE,
            prefixes: v.prefixes,
            requests: REQUESTS.map((request) => ({
                text: request.text || words(v.words),
                new: request.new,
                at: request.at,
            })),
        }),

        draw(answer, s, f, { values }) {
            const steps = answer.steps;
            const at = Math.max(0, Math.min(values.step, steps.length - 1));
            const left = s.narrow ? 18 : 60;
            const cell = Math.min((s.width - left - 2) / Math.max(steps.length, 1), 30);
            const x = (t) => left + t * cell;
            let y = 12;
            s.text(
                0,
                y,
                s.narrow
                    ? 'a column per step; orange: chunks, teal: tokens'
                    : 'A column for each step. Orange: a chunk of a prompt. Teal: the next token. Dashed: waits. ×: preempted. Dot: the last.',
                'left note',
            );
            y += 14;
            const top = y;
            REQUESTS.forEach(({ name }, id) => {
                s.text(0, y + 11, name, 'left note');
                steps.forEach((step, t) => {
                    const part = step.plan.find((part) => part.id === id);
                    const token = step.tokens.find((token) => token.id === id);
                    if (part) {
                        const role = part.new > 1 || !token ? 'new' : 'kept';
                        s.group(role, () => {
                            s.rect(x(t) + 1, y, cell - 3, 22, 'box');
                            if (part.new > 1 && cell > 14)
                                s.text(x(t) + cell / 2 - 0.5, y + 11, String(part.new), 'note');
                        });
                        if (token && token.finish)
                            s.circle(x(t) + cell / 2 - 0.5, y + 11, Math.min(4, cell / 4), 'dot');
                    } else if (step.preempted.includes(id)) {
                        s.group('dropped', () => {
                            s.rect(x(t) + 1, y, cell - 3, 22, 'box');
                            if (cell > 14) s.text(x(t) + cell / 2 - 0.5, y + 11, '×', 'note');
                        });
                    } else if (step.waiting.includes(id)) {
                        s.group('known', () => s.rect(x(t) + 1, y, cell - 3, 22, 'box dashed faint'));
                    }
                });
                if (answer.refused[id])
                    s.group('dropped', () =>
                        s.text(
                            left,
                            y + 11,
                            clip(answer.refused[id], (s.width - left) / 6.6),
                            'left note',
                        ),
                    );
                y += 28;
            });
            if (steps.length) s.rect(x(at) - 1, top - 3, cell + 1, y - top, 'wire');
            const bars = (name, short, most, value, role) => {
                y += 16;
                s.text(0, y, s.narrow ? short : name, 'left note');
                const high = 44;
                const base = y + high + 12;
                const scale = high / Math.max(most, 1);
                s.path(`M${left} ${base - high} H${x(steps.length)}`, 'wire dashed');
                s.path(`M${left} ${base} H${x(steps.length)}`, 'axis');
                s.group(role, () =>
                    steps.forEach((step, t) =>
                        s.rect(
                            x(t) + 1,
                            base - value(step) * scale,
                            cell - 3,
                            value(step) * scale,
                            'bar',
                        ),
                    ),
                );
                y = base;
            };
            const tokens = (step) => step.plan.reduce((sum, part) => sum + part.new, 0);
            bars(
                'tokens that the step computes; dashed line: the budget',
                'tokens in a step; line: the budget',
                values.budget,
                tokens,
                'new',
            );
            bars(
                'blocks in use during the step; dashed line: all of them',
                'blocks in use; line: all of them',
                values.blocks,
                (step) => values.blocks - step.free,
                'kept',
            );
            for (let t = 0; t < steps.length; t += steps.length > 30 ? 10 : 5)
                s.text(x(t) + cell / 2, y + 12, String(t), 'note');
            y += 34;
            const step = steps[at] || { plan: [], tables: [], waiting: [], preempted: [], free: 0 };
            const name = ({ id }) => REQUESTS[id].name;
            s.text(0, y, `step ${at}`, 'left strong');
            for (const line of [
                `plan: ${list(step.plan, (part) => `${name(part)} ${part.new} at ${part.start}`)}`,
                `blocks: ${list(step.tables, (table) => `${name(table)} ${table.blocks}`)}; ${step.free} free`,
                `queue: ${list(step.waiting, (id) => REQUESTS[id].name)}`,
            ]) {
                y += 20;
                s.text(0, y, line, 'left note');
            }
            s.height = y + 12;
            const all = steps.reduce((sum, step) => sum + tokens(step), 0);
            const most = Math.max(0, ...steps.map(tokens));
            const refused = answer.refused.filter(Boolean).length;
            const unfinished = steps.length >= MOST;
            const counted = answer.preemptions;
            return (
                `${all} tokens are computed in ${steps.length} steps, at most ${most} in one.` +
                (counted ? ` ${counted} ${counted === 1 ? 'preemption' : 'preemptions'}.` : '') +
                (refused ? ` ${refused} ${refused === 1 ? 'was' : 'were'} refused.` : '') +
                (unfinished ? ` The figure stops after ${MOST} steps.` : '') +
                (values.step > at ? ' All requests have ended.' : '')
            );
        },
    });
})();
