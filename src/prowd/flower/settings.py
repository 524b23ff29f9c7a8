"""What ``flwr run`` takes: the app directory and, in ``--run-config``, which run and how patient its server is."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Self

from annotated_types import Ge, Gt
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from prowd.config.files import read_pairs
from prowd.config.tables import explain
from prowd.errors import ConfigError, RunError
from prowd.files import atomic_write

__all__ = ["ServerSettings", "write_app"]

Seconds = Annotated[float, Gt(0)]


class ServerSettings(BaseModel):
    """The settings of the app; those of the run itself are in ``preset`` and ``settings``."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    preset: str = Field("quick", description="a preset, or the path of a TOML file")
    settings: str = Field("", description="KEY=VALUE; KEY=VALUE ... as with prowd run -s")
    out: str = Field("", description="run directory to make; default: a new one under runs/")
    resume: str = Field("", description="run directory to go on with")
    owners: str = Field("", description="the registered node of each client, in their order; any: of who comes first")
    deadline: Seconds = Field(600.0, description="seconds that a round waits for its clients")
    quorum: int = Field(0, ge=0, description="updates without which a round does not count; 0: more than half")
    attempts: int = Field(5, ge=1, description="how often a round below its quorum is tried before the run stops")
    pause: Annotated[float, Ge(0)] = Field(30.0, description="seconds between attempts")
    join: Seconds = Field(600.0, description="seconds to wait for the devices before the first round")
    limit: int = Field(2**28, ge=2**10, description="bytes of the longest update that is looked at")

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Self:
        """Read a run configuration, or say which key is wrong."""
        try:
            found = cls.model_validate(dict(values))
        except ValidationError as error:
            raise ConfigError(explain(error, "run-config: ", lambda _: list(cls.model_fields))) from None
        if found.resume and found.out:
            raise ConfigError(f"run-config: out is {found.out!r} beside resume; accepted: one of them")
        return found

    def overrides(self) -> dict[str, Any]:
        """The settings of the run that are changed."""
        return read_pairs(pair.strip() for pair in self.settings.split(";") if pair.strip())

    def nodes(self, clients: int) -> dict[int, int] | None:
        """The node of each client; those of nobody in particular, or None where nothing is said of them."""
        if self.owners.strip() in ("", "any"):
            return {} if self.owners.strip() else None
        found = [text.strip() for text in self.owners.split(",")]
        if len(set(found)) < clients or len(found) > clients or not all(map(str.isdecimal, found)):
            accepted = f"the numbers of {clients} nodes, one for each client, as flwr supernode list has them; or any"
            raise ConfigError(f"run-config: owners is {self.owners!r}; accepted: {accepted}")
        return dict(enumerate(map(int, found)))

    @property
    def path(self) -> Path | None:
        """Where the run goes, or is."""
        given = self.resume or self.out
        return Path(given).expanduser() if given else None


def write_app(folder: Path) -> Path:
    """Write the app directory; one that holds something is left alone."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(f"{folder} is not an empty directory; accepted: a new one")
    folder.mkdir(parents=True, exist_ok=True)
    text = (resources.files("prowd") / "flower" / "app" / "pyproject.toml").read_bytes()
    atomic_write(folder / "pyproject.toml", text)
    return folder
