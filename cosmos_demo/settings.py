"""Every option of the app in one typed place: command line and ``COSMOS_DEMO_*`` environment, same names."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICO = ROOT / "assets" / "cosmos3-pico"
EXAMPLES = ROOT / "assets" / "examples"
ENVIRONMENT_PREFIX = "COSMOS_DEMO_"


def _option(default: object, text: str, **extra: object) -> object:
    return field(default=default, repr="secret" not in extra, metadata={"help": text, **extra})


@dataclass(frozen=True)
class Settings:
    """Options of one run of the app; the command line wins over the environment."""

    checkpoint: str = _option(str(PICO), "folder or hub id of the checkpoint, for example nvidia/Cosmos3-Nano")
    revision: str = _option("", "hub revision of the checkpoint; empty for the main one")
    host: str = _option("127.0.0.1", "address to listen on")
    port: int = _option(7860, "port to listen on")
    device: str = _option("auto", "auto, cpu, mps, cuda or cuda:N")
    dtype: str = _option("auto", "auto, float32 or bfloat16", choices=("auto", "float32", "bfloat16"))
    offload: str = _option(
        "auto", "keep weights in host memory between uses: auto, never or always", choices=("auto", "never", "always")
    )
    reasoner_url: str = _option("", "vLLM server that answers instead, such as http://host:8000/v1; several by commas")
    generator_url: str = _option("", "vLLM-Omni server that generates instead; several by commas")
    reasoner_key: str = _option("", "API key of the Reasoner's servers", secret=True)
    generator_key: str = _option("", "API key of the Generator's servers", secret=True)
    outputs: str = _option("outputs", "folder for results")
    queue_size: int = _option(20, "runs that may wait; more are refused")
    max_upload_mb: int = _option(200, "largest uploaded file in MB")
    no_guardrails: bool = _option(False, "do not load NVIDIA's guardrails even when they are installed")


def parse(arguments: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> Settings:
    """Read the options.

    Args:
        arguments: Command line without the program name; ``None`` takes the process's own.
        environment: Where ``COSMOS_DEMO_<NAME>`` is looked up when the command line is silent.

    Raises:
        SystemExit: on an unknown option or a bad value, with a message, as argparse does.
    """
    parser = argparse.ArgumentParser(
        prog="app.py",
        description="Web demo of NVIDIA Cosmos 3: one model, two heads.",
        epilog=f"Each option can be given in the environment as {ENVIRONMENT_PREFIX}<NAME>, for example "
        f"{ENVIRONMENT_PREFIX}PORT=8080.",
    )
    for option in fields(Settings):
        flag = "--" + option.name.replace("_", "-")
        if option.metadata.get("secret"):
            # On the command line every user of the machine could read it.
            parser.set_defaults(**{option.name: environment.get(ENVIRONMENT_PREFIX + option.name.upper(), "")})
            continue
        given = environment.get(ENVIRONMENT_PREFIX + option.name.upper())
        text = f"{option.metadata['help']} (default: {option.default})"
        if isinstance(option.default, bool):
            on = option.default if given is None else given.lower() in {"1", "true", "yes", "on"}
            parser.add_argument(flag, action="store_true", default=on, help=text)
        else:
            parser.add_argument(
                flag,
                type=type(option.default),
                default=option.default if given is None else given,
                choices=option.metadata.get("choices"),
                help=text,
            )
    settings = Settings(**vars(parser.parse_args(arguments)))
    for option in fields(Settings):
        choices = option.metadata.get("choices")
        if choices and getattr(settings, option.name) not in choices:
            parser.error(f"{option.name}: {getattr(settings, option.name)!r} is not one of {', '.join(choices)}")
    return settings
