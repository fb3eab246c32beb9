/* Day 16, the roofline calculator. */
(function () {
    'use strict';
    const { figure } = window.candecode;
    const MACHINES = {
        'a laptop (Apple M2)': [1e11, 3.6e12],
        'two cores of a server': [2e10, 1e11],
        'Apple M4 Max': [5.46e11, 1.7e13],
        'NVIDIA H100': [3.35e12, 9.89e14],
    };
    const WEIGHTS = { f32: 4, bf16: 2, '8 bits': 1, '4.5 bits': 0.5625 };
    const digits = (n, most) => n.toLocaleString('en', { maximumSignificantDigits: most });
    const unit = (n, list) => {
        let i = 0;
        while (n >= 1000 && i < list.length - 1) {
            n /= 1000;
            i += 1;
        }
        return `${n >= 100 ? n.toFixed(0) : digits(n, 2)} ${list[i]}`;
    };
    const seconds = (t) =>
        t >= 1
            ? `${digits(t, 3)} s`
            : t >= 1e-3
              ? `${digits(t * 1e3, 3)} ms`
              : `${digits(t * 1e6, 3)} µs`;
    const power = (value) => 2 ** value;

    figure('roofline', {
        question:
            'Is this pass waiting for bytes or for operations, and how long does it take at least?',
        tryThis:
            'Take Llama 3 8B on an H100 and raise the batch until operations become the bound. Then make the past eight times as long.',
        controls: [
            {
                name: 'model',
                label: 'model',
                kind: 'select',
                options: ['Llama 3 8B', 'Qwen3 0.6B', 'story-230k'],
                value: 'Llama 3 8B',
            },
            {
                name: 'machine',
                label: 'machine',
                kind: 'select',
                options: Object.keys(MACHINES),
                value: 'NVIDIA H100',
            },
            {
                name: 'weights',
                label: 'weights',
                kind: 'select',
                options: Object.keys(WEIGHTS),
                value: 'bf16',
            },
            {
                name: 'rows',
                label: 'rows',
                kind: 'range',
                min: 0,
                max: 10,
                step: 1,
                value: 0,
                show: (v) => String(power(v)),
            },
            {
                name: 'new',
                label: 'new tokens of each row',
                kind: 'range',
                min: 0,
                max: 13,
                step: 1,
                value: 0,
                show: (v) => String(power(v)),
            },
            {
                name: 'past',
                label: 'positions in the cache',
                kind: 'range',
                min: 0,
                max: 13,
                step: 1,
                value: 7,
                show: (v) => (v === 0 ? '0' : String(power(v))),
            },
        ],
        ask: (v) => ({
            ask: 'roofline',
            model: v.model,
            bandwidth: MACHINES[v.machine][0],
            peak: MACHINES[v.machine][1],
            weight_bytes: WEIGHTS[v.weights],
            cache_bytes: 2,
            rows: power(v.rows),
            new: power(v.new),
            past: v.past === 0 ? 0 : power(v.past),
        }),

        draw(answer, s, f, { values }) {
            const w = s.width;
            const [bandwidth, peak] = MACHINES[values.machine];
            // Two times for each stage, one below the other. The longer one counts.
            const left = s.narrow ? 0 : 150;
            const COUNTS = ['', 'thousand', 'million', 'billion', 'trillion', 'quadrillion'];
            const bars = answer.stages.flatMap(({ name, bytes, operations }) => [
                [
                    `${name}, bytes`,
                    bytes / bandwidth,
                    unit(bytes, ['B', 'kB', 'MB', 'GB', 'TB']),
                    'kept',
                ],
                [`${name}, operations`, operations / peak, unit(operations, COUNTS), 'new'],
            ]);
            const most = Math.max(...bars.map(([, time]) => time));
            let y = 16;
            bars.forEach(([name, time, amount, role]) => {
                if (s.narrow) {
                    s.text(0, y, `${name}: ${amount}, ${seconds(time)}`, 'left note');
                    y += 12;
                } else s.text(left - 8, y + 9, name, 'right note');
                const room = ((w - left - (s.narrow ? 2 : 230)) * time) / most;
                s.group(role, () => s.rect(left, y, Math.max(room, 1), 18, 'bar'));
                if (!s.narrow)
                    s.text(left + room + 8, y + 9, `${seconds(time)} for ${amount}`, 'left note');
                y += 28;
            });

            // The roof, and decoding at other batch sizes on it.
            y += 20;
            const x0 = s.narrow ? 44 : 110,
                x1 = w - 14,
                high = 190;
            const low = -1,
                top = 5;
            const px = (intensity) =>
                x0 + ((Math.log10(Math.max(intensity, 0.1)) - low) / (top - low)) * (x1 - x0);
            const floor = Math.floor(Math.log10(bandwidth * 0.1)),
                ceiling = Math.ceil(Math.log10(peak * 1.2));
            const py = (rate) => y + high - ((Math.log10(rate) - floor) / (ceiling - floor)) * high;
            s.text(
                0,
                y - 12,
                s.narrow
                    ? 'operations a second, by operations a byte'
                    : 'the roofline: operations a second over operations a byte (logarithmic); dots: decoding 1, 2, 4, … rows, both stages',
                'left note',
            );
            s.path(`M${x0} ${y} V${y + high} H${x1}`, 'axis');
            for (let e = low; e <= top; e++)
                s.text(
                    px(10 ** e),
                    y + high + 13,
                    e < 0
                        ? '0.1'
                        : e < 4
                          ? String(10 ** e)
                          : `10${['⁰', '¹', '²', '³', '⁴', '⁵'][e]}`,
                    'note',
                );
            for (let e = floor; e <= ceiling; e += 2)
                s.text(
                    x0 - 6,
                    py(10 ** e),
                    unit(10 ** e, ['', 'k', 'M', 'G', 'T', 'P']),
                    'note right',
                );
            const ridge = peak / bandwidth;
            s.path(`M${px(0.1)} ${py(bandwidth * 0.1)} L${px(ridge)} ${py(peak)} H${x1}`, 'wire');
            s.group('known', () =>
                answer.curve.forEach((point) =>
                    s.circle(px(point.intensity), py(point.attained), 5, 'dot'),
                ),
            );
            s.group('new', () => s.circle(px(answer.intensity), py(answer.attained), 8, 'dot'));
            s.height = y + high + 24;
            const stages = answer.stages.map(({ name, bytes, operations }) => {
                const [moving, computing] = [bytes / bandwidth, operations / peak];
                const [time, bound] =
                    moving > computing ? [moving, 'bytes'] : [computing, 'operations'];
                return `${seconds(time)} for ${name === 'products' ? 'the matmuls' : name} (${bound})`;
            });
            return (
                `${answer.memory_bound ? 'Bytes are the bound' : 'Operations are the bound'}: the pass takes at least ${seconds(answer.seconds)}, ` +
                `${stages.join(' and ')}, with ${digits(answer.intensity, 3)} operations a byte. ` +
                (answer.critical_batch
                    ? `The matmuls with the weights become compute-bound at ${answer.critical_batch} rows.`
                    : 'The matmuls with the weights stay memory-bound, however many rows there are.')
            );
        },
    });
})();
