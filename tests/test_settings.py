"""Options from the command line and the environment."""

from __future__ import annotations

from dataclasses import fields

import pytest

from cosmos_demo.settings import PICO, ROOT, Settings, parse


def test_defaults_serve_pico_on_this_machine_only():
    settings = parse([], {})
    assert (settings.checkpoint, settings.host, settings.port) == (str(PICO), "127.0.0.1", 7860)
    assert settings == Settings()


def test_the_command_line_wins_over_the_environment():
    environment = {"COSMOS_DEMO_PORT": "8000", "COSMOS_DEMO_HOST": "0.0.0.0", "COSMOS_DEMO_NO_GUARDRAILS": "yes"}
    settings = parse(["--port", "9000"], environment)
    assert (settings.port, settings.host, settings.no_guardrails) == (9000, "0.0.0.0", True)


@pytest.mark.parametrize(
    ("arguments", "environment", "says"),
    [
        (["--port", "x"], {}, "invalid int"),
        ([], {"COSMOS_DEMO_PORT": "x"}, "invalid int"),
        (["--dtype", "float16"], {}, "float32"),
        ([], {"COSMOS_DEMO_OFFLOAD": "sometimes"}, "auto, never, always"),
        (["--nonsense"], {}, "unrecognized"),
    ],
)
def test_bad_options_are_told(
    arguments: list[str], environment: dict[str, str], says: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit):
        parse(arguments, environment)
    assert says in capsys.readouterr().err


def test_the_readme_lists_every_option():
    readme = (ROOT / "README.md").read_text()
    missing = [
        option.name
        for option in fields(Settings)
        if f"`--{option.name.replace('_', '-')}`" not in readme and f"`COSMOS_DEMO_{option.name.upper()}`" not in readme
    ]
    assert missing == []


def test_keys_come_from_the_environment_only_and_are_never_shown(capsys: pytest.CaptureFixture[str]):
    settings = parse([], {"COSMOS_DEMO_REASONER_KEY": "r-secret", "COSMOS_DEMO_GENERATOR_KEY": "g-secret"})
    assert (settings.reasoner_key, settings.generator_key) == ("r-secret", "g-secret")
    assert "secret" not in repr(settings)
    with pytest.raises(SystemExit):
        parse(["--reasoner-key", "x"], {})
    assert "unrecognized" in capsys.readouterr().err
