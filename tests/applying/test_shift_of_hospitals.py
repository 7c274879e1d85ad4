"""What is said of real hospitals: of rows like those of training, of a new hospital, and of files that are wrong."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from gated_domains.applying.inside import GatedModel, open_gated
from gated_domains.applying.shifting import read_site, shift_of
from gated_domains.data.labels import Reading
from gated_domains.data.loading import load_data
from gated_domains.experiments.recipe_checks import choose_method, default_training
from gated_domains.experiments.runner import Runner
from gated_domains.reports.shift_words import sentences
from gated_domains.runs.recipe import DataSettings, Recipe
from gated_domains.runs.site_shift import SiteShift
from made_runs import CPU

HEART = Path(__file__).parents[3] / "shared" / "data" / "heart_disease_4hospitals.csv"
READING = Reading(target="num", domain="hospital", positive=("1", "2", "3", "4"))
pytestmark = [
    pytest.mark.usefixtures("without_shape_checks"),
    pytest.mark.skipif(not HEART.is_file(), reason="real data (../shared/data) are not here"),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> GatedModel:
    """Trained on three hospitals, and calibrated by leaving out each of them."""
    heart = load_data(HEART, READING)
    recipe = Recipe(
        data=DataSettings.of(str(HEART), READING),
        hold_out="va",
        method=choose_method("gdu"),
        training=default_training(heart, {}),
    )
    run = Runner(heart, tmp_path_factory.mktemp("hospitals") / "runs", hardware=CPU).run(recipe)
    return open_gated(run.path)


@pytest.fixture
def hospitals() -> pd.DataFrame:
    return pd.read_csv(HEART)


def asked(model: GatedModel, rows: pd.DataFrame, folder: Path) -> SiteShift:
    path = folder / "new.csv"
    rows.to_csv(path, index=False)
    return shift_of(model, read_site(str(path), model.schema), calibrate=True, hardware=CPU)


def test_rows_of_a_training_hospital_are_like_it(model, hospitals, tmp_path):
    found = asked(model, hospitals[hospitals.hospital == "hungarian"].sample(150, random_state=0), tmp_path)
    assert sentences(found)[0].startswith(
        "new.csv is like hungarian; no farther from the sources than they are from one another (rank "
    )
    assert found.accuracy.value is None
    assert "No shift was seen: expect the accuracy that it has on validation rows" in sentences(found)[-1]


def test_the_fourth_hospital_is_no_farther_than_hospitals_are_from_one_another(model, hospitals, tmp_path):
    found = asked(model, hospitals[hospitals.hospital == "va"], tmp_path)
    assert sentences(found)[0].startswith(
        "new.csv is no farther from the sources than they are from one another (rank "
    )
    assert found.differs
    assert found.accuracy.value is None, "its interval is wider than 40 points"


def rescaled(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(age=12 * rows.age, chol=1_000 * rows.chol)


def swapped(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(age=rows.trestbps, trestbps=rows.age)


def scrambled(rows: pd.DataFrame) -> pd.DataFrame:
    """The values of every row in other columns."""
    columns = [name for name in rows if name not in ("num", "hospital")]
    return rows.assign(**{name: rows[other] for name, other in zip(columns, columns[::-1], strict=True)})


@pytest.mark.parametrize(
    ("spoil", "columns"), [(rescaled, ("age", "chol")), (swapped, ("age", "trestbps")), (scrambled, ("age",))]
)
def test_units_and_columns_that_are_wrong_lead_the_headline(model, hospitals, spoil, columns, tmp_path):
    for rows in (hospitals[hospitals.hospital == "va"], hospitals.sample(250, random_state=1)):
        found = asked(model, spoil(rows), tmp_path)
        answer = sentences(found)[0]
        assert answer.startswith("new.csv is unlike all sources: ")
        assert "check units and columns (" in answer
        assert set(columns) <= set(found.far_columns)
        assert found.accuracy.value is None
        assert "cannot be estimated" in sentences(found)[-1]


def one_unit(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(chol=rows.chol / 38.67)


def shuffled(rows: pd.DataFrame, seed: int = 0) -> pd.DataFrame:
    """Every column by itself in another order: as they were one by one, and nonsense together."""
    orders = {name: 100 * seed + place for place, name in enumerate(rows.columns)}
    return rows.assign(**{name: rows[name].sample(frac=1, random_state=order).values for name, order in orders.items()})


@pytest.mark.parametrize("spoil", [rescaled, swapped, scrambled, one_unit, shuffled])
def test_no_file_gets_an_estimate_above_the_score_on_the_sources(model, hospitals, spoil, tmp_path):
    for rows in (hospitals[hospitals.hospital == "va"], hospitals.sample(250, random_state=2)):
        found = asked(model, spoil(rows), tmp_path)
        assert found.accuracy.value is None or found.accuracy.value <= found.accuracy_of_sources


@pytest.fixture
def sources(hospitals: pd.DataFrame) -> pd.DataFrame:
    return hospitals[hospitals.hospital != "va"]


@pytest.mark.parametrize(
    "count", [12, pytest.param(25, marks=pytest.mark.slow), 80, pytest.param(250, marks=pytest.mark.slow)]
)
def test_rows_with_shuffled_columns_never_get_the_score_of_the_sources(model, sources, count, tmp_path):
    """Their true accuracy is about 50 %; with few rows the test of means alone does not see that."""
    for seed in range(6):
        rows = shuffled(sources.sample(250, random_state=seed), seed).sample(count, random_state=seed)
        assert "No shift was seen" not in sentences(asked(model, rows, tmp_path))[-1]
    whole = shuffled(sources[sources.hospital == "hungarian"], 3)
    assert asked(model, whole, tmp_path).alike is None


def test_genuine_rows_get_the_score_of_the_sources_where_there_are_enough(model, sources, tmp_path):
    for seed in range(3):
        found = asked(model, sources.sample(250, random_state=seed), tmp_path)
        assert "No shift was seen" in sentences(found)[-1]
        few = sentences(asked(model, sources.sample(12, random_state=seed), tmp_path))
        assert "12 rows are too few to say whether there is a shift (50 are needed)" in few[0]
        assert "No shift was seen" not in few[-1]
    for name, rows in sources.groupby("hospital"):
        found = asked(model, rows.sample(100, random_state=0), tmp_path)
        assert found.alike.name == name
        assert "No shift was seen" in sentences(found)[-1]
