"""Fitted estimators on disk: weights as safetensors, all else as JSON, and one digest over both. Nothing is pickled."""

from __future__ import annotations

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load as tensors_of_bytes
from safetensors.torch import save as bytes_of_tensors
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from gated_domains import __version__
from gated_domains.common.validation import not_negative
from gated_domains.data.errors import DataError, did_you_mean, first_line, listing, written_whole
from gated_domains.estimators import CARD
from gated_domains.estimators.estimator import DEVICES, NetworkEstimator
from gated_domains.estimators.gated import Gated, GDUClassifier, GDURegressor
from gated_domains.estimators.network import Network
from gated_domains.estimators.plain import ERMClassifier, ERMRegressor
from gated_domains.estimators.reference import rows_asked_for
from gated_domains.estimators.scaling import Scaling
from gated_domains.estimators.solving import Solving

FORMAT = 2
WEIGHTS = "estimator.safetensors"
ESTIMATORS: dict[str, type[NetworkEstimator]] = {
    kind.__name__: kind for kind in (GDUClassifier, GDURegressor, ERMClassifier, ERMRegressor)
}
_PRECISIONS = {"float32": torch.float32, "float64": torch.float64}
_AGAIN = "save the estimator again"
_NAMED = "name classes and domains by numbers or text"
# Where weights lie until the card tells of them.
_NEW_WEIGHTS = "estimator.new.safetensors"
# Arrays of names and numbers that a fitted estimator may have, and plain values.
_ARRAYS = ("classes_", "feature_names_in_", "domains_", "domain_counts_")
_VALUES = ("n_features_in_", "n_iter_", "solver_", "loss_curve_", "validation_curve_", "flat_", "outputs_")
# Tensors beside those of the network: rows kept of training, and the place of each one's domain.
_ROWS, _DOMAINS = "reference", "reference_domains"


def save_estimator(estimator: NetworkEstimator, folder: Path) -> None:
    """Write the weights under another name, then the card, then give the weights theirs.

    Whenever that is interrupted, what lies there is an estimator: the older one up to the card, from it on the new one.
    """
    check_is_fitted(estimator)
    kind = type(estimator).__name__
    if ESTIMATORS.get(kind) is not type(estimator):
        raise DataError(
            f"{kind} is not an estimator of ours, and could not be loaded again; save one of {listing(ESTIMATORS)}"
        )
    network = estimator.network_
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in network.state_dict().items()}
    content = bytes_of_tensors(tensors | _kept_of_training(estimator))
    card: dict[str, Any] = {
        "format": FORMAT,
        "gated_domains": __version__,
        "estimator": kind,
        "settings": {name: _plain(name, value) for name, value in estimator.get_params(deep=False).items()},
        "num_bases": 0 if network.units is None else network.units.max_bases,
        "precision": str(network.dtype).removeprefix("torch."),
        "arrays": {name: _described(getattr(estimator, name)) for name in _ARRAYS if hasattr(estimator, name)},
        "values": {name: getattr(estimator, name) for name in _VALUES if hasattr(estimator, name)},
        "accuracy": estimator.accuracy_.describe() if hasattr(estimator, "accuracy_") else None,
    }
    card["sha256"] = _digest(card, content)
    told = json.dumps(card, indent=1, allow_nan=False) + "\n"
    _finish_interrupted(folder)
    with written_whole(folder / _NEW_WEIGHTS) as draft:
        draft.write_bytes(content)
    with written_whole(folder / CARD) as draft:
        draft.write_text(told, "utf-8")
    os.replace(folder / _NEW_WEIGHTS, folder / WEIGHTS)


def _finish_interrupted(folder: Path) -> None:
    """Give the weights of a save that was interrupted after its card their name, before others take theirs."""
    if not (folder / CARD).is_file() or not (folder / _NEW_WEIGHTS).is_file():
        return
    try:
        card = _card(folder)
    except DataError:  # damaged: there is nothing to be kept
        return
    if card.pop("sha256", None) == _digest(card, (folder / _NEW_WEIGHTS).read_bytes()):
        os.replace(folder / _NEW_WEIGHTS, folder / WEIGHTS)


def load_estimator(folder: str | Path) -> NetworkEstimator:
    """The estimator that ``save`` wrote into a folder; what is damaged, changed or of a newer version is refused.

    No code is loaded: the estimator is one of ours by its name, and its weights are numbers.
    """
    folder = Path(folder)
    card = _card(folder)
    content = _weights_of(folder, card)
    kind = card.get("estimator")
    if not isinstance(kind, str) or kind not in ESTIMATORS:
        raise DataError(f"{folder / CARD}: there is no estimator {kind!r}{did_you_mean(str(kind), ESTIMATORS)}")
    try:
        return _filled(ESTIMATORS[kind], card, content)
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RuntimeError, SafetensorError) as error:
        raise DataError(f"{folder / CARD} is damaged ({first_line(error)}); {_AGAIN}") from error


def _filled(kind: type[NetworkEstimator], card: dict[str, Any], content: bytes) -> NetworkEstimator:
    settings = {name: _given(name, value) for name, value in card["settings"].items()}
    estimator = kind(**settings)
    for name in _VALUES:
        if name in card["values"]:
            setattr(estimator, name, card["values"][name])
    for name in _ARRAYS:
        if name in card["arrays"]:
            setattr(estimator, name, _array(card["arrays"][name]))
    _check_card(estimator)
    outputs, task = estimator._asked_for()
    tensors = tensors_of_bytes(content)
    if isinstance(estimator, Gated):
        _take_rows(estimator, tensors)
    if card["accuracy"] is not None:
        from gated_domains.insight.shift.accuracy import AccuracyCalibration

        if not isinstance(estimator, GDUClassifier):
            raise ValueError(f"{kind.__name__} has no accuracy that could be estimated")
        estimator.accuracy_ = AccuracyCalibration.from_description(card["accuracy"])

    def empty() -> Network:
        scalings = Scaling(int(estimator.n_features_in_)), Scaling(outputs)
        return estimator._empty(*scalings, task, num_bases=int(card["num_bases"]))

    with torch.device("meta"):  # which has no memory: a card that tells of a huge network costs nothing
        _check_weights(empty(), tensors)
    with torch.random.fork_rng(devices=[]):
        network = empty()
    network.head.to(_PRECISIONS[card["precision"]])
    network.load_state_dict(tensors)
    estimator._parts = None
    estimator._settle(network)
    return estimator


def _kept_of_training(estimator: NetworkEstimator) -> dict[str, Tensor]:
    """The rows kept of training and, where they are known, the places of their domains in ``domains_``."""
    if not isinstance(estimator, Gated):
        return {}
    found = {_ROWS: torch.from_numpy(np.ascontiguousarray(estimator.reference_, np.float32))}
    if estimator.reference_domains_ is not None:
        places = {str(name): place for place, name in enumerate(estimator.domains_)}
        found[_DOMAINS] = torch.tensor([places[str(name)] for name in estimator.reference_domains_], dtype=torch.int64)
    return found


def _take_rows(estimator: Gated, tensors: dict[str, Tensor]) -> None:
    """Move the rows kept of training from the tensors into the estimator; refused where they are no such rows."""
    rows, domains = tensors.pop(_ROWS), tensors.pop(_DOMAINS, None)
    if rows.dtype != torch.float32 or rows.dim() != 2 or rows.shape[1] != estimator.n_features_in_:
        raise ValueError("the rows kept of training are not of the shape that the card tells of")
    if not rows.isfinite().all():
        raise ValueError("the rows kept of training hold NaN or infinity")
    estimator.reference_, estimator.reference_domains_ = rows.numpy(), None
    if domains is not None:
        if domains.dtype != torch.int64 or domains.shape != rows.shape[:1] or (domains < 0).any():
            raise ValueError("the domains of the rows kept of training do not go with them")
        estimator.reference_domains_ = estimator.domains_[domains.numpy()]


def _check_card(estimator: NetworkEstimator) -> None:
    """Refuse arrays that do not go together, and settings that no fit would take."""
    Solving.of(estimator)
    not_negative("alpha", estimator.alpha)
    if isinstance(estimator, Gated):
        rows_asked_for(estimator.reference_rows)
    arrays = [getattr(estimator, name) for name in _ARRAYS if hasattr(estimator, name)]
    names = getattr(estimator, "feature_names_in_", None)
    classes = getattr(estimator, "classes_", None)
    if (
        any(values.ndim != 1 for values in arrays)
        or (names is not None and len(names) != estimator.n_features_in_)
        or (classes is not None and (len(classes) < 2 or len(set(classes.tolist())) != len(classes)))
        or len(estimator.domains_) != len(estimator.domain_counts_)
        or estimator.device not in DEVICES
    ):
        raise ValueError("its classes, columns, domains and settings do not go together")


def _check_weights(network: Network, tensors: dict[str, Tensor]) -> None:
    """Refuse weights that are not what this network has, or no numbers."""
    expected = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    found = {name: tuple(value.shape) for name, value in tensors.items()}
    if expected != found:
        wrong = sorted(name for name in {*expected, *found} if expected.get(name) != found.get(name))
        raise ValueError(f"the weights {listing(wrong)} are not of the shape that the card tells of")
    for name, value in tensors.items():
        if not value.isfinite().all():
            raise ValueError(f"the weights {name} hold NaN or infinity")


def _weights_of(folder: Path, card: dict[str, Any]) -> bytes:
    """The weights that were saved with the card; after an interrupted save they still have their first name."""
    digest, there = card.pop("sha256", None), False
    for path in (folder / WEIGHTS, folder / _NEW_WEIGHTS):
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            continue
        if digest == _digest(card, content):
            return content
        there = True
    if not there:
        raise DataError(f"{folder / WEIGHTS} is not there; {_AGAIN}")
    raise DataError(
        f"{folder}: {CARD} and {WEIGHTS} are not what was saved together: one is cut short, damaged, or was changed; "
        f"{_AGAIN}"
    )


def _card(folder: Path) -> dict[str, Any]:
    path = folder / CARD
    if not path.is_file():
        raise DataError(
            f"{folder} holds no saved estimator ({CARD} is not there); save one with estimator.save(folder)"
        )
    try:
        card = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: {first_line(error)}; it is cut short or damaged: {_AGAIN}") from error
    if not isinstance(card, dict):
        raise DataError(f"{path} is damaged (it holds no mapping); {_AGAIN}")
    found = card.get("format")
    if type(found) is int and found > FORMAT:
        raise DataError(
            f"{path} was saved by a newer version (gated-domains {card.get('gated_domains')}, format {found}); this "
            f"one ({__version__}) reads format {FORMAT}: update it"
        )
    if type(found) is not int or found != FORMAT:
        raise DataError(f"{path} is of format {found!r}, this version reads {FORMAT}; {_AGAIN}")
    return card


def _digest(card: dict[str, Any], content: bytes) -> str:
    """Of the card, however its lines are broken, and the weights."""
    return sha256(json.dumps(card, sort_keys=True).encode() + b"\n" + content).hexdigest()


def _plain(name: str, value: Any) -> Any:
    """A setting in what JSON knows."""
    if name == "class_weight" and isinstance(value, dict):
        return {"classes": _described(np.array(list(value))), "weights": [float(weight) for weight in value.values()]}
    if isinstance(value, np.generic):
        value = value.item()
    # A generator cannot be written down, and is of no use to a fitted model.
    return value if value is None or isinstance(value, (bool, int, float, str)) else None


def _given(name: str, value: Any) -> Any:
    if name == "class_weight" and isinstance(value, dict):
        return dict(zip(_array(value["classes"]).tolist(), value["weights"], strict=True))
    return value


def _described(values: NDArray[Any]) -> dict[str, Any]:
    if values.dtype.kind not in "biufUO":
        raise DataError(f"{values.dtype} is neither numbers nor text, and cannot be saved; {_NAMED}")
    kind = "object" if values.dtype == object else "text" if values.dtype.kind == "U" else values.dtype.str
    return {"kind": kind, "values": [_word(value) for value in values.tolist()]}


def _word(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, (bool, int, float, str)):
        return value
    raise DataError(f"{value!r} is neither a number nor text, and cannot be saved; {_NAMED}")


def _array(described: dict[str, Any]) -> NDArray[Any]:
    kind = described["kind"]
    if kind == "object":
        return np.array(described["values"], object)
    if kind != "text" and np.dtype(kind).kind not in "biuf":
        raise ValueError(f"an array of {kind!r} is neither numbers nor text")
    return np.array(described["values"], np.str_ if kind == "text" else np.dtype(kind))
