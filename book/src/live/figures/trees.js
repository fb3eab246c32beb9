/* Day 24, draft trees: a tree grows, the model verifies it, and the accepted path stays. */
(function () {
    'use strict';
    const { figure, clip } = window.candecode;
    const MOST = 12; // blocks that the figure has room for
    const STAGES = ['drafted', 'verified', 'cut'];

    const plural = (n, one, many) => `${n} ${n === 1 ? one : many || `${one}s`}`;

    /** Each node's row in the picture: leaves from top to bottom, a parent next to its first child. */
    function rows(parents) {
        const at = parents.map(() => 0);
        let next = 0;
        const place = (node) => {
            const children = parents.flatMap((parent, child) => (parent === node ? [child] : []));
            children.forEach(place);
            at[node] = children.length ? at[children[0]] : next++;
        };
        place(0);
        return { at, count: next };
    }

    figure('trees', {
        question: 'Which branch does the model take, and what is left of the tree in the cache?',
        tryThis:
            'Go on step by step: a tree is drafted, verified in one pass, and cut. Then make it a chain, and start again. ' +
            'What does the chain miss in its first block?',
        state: { block: 1, stage: 1 },
        controls: [
            {
                name: 'text',
                label: 'Prompt',
                kind: 'text',
                value: 'Tom was sad. Tom was happy. Tom had a ball. Tom',
                change: (f) => {
                    f.state.block = 1;
                },
            },
            {
                name: 'shape',
                label: 'shape of the tree',
                kind: 'select',
                options: ['1x1x1', '2x1x1', '3x2x1', '4x1x1'],
                value: '3x2x1',
            },
            {
                name: 'next',
                label: 'Next step',
                kind: 'button',
                press: (f, answer) => {
                    if (f.state.stage < 2) f.state.stage += 1;
                    else if (f.state.block < MOST && !(answer && answer.ended)) {
                        f.state.block += 1;
                        f.state.stage = 0;
                    }
                },
            },
            {
                name: 'again',
                label: 'From the beginning',
                kind: 'button',
                press: (f) => {
                    f.state.block = 1;
                    f.state.stage = 0;
                },
            },
        ],
        ask: (v, { block }) => ({
            ask: 'trees',
            text: v.text,
            blocks: block,
            shape: v.shape.split('x').map(Number),
        }),

        draw(answer, s, f, { state }) {
            const { before, nodes, parents, depths, choices, path, written } = answer.block;
            const stage = state.stage;
            const kept = (node) => path.includes(node);
            const deepest = Math.max(...depths);
            const columns = deepest + 2; // the last one is for the model's own token
            const wide = s.width / columns;
            const box = Math.min(wide - (s.narrow ? 14 : 40), 104);
            const letters = (box - 6) / 8.4;
            const high = stage === 1 ? 44 : 34;
            const { at, count } = rows(parents);
            const place = (node) => [depths[node] * wide + 1, 46 + at[node] * high];
            const room = s.narrow ? 38 : 78;
            const text = [...before.join('')];
            s.text(0, 14, `block ${answer.blocks}: ${STAGES[stage]}`, 'left');
            s.text(
                0,
                31,
                (text.length > room ? '…' : '') + text.slice(-room).join(''),
                'left mono',
            );
            const wire = (from, x, y, kind) =>
                s.path(
                    `M${from[0] + box} ${from[1] + 13} C${from[0] + box + 14} ${from[1] + 13} ${x - 14} ${y + 13} ${x} ${y + 13}`,
                    `wire${kind}`,
                );
            nodes.forEach((token, node) => {
                const [x, y] = place(node);
                const role =
                    node === 0 ? 'known' : stage === 0 ? 'draft' : kept(node) ? 'kept' : 'dropped';
                const faint = stage === 2 && !kept(node) ? ' faint' : '';
                if (node > 0)
                    wire(place(parents[node]), x, y, role === 'dropped' ? ` dashed${faint}` : '');
                s.box(x, y, box, 26, clip(token, letters), role + faint);
                if (stage === 1)
                    s.text(
                        x,
                        y + 35,
                        clip(`${s.narrow ? '→' : 'wants '}${choices[node]}`, (wide - 4) / 7),
                        `left note${kept(node) ? '' : ' faint'}`,
                    );
            });
            if (stage === 2 && written.length === path.length) {
                const end = path[path.length - 1];
                const [x, y] = [(depths[end] + 1) * wide + 1, place(end)[1]];
                // Dropped children may lie there: the model's token is drawn over the first of them.
                const taken = nodes.some(
                    (_, node) => depths[node] === depths[end] + 1 && at[node] === at[end],
                );
                const lower = taken ? 46 + count * high : y;
                wire(place(end), x, lower, '');
                s.box(x, lower, box, 26, clip(written[written.length - 1], letters), 'new');
            }
            let y = 46 + (count + (stage === 2 ? 1 : 0)) * high + 14;
            const held = stage === 2 ? path : nodes.map((_, node) => node);
            const first = before.length - 1;
            s.text(0, y, `columns in the cache: ${first} of the text, then`, 'left note');
            y += 12;
            const across = Math.min(s.width / Math.max(held.length, 1), s.narrow ? 30 : 56);
            held.forEach((node, i) => {
                const role =
                    node === 0 ? 'known' : stage === 0 ? 'draft' : kept(node) ? 'kept' : 'dropped';
                s.box(
                    i * across + 1,
                    y,
                    across - 3,
                    22,
                    across < 40 ? String(node) : clip(nodes[node], (across - 5) / 8.4),
                    role,
                );
            });
            s.height = y + 26;
            const drafted = nodes.length - 1;
            if (stage === 0)
                return drafted
                    ? `${plural(drafted, 'token')} drafted, from the places where “${nodes[0]}” occurred before.`
                    : `Nothing drafted: “${nodes[0]}” has not occurred before.`;
            if (stage === 1)
                return `One pass read ${plural(nodes.length, 'token')}, the root and ${drafted} drafted. ${path.length - 1} of these ${path.length === 2 ? 'is' : 'are'} accepted.`;
            const { passes, written: all } = answer.counts;
            return (
                `This block wrote ${plural(written.length, 'token')}: ${written.join('').replace(/·/g, ' ').trim()}. So far ${plural(passes, 'pass', 'passes')} wrote ${plural(all, 'token')}.` +
                (answer.ended ? ' The text has ended.' : '')
            );
        },
    });
})();
