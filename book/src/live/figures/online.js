/* Day 18: the online softmax, key by key. */
(function () {
    'use strict';
    const { figure } = window.candecode;
    const SCORES = [0, 1.1, 0.4, 1.6, 2.2, 0.7, 1.3, 0.2];
    const HIGH = 4; // the key whose score can be changed
    const LOW = -2,
        TOP = 8;
    const short = (n) => (n === null ? 'NaN' : Number(n.toPrecision(3)).toString());

    figure('online', {
        question: 'What does a query have to remember of the keys that it has met?',
        tryThis:
            'Step to key 5, then raise its score and watch the sum and the accumulator shrink.',
        mistakes: [
            { mistake: 'day18 acc_not_rescaled', label: 'the accumulator isn’t rescaled' },
        ],
        controls: [
            {
                name: 'met',
                label: 'keys met',
                kind: 'range',
                min: 1,
                max: SCORES.length,
                step: 1,
                value: 5,
            },
            {
                name: 'high',
                label: 'score of key 5',
                kind: 'range',
                min: LOW,
                max: TOP,
                step: 0.5,
                value: 4,
            },
            {
                name: 'group',
                label: 'keys at a time',
                kind: 'select',
                options: ['1', '2', '4'],
                value: '1',
            },
        ],
        ask: (values) => ({
            ask: 'online',
            scores: SCORES.map((score, i) => (i === HIGH ? values.high : score)),
            group: Number(values.group),
        }),

        draw(answer, s, figure, asked) {
            const { met, high, group } = asked.values;
            const size = Number(group),
                at = Math.ceil(met / size) - 1;
            const now = answer.states[at],
                before = answer.states[at - 1];
            const wide = s.width / SCORES.length,
                base = 118,
                scale = 10;
            SCORES.forEach((score, i) => {
                const value = i === HIGH ? high : score;
                const role = i >= now.met ? 'known faint' : i >= now.met - size ? 'new' : 'kept';
                const height = Math.max((value - LOW) * scale, 1);
                s.group(role, () =>
                    s.rect(i * wide + wide * 0.2, base - height, wide * 0.6, height, 'bar'),
                );
                s.text(i * wide + wide / 2, base - height - 9, short(value), 'note');
                s.text(i * wide + wide / 2, base + 13, `key ${i + 1}`, 'note');
            });
            const parts = [
                ['m', now.max, 'the largest score'],
                ['ℓ', now.sum, 'Σ exp(score − m)'],
                ['acc', now.acc, 'Σ exp(score − m) · value'],
                ['acc / ℓ', now.mean, 'the mean so far'],
                ['softmax', now.exact, 'the mean that it should be'],
            ];
            parts.forEach(([name, value, meaning], i) => {
                const y = base + 42 + i * 25;
                s.text(0, y, name, 'left strong');
                s.text(s.narrow ? 74 : 90, y, short(value), 'left mono');
                s.text(s.narrow ? 150 : 180, y, meaning, 'left note');
            });
            s.height = base + 42 + parts.length * 25 - 6;
            const wrong = now.mean === null || Math.abs(now.mean - now.exact) > 1e-3;
            const shrink = before && now.max > before.max ? Math.exp(before.max - now.max) : 1;
            return (
                (shrink < 1
                    ? `The maximum grew from ${short(before.max)} to ${short(now.max)}, so both sums shrank to ${short(shrink)} of what they were.`
                    : before
                      ? 'The maximum stayed, so nothing is rescaled.'
                      : 'These are the first keys.') +
                (wrong ? ' The mean is wrong: the accumulator still has the old scale.' : '')
            );
        },
    });
})();
