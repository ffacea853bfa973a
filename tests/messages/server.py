"""Mistakes of whoever runs a server."""

from __future__ import annotations

from tests.messages.mistake import mistake
from tests.messages.scene import Scene

_SECTION = "Running a server"


def _server(scene: Scene, store: str, *options: str, **variables: str) -> str:
    ports = ("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
    return scene.command("server", "--store", store, *ports, *options, **variables)


@mistake(_SECTION, "Another server has the port", "tenure server")
def port_taken(scene: Scene) -> str:
    store = f"sqlite:///{scene.folder}/second.db"
    return _server(scene, store, "--http", scene.server.http)


@mistake(_SECTION, "Another server has the SQLite file", "tenure server")
def store_taken(scene: Scene) -> str:
    return _server(scene, scene.server.store_url)


@mistake(_SECTION, "A store of another kind", "tenure server --store mysql://localhost/tenure")
def bad_store(scene: Scene) -> str:
    return _server(scene, "mysql://localhost/tenure")


@mistake(_SECTION, "The folder does not exist", "tenure server --store sqlite:////data/tenure.db")
def no_folder(scene: Scene) -> str:
    text = _server(scene, f"sqlite:///{scene.folder}/data/tenure.db")
    return text.replace(f"{scene.folder}/data", "/data")


@mistake(_SECTION, "PostgreSQL is not running", "tenure server --store postgresql://db/tenure")
def no_postgres(scene: Scene) -> str:
    text = _server(scene, f"postgresql://{scene.silent_port}/tenure")
    return text.replace(scene.silent_port, "db:5432")


@mistake(_SECTION, "The extra is not installed", "tenure server --store postgresql://db/tenure")
def no_extra(scene: Scene) -> str:
    hidden = scene.folder / "hidden"
    hidden.mkdir(exist_ok=True)
    (hidden / "asyncpg.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'asyncpg'\", name='asyncpg')\n"
    )
    return _server(scene, "postgresql://db/tenure", PYTHONPATH=str(hidden))


@mistake(_SECTION, "Open to the network without keys", "tenure server --grpc 0.0.0.0:7301")
def exposed(scene: Scene) -> str:
    text = _server(scene, f"sqlite:///{scene.folder}/exposed.db", "--grpc", "0.0.0.0:0")
    return text.replace("0.0.0.0:0", "0.0.0.0:7301")
