"""The controls of one tab by request field: read them, set them, put them back to their defaults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import gradio as gr
from gradio.components import Component

Updates = dict[Any, Any]


class Form:
    """Controls by the name of the request field each stands for."""

    def __init__(self) -> None:
        self._controls: dict[str, Component] = {}
        self._defaults: dict[str, Any] = {}
        self._random: gr.Checkbox | None = None

    def __getitem__(self, field: str) -> Component:
        return self._controls[field]

    def __contains__(self, field: str) -> bool:
        return field in self._controls

    @property
    def seed(self) -> list[Component]:
        """The two controls of the seed."""
        return [self["seed"], self._random]

    def items(self) -> Iterable[tuple[str, Component]]:
        """Field and control, without the switch of the seed."""
        return self._controls.items()

    @property
    def controls(self) -> list[Component]:
        """All of them."""
        return [*self._controls.values(), *([self._random] if self._random else [])]

    def add(self, field: str, control: Component) -> Component:
        """Let ``control`` stand for ``field``; what it shows now is its default."""
        self._controls[field] = control
        self._defaults[field] = control.value if not callable(control.value) else None
        return control

    def add_seed(self) -> None:
        """Put the seed here: a number, and a switch for a new one each time."""
        with gr.Row():
            self.add("seed", gr.Number(0, label="Seed", precision=0, minimum=0, maximum=2**32 - 1, min_width=120))
            self._random = gr.Checkbox(True, label="New seed each time", min_width=120, elem_classes="plain")

    def values(self, given: Mapping[Component, Any]) -> dict[str, Any]:
        """Field to value, from what Gradio hands a listener whose inputs are a set."""
        values = {field: given[control] for field, control in self._controls.items()}
        if self._random is not None and given[self._random]:
            values["seed"] = None
        return values

    def fill(self, values: Mapping[str, Any]) -> Updates:
        """The updates that set these values, and all other controls to their defaults.

        A value that its control doesn't offer here, for example a resolution of another checkpoint, is left out.
        """
        updates: Updates = {
            control: gr.update(value=_fitting(control, values.get(field), self._defaults[field]))
            for field, control in self._controls.items()
        }
        if self._random is not None:
            updates[self._random] = gr.update(value=values.get("seed") is None)
        return updates

    def keep_seed(self, seed: int | None) -> Updates:
        """The updates that use this seed from now on."""
        return {} if seed is None else {self["seed"]: gr.update(value=seed), self._random: gr.update(value=False)}


def joined(*updates: Updates) -> Updates:
    """Several updates as one, those of the same component merged."""
    merged: Updates = {}
    for some in updates:
        for component, update in some.items():
            merged[component] = {**merged.get(component, {}), **update}
    return merged


def _fitting(control: Component, value: Any, default: Any) -> Any:
    """The value if the control offers it, or else the default."""
    if value is None:
        return default
    if isinstance(control, gr.Dropdown | gr.Radio):
        return value if value in [choice for _, choice in control.choices] else default
    if isinstance(control, gr.Slider | gr.Number) and not _between(value, control.minimum, control.maximum):
        return default
    return value


def _between(value: float, low: float | None, high: float | None) -> bool:
    return (low is None or value >= low) and (high is None or value <= high)
