"""Draws docs/images/call-path.svg: python docs/images/make_call_path.py"""

from __future__ import annotations

from pathlib import Path

BOXES = {  # name: (x, y, width, title, module)
    "cli": (20, 20, 200, "gated-domains compare", "cli/compare.py"),
    "compare": (20, 110, 200, "compare(...)", "experiments/compare.py"),
    "data": (20, 220, 200, "read_data", "data/"),
    "grid": (20, 310, 200, "plan_grid", "experiments/grid.py"),
    "planner": (20, 400, 200, "Planner.plan -> Plan", "experiments/planner.py"),
    "executor": (300, 110, 210, "Executor.run(plan)", "experiments/executors/"),
    "runner": (300, 220, 210, "Runner.make(planned)", "experiments/runner.py"),
    "builder": (300, 310, 210, "Builder.build", "experiments/builder.py"),
    "trainer": (300, 400, 210, "Trainer.fit", "training/trainer.py"),
    "writer": (590, 310, 210, "write_run -> RunResult", "experiments/writer.py"),
    "method": (590, 400, 210, "Method.step(batch)", "methods, backbones, layer"),
    "runs": (590, 220, 210, "RunFolder", "runs/"),
    "reports": (590, 110, 210, "Comparison(results)", "reports/"),
}
ARROWS = [
    ("cli", "compare"),
    ("compare", "data"),
    ("data", "grid"),
    ("grid", "planner"),
    ("compare", "executor"),
    ("executor", "runner"),
    ("runner", "builder"),
    ("builder", "trainer"),
    ("trainer", "method"),
    ("runner", "writer"),
    ("writer", "runs"),
    ("runs", "reports"),
]
HEIGHT = 58


def box(name: str) -> str:
    """A box with the call and its module."""
    x, y, width, title, module = BOXES[name]
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{HEIGHT}" rx="8" class="box"/>'
        f'<text x="{x + width / 2}" y="{y + 25}" class="title">{title.replace(">", "&gt;")}</text>'
        f'<text x="{x + width / 2}" y="{y + 45}" class="module">{module}</text>'
    )


def arrow(start: str, end: str) -> str:
    """An arrow between two boxes."""
    x1, y1, w1, *_ = BOXES[start]
    x2, y2, *_ = BOXES[end]
    if x1 == x2:  # down or up
        down = y2 > y1
        x, a, b = x1 + w1 / 2, y1 + (HEIGHT if down else 0), y2 + (-4 if down else HEIGHT + 4)
        return f'<path d="M{x} {a} V{b}" class="arrow"/>'
    x, a, b = x1 + w1, y1 + HEIGHT / 2, y2 + HEIGHT / 2
    middle = (x + x2) / 2
    return f'<path d="M{x} {a} H{middle} V{b} H{x2 - 4}" class="arrow"/>'


def main() -> None:
    """Write the picture beside this file."""
    style = (
        ".box{fill:#eef3fb;stroke:#3b6cb3;stroke-width:1.5}"
        ".title{font:600 13.5px sans-serif;text-anchor:middle;fill:#16283f}"
        ".module{font:12.5px monospace;text-anchor:middle;fill:#445}.arrow{fill:none;stroke:#3b6cb3;stroke-width:1.6;"
        "marker-end:url(#head)}.page{fill:#fff}"
    )
    head = (
        '<defs><marker id="head" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#3b6cb3"/></marker></defs>'
    )
    parts = [box(name) for name in BOXES] + [arrow(*ends) for ends in ARROWS]
    body = "\n".join(parts)
    size = 'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 820 480" width="820" height="480" role="img"'
    svg = f'<svg {size} aria-label="The call path of compare">\n<style>{style}</style>{head}\n'
    svg += f'<rect width="820" height="480" class="page"/>\n{body}\n</svg>\n'
    Path(__file__).with_name("call-path.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
