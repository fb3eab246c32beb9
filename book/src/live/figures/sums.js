/* Day 17: a sum's additions in time, with one running sum and with several. */
(function () {
    'use strict';
    const { figure } = window.candecode;
    const ADDITIONS = 16;

    /** The cycles in which additions start. Each takes `latency` cycles and needs its sum’s previous one. */
    function schedule(sums, latency) {
        const starts = [];
        for (let i = 0; i < ADDITIONS; i++) {
            const free = i > 0 ? starts[i - 1] + 1 : 0;
            const ready = i >= sums ? starts[i - sums] + latency : 0;
            starts.push(Math.max(free, ready));
        }
        return starts;
    }

    figure('sums', {
        question: 'How many running sums does it take to keep an adder busy?',
        tryThis: 'Add sums until no cycle is idle. Then let an addition take longer.',
        controls: [
            { name: 'sums', label: 'running sums', kind: 'range', min: 1, max: 8, step: 1, value: 1 },
            {
                name: 'latency',
                label: 'cycles per addition',
                kind: 'range',
                min: 2,
                max: 6,
                step: 1,
                value: 4,
            },
        ],
        ask: () => null, // only arithmetic, and no day's code

        draw(answer, s, figure, asked) {
            const { sums, latency } = asked.values;
            const starts = schedule(sums, latency),
                end = starts[ADDITIONS - 1] + latency;
            const left = s.narrow ? 48 : 64,
                cycle = (s.width - left - 2) / (ADDITIONS * latency),
                row = 26;
            for (let sum = 0; sum < sums; sum++) {
                s.text(0, 14 + sum * row, `sum ${sum + 1}`, 'left note');
                s.path(`M${left} ${26 + sum * row} H${s.width}`, 'axis');
            }
            starts.forEach((start, i) => {
                const label = cycle * latency > 16 ? String(i + 1) : '';
                s.box(
                    left + start * cycle,
                    3 + (i % sums) * row,
                    latency * cycle - 1,
                    20,
                    label,
                    i < sums ? 'new' : 'kept',
                    'note',
                );
            });
            s.height = sums * row + 6;
            const idle = end - latency + 1 - ADDITIONS;
            return (
                `${ADDITIONS} additions take ${end} cycles. ` +
                (idle > 0
                    ? `In ${idle} of them no addition can start, because its sum isn’t ready.`
                    : 'One starts in every cycle, so more sums would gain nothing.')
            );
        },
    });
})();
