"""What a classifier's file says beside the learner's state, checked before it is believed."""

import inspect
import math
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from deepccg.core import StateMismatch
from deepccg.estimator.columns import MOST_SLOTS, Categories, Columns
from deepccg.estimator.labels import LabelTable
from deepccg.estimator.spec import LearnerSpec
from deepccg.learners.base import NetworkLearner

if TYPE_CHECKING:
    from deepccg.estimator.base import StreamClassifier

Natural = Annotated[int, Field(ge=0, lt=2**63)]
Positive = Annotated[int, Field(ge=1, lt=2**31)]
Shape = Annotated[list[Positive], Field(min_length=1, max_length=3)]

FIRST_CLASSIFIER = "DeepCCGClassifier"  # whose files do not name it
MOST_INPUTS = 2**28  # numbers of one example


class SavedSpec(BaseModel):
    """A ``LearnerSpec`` as JSON; without an encoder if that is the user's module."""

    model_config = ConfigDict(strict=True, extra="forbid")

    method: str
    method_params: dict[str, Any]
    encoder: str | None
    encoder_params: dict[str, Any]
    memory: Natural
    device: str | int | None
    shape: Shape
    double: bool
    classes: list[Natural]
    seed: Natural
    standardize: bool = False  # older files do not have it

    def spec(self, overrides: Mapping[str, Any]) -> LearnerSpec:
        """Return the spec, with what ``overrides`` replaces."""
        fields: dict[str, Any] = {**dict(self), **overrides}
        return LearnerSpec(**{**fields, "shape": tuple(self.shape), "classes": tuple(self.classes)})


class SavedCategories(BaseModel):
    """``Categories`` as JSON."""

    model_config = ConfigDict(strict=True, extra="forbid")

    values: list[str]
    slots: Annotated[int, Field(ge=2, le=MOST_SLOTS)]

    @model_validator(mode="after")
    def _fit(self) -> Self:
        if len(set(self.values)) != len(self.values) or len(self.values) >= self.slots:
            raise ValueError("values do not fit into their slots")
        return self


class SavedColumns(BaseModel):
    """``Columns`` as JSON."""

    model_config = ConfigDict(strict=True, extra="forbid")

    categories: list[SavedCategories | None]
    count: list[Annotated[float, Field(ge=0, lt=2**53)]]
    mean: list[Annotated[float, Field(allow_inf_nan=False)]]

    def columns(self) -> Columns:
        """Return the columns."""
        slots = [
            None if own is None else Categories(tuple(own.values), own.slots)
            for own in self.categories
        ]
        return Columns(tuple(slots), np.array(self.count), np.array(self.mean))


class SavedHeader(BaseModel):
    """All of it; other entries are ignored."""

    model_config = ConfigDict(strict=True)

    classifier: str = FIRST_CLASSIFIER
    params: dict[str, Any]
    plan: SavedSpec
    labels: list[Any]
    label_type: str
    codes: list[Natural]
    tasks: list[list[Natural]]
    input_shape: Shape
    n_features_in: Positive
    feature_names: list[str] | None
    frozen: list[str] | None = None
    columns: SavedColumns | None = None  # older files have none
    pretrained: str | None = None  # the name of an encoder whose weights are not in the file

    @classmethod
    def of(cls, about: Mapping[str, Any]) -> Self:
        """Return the header; a ``StateMismatch`` names the first entry that cannot be."""
        try:
            header = cls.model_validate(dict(about))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise StateMismatch(f"its {where} is missing or broken: {first['msg']}") from None
        header._require_inputs()
        return header

    def table(self) -> LabelTable:
        """Return the labels, their codes and the tasks made of them."""
        tasks = tuple(tuple(task) for task in self.tasks)
        return LabelTable.restored(self.labels, self.label_type, self.codes, tasks)

    def usable_params(
        self, classifier: "type[StreamClassifier]", spec: LearnerSpec, overrides: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the parameters, with those that learning cannot go on with as they were.

        A parameter may be set after learning began; then only ``fit`` takes it.
        """
        params = {**self.params, **overrides}
        if "standardize" in inspect.signature(classifier).parameters:
            params.setdefault("standardize", spec.standardize)
        changed = spec.changed(classifier.spec_fields(params))
        reset = classifier.spec_params(spec, changed)
        for name, least in (("batch_size", 1), ("random_state", 0)):
            if not (params.get(name) is None or _is_count(params[name], least)):
                reset[name] = None
        if reset:
            warnings.warn(
                f"{', '.join(reset)}: as when learning began, not as set afterwards", stacklevel=5
            )
        return params | reset

    def _require_inputs(self) -> None:
        shape = self.plan.shape
        whole = math.prod(shape)
        own = [*shape[1:], shape[0]] if len(shape) == 3 else shape  # images: [C, H, W] inside
        names, inputs, columns = self.feature_names, whole, self.columns
        if columns is not None and len(shape) == 1:
            inputs = len(columns.categories)
            own = [inputs] if columns.columns().width == whole else []
        fits = (
            len(shape) != 2
            and whole <= MOST_INPUTS
            and self.input_shape == own
            and self.n_features_in == inputs
            and (names is None or len(shape) == 1)
            and (names is None or len(names) == len(set(names)) == inputs)
            and (columns is None or len(columns.count) == len(columns.mean) == inputs)
        )
        if not fits:
            raise StateMismatch("its inputs' shapes and names do not fit together")


def require_same_classes(
    learner: NetworkLearner[Any], table: LabelTable, spec: LearnerSpec
) -> None:
    """Reject a learner whose classes, tasks or inputs are not those of the labels."""
    classes = learner.class_table.classes
    codes = set(range(len(table)))
    tasks = {
        number: sorted(classes[column] for column in columns)
        for number, columns in learner.class_table.tasks
    }
    if set(classes) != codes or not codes.issuperset(spec.classes):
        raise StateMismatch("its labels are not those of the learner's classes")
    if tasks != {number: list(task) for number, task in enumerate(table.tasks)}:
        raise StateMismatch("its tasks are not those of the learner")
    shape, kind = learner.inputs.shape, learner.inputs.kind
    if shape not in (None, spec.shape) or (len(spec.shape) == 1 and kind == "uint8"):
        raise StateMismatch("its inputs are not those of the learner")


def _is_count(value: Any, least: int) -> bool:
    return type(value) is int and least <= value < 2**32
