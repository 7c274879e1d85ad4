"""Compare methods from Python: the table, the verdicts, the page, and a model to use.

python examples/compare_in_python.py                    # made-up data with known domains: a minute
python examples/compare_in_python.py heart.csv          # columns num and hospital, as UCI heart disease
"""

from __future__ import annotations

import sys
from pathlib import Path

import gated_domains as gd


class ShrunkERM(gd.METHODS["erm"]):  # type: ignore[misc]
    """Plain training with a small penalty on all weights: a method of one's own, beside the package's."""

    name, label = "shrunk-erm", "ERM, shrunk"
    what = "plain training with a penalty on the squared weights"

    def objective(self, batch: gd.DomainBatch) -> dict:
        penalty = sum(weights.square().sum() for weights in self.parameters())
        return {**super().objective(batch), "shrinkage": 1e-5 * penalty}


def main(table: str | None = None, out: str = "runs/compare_in_python") -> gd.Comparison:
    """Compare three methods, then train one model and predict with it."""
    if table is None:
        data = gd.load_dataset("synthetic")
    else:
        data = gd.load_dataset(table, target="num", domain="hospital", positive=[1, 2, 3, 4])

    result = gd.compare(data, methods=["gdu", "erm", ShrunkERM], seeds=2, training={"epochs": 10}, out=out)
    print(result)  # the answer, then the table
    print("\nOn a new domain, compared with ERM:", result.verdicts)
    frame = result.to_frame()  # needs pandas
    print(frame[["label", "mean", "new_domain_difference"]].round(3).to_string(index=False))
    page = result.save_report(Path(out, "report.html"))[0]
    print(f"\nwrote {page}")

    run = gd.train(data, method="erm", training={"epochs": 10}, out=out)  # one model, of all domains
    model = gd.load_model(run.path)
    print(f"first predictions of {run.path}: {model.predict(table or data)[:5]}")
    return result


if __name__ == "__main__":  # trainings run in worker processes, which import this file
    main(*sys.argv[1:2])
