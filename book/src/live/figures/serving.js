/* Day 20: the loop's steps, and a client that hangs up. */
(function () {
    'use strict';
    const { figure } = window.candecode;
    const NEVER = 12;
    const clients = (leaves) => [
        { choices: 2, tokens: 6, arrives: 0, leaves: null },
        { choices: 1, tokens: 12, arrives: 0, leaves: leaves === NEVER ? null : leaves },
        { choices: 1, tokens: 5, arrives: 1, leaves: null },
        { choices: 1, tokens: 4, arrives: 2, leaves: null },
    ];
    const NAMES = ['A', 'B', 'C', 'D'];

    figure('serving', {
        question: 'What does a client that leaves cost the others?',
        tryThis: 'Let client B leave early, and look who gets its slot.',
        mistakes: [
            { mistake: 'day20 drop_closed_not_called', label: 'drop_closed isn’t called' },
        ],
        controls: [
            {
                name: 'leaves',
                label: 'B leaves before step',
                kind: 'range',
                min: 1,
                max: NEVER,
                step: 1,
                value: 3,
                show: (value) => (value === NEVER ? 'never' : String(value + 1)),
            },
            { name: 'slots', label: 'slots', kind: 'range', min: 2, max: 5, step: 1, value: 3 },
        ],
        ask: (values) => ({
            ask: 'serving',
            clients: clients(values.leaves),
            slots: values.slots,
            steps: 32,
        }),

        draw(answer, s, figure, asked) {
            const plan = clients(asked.values.leaves);
            const rows = new Map();
            answer.steps.forEach((step) => step.forEach(([id, client]) => rows.set(id, client)));
            const ids = [...rows.keys()].sort((a, b) => a - b);
            const left = s.narrow ? 62 : 96,
                wide = (s.width - left) / Math.max(answer.steps.length, 1),
                high = 27;
            s.text(0, 10, 'step', 'left note');
            s.text(0, 32, s.narrow ? 'queue' : 'in the queue', 'left note');
            answer.steps.forEach((step, i) => {
                s.text(left + (i + 0.5) * wide, 10, String(i + 1), 'note');
                s.text(left + (i + 0.5) * wide, 32, String(answer.queues[i]), 'note');
            });
            let wasted = 0;
            ids.forEach((id, line) => {
                const client = rows.get(id),
                    leaves = plan[client].leaves,
                    y = 48 + line * high;
                s.text(0, y + 10, `row ${id}, ${NAMES[client]}`, 'left note');
                answer.steps.forEach((step, i) => {
                    if (!step.some(([row]) => row === id)) return;
                    const gone = leaves !== null && i >= leaves;
                    if (gone) wasted += 1;
                    s.box(
                        left + i * wide + 1,
                        y,
                        wide - 2,
                        20,
                        gone ? '×' : NAMES[client],
                        gone ? 'dropped' : client === 1 ? 'new' : 'known',
                        'note',
                    );
                });
            });
            s.height = 48 + ids.length * high;
            const heard = answer.received.map((n, i) => `${NAMES[i]} ${n}`).join(', ');
            return (
                `${answer.steps.length} steps. Tokens received: ${heard}. ` +
                (wasted > 0
                    ? `${wasted} ${wasted === 1 ? 'token was' : 'tokens were'} computed for a client that had left.`
                    : 'No token was computed for a client that had left.')
            );
        },
    });
})();
