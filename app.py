"""Start the app: read the settings, open the engine, build the page, serve it. Spaces runs this file."""

from __future__ import annotations

import os
import sys

from cosmos_demo import open_engine
from cosmos_demo.errors import CheckpointError, SettingsError
from cosmos_demo.settings import Settings, parse
from cosmos_demo.ui import page


def main(settings: Settings) -> None:
    try:
        engine = open_engine(settings)
    except (CheckpointError, SettingsError) as error:
        sys.exit(str(error))
    try:
        page.serve(page.build(engine, settings), settings)
    finally:
        engine.close()


if __name__ == "__main__":
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    main(parse())
