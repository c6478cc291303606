"""The one look: palette, type and spacing for Gradio, and the style sheet and script of our own parts."""

from __future__ import annotations

from pathlib import Path

import gradio as gr
from gradio.themes.utils.colors import Color

HERE = Path(__file__).parent
STYLE = HERE / "look.css"
SCRIPT = HERE / "page.js"

_MOSS = Color(
    name="moss",
    c50="#f2f8ec",
    c100="#e2f0d4",
    c200="#c7e2ae",
    c300="#a4cf7e",
    c400="#83ba52",
    c500="#659c34",
    c600="#4a7a24",
    c700="#3b6120",
    c800="#314e1e",
    c900="#29421c",
    c950="#13240c",
)
_STONE = Color(
    name="stone",
    c50="#f6f7f5",
    c100="#edefeb",
    c200="#dee1db",
    c300="#c4c9c0",
    c400="#949b90",
    c500="#6c7369",
    c600="#51584f",
    c700="#3a403a",
    c800="#252a26",
    c900="#181c19",
    c950="#0f1210",
)


def make() -> gr.themes.Base:
    """The Gradio theme; light and dark."""
    theme = gr.themes.Base(
        primary_hue=_MOSS,
        secondary_hue=_MOSS,
        neutral_hue=_STONE,
        radius_size=gr.themes.sizes.radius_md,
        spacing_size=gr.themes.sizes.spacing_md,
        font=(gr.themes.LocalFont("IBM Plex Sans", weights=(400, 700)), "system-ui", "sans-serif"),
        font_mono=(gr.themes.LocalFont("IBM Plex Mono"), "ui-monospace", "monospace"),
    )
    return theme.set(
        body_background_fill="*neutral_50",
        body_background_fill_dark="*neutral_950",
        body_text_color_subdued="*neutral_500",
        body_text_color_subdued_dark="*neutral_400",
        block_background_fill="white",
        block_background_fill_dark="*neutral_900",
        block_border_width="1px",
        block_border_color="*neutral_200",
        block_border_color_dark="*neutral_800",
        block_shadow="none",
        block_label_background_fill="white",
        block_label_background_fill_dark="*neutral_900",
        block_label_border_width="0px",
        block_label_border_width_dark="0px",
        block_label_text_color="*neutral_500",
        block_label_text_color_dark="*neutral_400",
        block_title_text_color="*neutral_600",
        block_title_text_color_dark="*neutral_300",
        block_title_text_weight="600",
        block_info_text_color="*neutral_500",
        block_info_text_color_dark="*neutral_400",
        input_background_fill="*neutral_50",
        input_background_fill_dark="*neutral_950",
        input_border_color="*neutral_200",
        input_border_color_dark="*neutral_700",
        input_border_color_focus="*primary_500",
        input_border_color_focus_dark="*primary_400",
        button_primary_background_fill="*primary_600",
        button_primary_background_fill_hover="*primary_700",
        button_primary_background_fill_dark="*primary_400",
        button_primary_background_fill_hover_dark="*primary_300",
        button_primary_text_color="white",
        button_primary_text_color_dark="*primary_950",
        button_secondary_background_fill="white",
        button_secondary_background_fill_dark="*neutral_800",
        button_secondary_background_fill_hover="*primary_50",
        button_secondary_background_fill_hover_dark="*neutral_700",
        button_secondary_border_color="*neutral_300",
        button_secondary_border_color_dark="*neutral_700",
        button_border_width="1px",
        button_border_width_dark="1px",
        button_large_text_weight="600",
        color_accent_soft="*primary_50",
        color_accent_soft_dark="*primary_950",
        slider_color="*primary_600",
        slider_color_dark="*primary_400",
        checkbox_background_color_selected="*primary_600",
        checkbox_background_color_selected_dark="*primary_500",
        checkbox_label_background_fill_selected="*primary_100",
        checkbox_label_background_fill_selected_dark="*primary_900",
        layout_gap="14px",
    )
