"""A new hospital arrives: three hospitals train a model of heart disease, the fourth sends its patients.

    python examples/new_hospital.py [heart_disease_4hospitals.csv] [--new va]      # under a minute on a CPU

The doctor says whether the gates of the model do anything. Then, before one diagnosis of the new hospital is known: how
unlike the three it is, with a p-value; which bases it draws on; how accurate the model will probably be there. The
diagnoses are in the file, so the truth stands beside. Two pictures and a page end up in out/new_hospital.

The file has a column ``num`` (0: healthy), a column ``hospital``, and 13 measurements, of which many are missing.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from gated_domains import load_data
from gated_domains.applying.examining import examine_model
from gated_domains.applying.inside import GatedModel, open_gated
from gated_domains.applying.shifting import shift_of
from gated_domains.data import DomainDataset, Reading
from gated_domains.experiments import DataSettings, Recipe, Runner, choose_method
from gated_domains.experiments.recipe_checks import default_training
from gated_domains.reports.charts.drawn import write_chart
from gated_domains.reports.figures import site_shift as figures
from gated_domains.reports.shift_page import write_shift_page
from gated_domains.reports.shift_words import sentences
from gated_domains.runs.folder import RunFolder
from gated_domains.runs.site_shift import SiteShift
from gated_domains.training.engine import Hardware

HEART = "heart_disease_4hospitals.csv"
READING = Reading(target="num", domain="hospital", positive=("1", "2", "3", "4"))
OUT = Path("out/new_hospital")
CPU = Hardware(device="cpu")

console = Console(highlight=False)


def trained_without(hospital: str, heart: DomainDataset, path: Path) -> RunFolder:
    """A gated model of all other hospitals."""
    recipe = Recipe(
        data=DataSettings.of(str(path), READING),
        hold_out=hospital,
        method=choose_method("gdu"),
        training=default_training(heart, {}),
    )
    return Runner(heart, OUT / "runs", hardware=CPU).run(recipe)


def arrives(hospital: str, model: GatedModel) -> SiteShift:
    """What the model can say of the patients that it was trained without."""
    patients = model.trained_on().held_out
    assert patients is not None
    return shift_of(model, replace(patients, name=hospital), calibrate=True, hardware=CPU)


def draw(shift: SiteShift) -> list[Path]:
    """The two pictures that are worth most, and the page with all of them."""
    wanted = [figures.mixture(shift), figures.accuracy(shift)]
    pictures = [write_chart(chart, OUT, ("png",))[0] for chart in wanted if chart is not None]
    return [*pictures, write_shift_page(shift, OUT / "shift.html")]


def main() -> None:
    """Train, examine, compare the new hospital with the others."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", type=Path, default=_usual_place())
    parser.add_argument("--new", default="va", help="the hospital that arrives")
    chosen = parser.parse_args()
    if not chosen.file.is_file():
        sys.exit(f"{chosen.file} is not there; give the path of {HEART} (UCI heart disease, four hospitals)")
    heart = load_data(chosen.file, READING)

    console.print(f"[bold]1. Trained on {len(heart.domain_names) - 1} hospitals, without {chosen.new}[/]")
    run = trained_without(chosen.new, heart, chosen.file)
    sources = run.result().validation_overall
    console.print(f"   {100 * sources:.1f} % right on patients of these hospitals that were kept aside\n")

    console.print("[bold]2. What the doctor says of the model[/]")
    model = open_gated(run.path)
    for line in examine_model(model).lines():
        console.print(f"   {line}", soft_wrap=True, markup=False)

    console.print(f"\n[bold]3. {chosen.new} arrives[/]")
    shift = arrives(chosen.new, model)
    for sentence in sentences(shift):
        console.print(f"   {sentence}", soft_wrap=True, markup=False)

    console.print("\n[bold]4. To look at[/]")
    for path in draw(shift):
        console.print(f"   {path}", soft_wrap=True)


def _usual_place() -> Path:
    """Here, or beside the project among shared data."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data" / HEART
    return beside if beside.is_file() and not Path(HEART).is_file() else Path(HEART)


if __name__ == "__main__":
    main()
