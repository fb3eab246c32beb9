/* Day 13, accept or reject: two distributions to drag, the residual, and a long run. */
(function () {
    'use strict';
    const { figure, percent } = window.candecode;
    const NAMES = ['A', 'B', 'C', 'D', 'E'];

    figure('speculative', {
        question: 'The draft draws from q. Why does what comes out have the distribution p?',
        tryThis:
            'Drag the bars of q until they are far from p. Fewer drafts are accepted, but look at the bars of the long run.',
        mistakes: [
            {
                mistake: 'day13 resamples_from_the_target',
                label: 'a rejected token is replaced by a draw from p',
            },
        ],
        state: {
            p: [0.4, 0.3, 0.2, 0.08, 0.02],
            q: [0.1, 0.5, 0.2, 0.15, 0.05],
            seed: 1,
            runs: 2000,
        },
        controls: [
            {
                name: 'one',
                label: 'One draft',
                kind: 'button',
                press: (f) => {
                    f.state.seed += 1;
                    f.state.runs = 1;
                },
            },
            {
                name: 'many',
                label: '2,000 drafts',
                kind: 'button',
                press: (f) => {
                    f.state.seed += 1;
                    f.state.runs = 2000;
                },
            },
        ],
        ask: (v, { p, q, seed, runs }) => ({ ask: 'speculative', p, q, seed, runs }),

        draw(answer, s, f, { state }) {
            const w = s.width,
                high = 100;
            const panels = [
                ['p, the target’s (drag)', answer.p, 'p', 'known'],
                ['q, the draft’s (drag)', answer.q, 'q', 'draft'],
                ['the residual', answer.residual, null, 'new'],
                [
                    state.runs === 1 ? 'what came out' : 'what came out, and p',
                    answer.written.map((n) => n / Math.max(1, state.runs)),
                    null,
                    'kept',
                ],
            ];
            const columns = s.narrow ? 2 : 4,
                gap = 22,
                wide = (w - gap * (columns - 1)) / columns;
            const total = (list) => list.reduce((a, b) => a + b, 0);
            panels.forEach(([title, bars, name, role], panel) => {
                const x = (panel % columns) * (wide + gap),
                    y = Math.floor(panel / columns) * (high + 76) + 12;
                s.text(x, y, title, 'left note strong');
                const base = y + 30 + high,
                    each = wide / NAMES.length;
                s.path(`M${x} ${base} H${x + wide}`, 'axis');
                bars.forEach((share, i) => {
                    const left = x + i * each + 2,
                        tall = Math.min(share, 1) * high;
                    const column = s.group(role, () => {
                        s.rect(left, base - tall, each - 4, tall, 'bar');
                        if (name)
                            s.rect(left - 2, y + 30, each, high, 'wire', {
                                'stroke-opacity': 0,
                                'pointer-events': 'all',
                            });
                    });
                    if (panel === 3)
                        s.path(`M${left - 1} ${base - answer.p[i] * high} h${each - 2}`, 'wire');
                    s.text(
                        left + each / 2 - 2,
                        base - tall - 8,
                        share >= 0.005 ? share.toFixed(2) : '',
                        'note',
                    );
                    s.text(left + each / 2 - 2, base + 12, NAMES[i], 'mono');
                    if (!name) return;
                    const set = (value) => {
                        f.state[name][i] = Math.min(Math.max(value, 0), 1);
                        if (total(f.state[name]) <= 0) f.state[name][i] = 0.01;
                        f.refresh();
                    };
                    s.drag(
                        column,
                        `${name} of ${NAMES[i]}`,
                        { now: share.toFixed(3), min: 0, max: 1, text: percent(share) },
                        (px, py) => {
                            // The others keep their proportions, so the bar ends where the pointer is.
                            const want = Math.min(Math.max((base - py) / high, 0.001), 0.98);
                            const others = total(f.state[name]) - f.state[name][i];
                            if (others > 0)
                                set(
                                    (want / (1 - want)) * others > 1
                                        ? 1
                                        : (want / (1 - want)) * others,
                                );
                            if (others > 0 && (want / (1 - want)) * others > 1) {
                                const scale = (1 - want) / want / others;
                                f.state[name] = f.state[name].map((v, j) =>
                                    j === i ? 1 : v * scale,
                                );
                                f.refresh();
                            }
                        },
                        (dx, dy) => set(f.state[name][i] + (dx - dy) * 0.02),
                    );
                });
            });
            s.height = Math.ceil(4 / columns) * (high + 76) + 4;
            if (state.runs === 1 && answer.first) {
                const { token, u, accepted, out } = answer.first;
                const limit = answer.p[token] / answer.q[token];
                return (
                    `${NAMES[token]} is drafted. It is accepted if a random number is below p / q = ${limit.toFixed(2)}. The number is ${u.toFixed(2)}, so it is ` +
                    (accepted
                        ? 'accepted.'
                        : `rejected, and a draw from the residual gives ${NAMES[out]}.`)
                );
            }
            const accepted = answer.accepted.reduce((a, b) => a + b, 0);
            return (
                `Of ${state.runs} drafts ${accepted} were accepted (${percent(accepted / state.runs)}; the overlap of p and q says ${percent(answer.overlap)}). ` +
                'The lines over the bars on the last panel are p.'
            );
        },
    });
})();
