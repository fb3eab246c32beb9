/* Day 11, the beam tree, growing. */
(function () {
    'use strict';
    const { figure, clip } = window.candecode;

    figure('beams', {
        question: 'Which beginnings are kept at every step, and from which beam do they come?',
        tryThis:
            'Begin with one beam, which is greedy decoding, and raise the number of beams. ' +
            'When does the best text begin with another word than the greedy one?',
        state: { steps: 4 },
        controls: [
            {
                name: 'text',
                label: 'Prompt',
                kind: 'text',
                value: 'Once upon a time there was a',
                change: (f) => {
                    f.state.steps = 3;
                },
            },
            { name: 'beams', label: 'beams', kind: 'range', min: 1, max: 4, step: 1, value: 2 },
            {
                name: 'step',
                label: 'Next step',
                kind: 'button',
                press: (f) => {
                    f.state.steps = Math.min(f.state.steps + 1, 12);
                },
            },
            {
                name: 'again',
                label: 'From the beginning',
                kind: 'button',
                press: (f) => {
                    f.state.steps = 1;
                },
            },
        ],
        ask: (v, { steps }) => ({ ask: 'beams', text: v.text, beams: v.beams, steps }),

        draw(answer, s, f, { values }) {
            const w = s.width,
                columns = s.narrow ? 3 : 5;
            const first = Math.max(0, answer.steps.length - columns);
            const shown = answer.steps.slice(first);
            const wide = w / columns,
                box = wide - (s.narrow ? 26 : 34);
            const most = Math.max(...shown.map((step) => step.length), 1);
            const top = 30,
                row = 34;
            s.text(
                0,
                12,
                clip(answer.prompt.join(''), s.narrow ? 30 : 60) +
                    (first ? ' … step ' + (first + 1) + ' and on' : ''),
                'left mono',
            );
            const place = (column, rank) => [
                column * wide + (s.narrow ? 18 : 24),
                top + rank * row,
            ];
            shown.forEach((step, column) => {
                const before = column ? shown[column - 1] : null;
                step.forEach((candidate, rank) => {
                    const [x, y] = place(column, rank);
                    const role = candidate.ended
                        ? 'new'
                        : candidate.row === null
                          ? 'dropped'
                          : 'kept';
                    let from = [column * wide, top + 13];
                    if (before) {
                        const parent = before.findIndex((c) => c.row === candidate.parent);
                        const [px, py] = place(column - 1, parent);
                        from = [px + box, py + 13];
                    }
                    s.path(
                        `M${from[0]} ${from[1]} C${from[0] + 14} ${from[1]} ${x - 14} ${y + 13} ${x} ${y + 13}`,
                        `wire${role === 'dropped' ? ' dashed faint' : ''}`,
                    );
                    s.group(`${role}${role === 'dropped' ? ' faint' : ''}`, () => {
                        s.rect(x, y, box, 27, 'box');
                        s.text(x + 5, y + 14, clip(candidate.token, (box - 38) / 8), 'mono left');
                        s.text(x + box - 4, y + 14, candidate.score.toFixed(1), 'note right');
                    });
                });
            });
            s.text(
                0,
                top + most * row + 12,
                s.narrow
                    ? 'thick border: ended. Dashed: dropped.'
                    : 'plain: goes on; dashed: dropped; thick border: ended. The number is the sum of log-probabilities.',
                'left note',
            );
            s.height = top + most * row + 24;
            return answer.best
                ? `The best of ${values.beams} ${values.beams === 1 ? 'beam' : 'beams'} after ${answer.steps.length} ${answer.steps.length === 1 ? 'step' : 'steps'}: ${answer.best.join('').replace(/·/g, ' ')}` +
                      (answer.ended ? ' (it has ended).' : '') +
                      (answer.over
                          ? ' The search is over: as many texts have ended as there are beams.'
                          : '')
                : 'All beams have ended.';
        },
    });
})();
