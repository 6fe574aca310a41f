"""`reindex`, `export`, `import`, `snapshot`, `restore`: a collection's embedder and chunker, and its copies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from thresher.api.cli.common import (
    ChunkerOption,
    CollectionOption,
    EmbedderOption,
    JsonOption,
    NameArgument,
    absolute,
    absolute_spec,
    making,
    opener,
    refuse_existing,
    settings,
)
from thresher.api.cli.console import emit, human_bytes, note, one_line, out, plural


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.command()(reindex)
    app.command("export")(export)
    app.command("import")(import_)
    app.command()(snapshot)
    app.command()(restore)


def reindex(
    ctx: typer.Context,
    name: NameArgument = None,
    collection: CollectionOption = None,
    embedder: EmbedderOption = None,
    chunker: ChunkerOption = None,
    undo: Annotated[bool, typer.Option("--undo", help="Exchange the index and the previous one.")] = False,
    drop_previous: Annotated[
        bool, typer.Option("--drop-previous", help="Remove the previous index; there is no way back then.")
    ] = False,
    discard: Annotated[bool, typer.Option("--discard", help="Remove a new index that was not finished.")] = False,
    json: JsonOption = False,
) -> None:
    """Give a collection another embedder or chunker.

    A new index is built from the stored text beside the old one, which is used meanwhile; then they change places. An
    interrupted run goes on where it was. The old index is kept for --undo.
    """
    from thresher.api.cli.perform import perform
    from thresher.api.cli.progress import progress_bar
    from thresher.api.errors import UsageError
    from thresher.api.operations import reindexing

    chosen = settings(ctx, collection=collection or name, chunker=chunker)
    asked = {"undo": undo, "drop-previous": drop_previous, "discard": discard}
    others = [option for option, given in asked.items() if given]
    if len(others) + bool(embedder or chunker) != 1:
        raise UsageError("say what: --embedder and/or --chunker SPEC, or --undo, --drop-previous or --discard")
    if others:
        care = {"undo": reindexing.UNDO, "drop-previous": reindexing.DROP_PREVIOUS, "discard": reindexing.DISCARD}
        operation, request = care[others[0]], reindexing.ReindexCareRequest()
        report = perform(operation, request, chosen.collection, opener=opener(chosen))
    else:
        wanted = reindexing.ReindexRequest(
            embedder=None if embedder is None else absolute_spec(embedder), chunker=chunker and chosen.chunker
        )
        with progress_bar() as bar:
            report = perform(
                reindexing.REINDEX, wanted, chosen.collection, opener=opener(chosen), on_event=bar.on_event
            )
    if json:
        emit(report)
    else:
        out().print(_reindexed(report))


def export(
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="File to write; compressed if it ends in .gz.")],
    collection: CollectionOption = None,
    vectors: Annotated[
        bool, typer.Option("--vectors", help="Write vectors too; an import with the same embedder computes none.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace FILE if it is there.")] = False,
    json: JsonOption = False,
) -> None:
    """Write all that a collection holds to a file of JSON lines."""
    from thresher.api.cli.perform import perform
    from thresher.api.operations.moving import EXPORT, ExportRequest

    chosen = settings(ctx, collection=collection)
    refuse_existing(Path(file), overwrite)
    request = ExportRequest(file=absolute(file), vectors=vectors, overwrite=overwrite)
    report = perform(EXPORT, request, chosen.collection, opener=opener(chosen))
    if json:
        emit(report)
        return
    size = human_bytes(report["bytes"])
    out().print(f"{report['collection']}: {plural(report['documents'], 'document')} in {report['file']} ({size})")


def import_(
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="File that `thresher export` wrote.")],
    collection: CollectionOption = None,
    embedder: EmbedderOption = None,
    chunker: ChunkerOption = None,
    json: JsonOption = False,
) -> None:
    """Put every document of an exported file into a collection.

    A document whose id is there is replaced; others are left alone. An interrupted run goes on where it was.
    """
    from thresher.api.cli.perform import perform
    from thresher.api.cli.progress import progress_bar
    from thresher.api.operations.moving import IMPORT, ImportRequest

    chosen = settings(ctx, collection=collection, embedder=embedder, chunker=chunker)
    request = ImportRequest(file=_existing(file), **making(chosen, embedder=embedder, chunker=chunker))
    with progress_bar() as bar:
        report = perform(IMPORT, request, chosen.collection, opener=opener(chosen), on_event=bar.on_event)
    if report["vectors_unused"] is not None:
        note(f"the file's vectors were not used: {one_line(report['vectors_unused'], 300)}")
    if json:
        emit(report)
        return
    work = f"{report['unchanged']:,} unchanged, {report['embedded']:,} passages embedded, {report['seconds']:.1f} s"
    out().print(f"{report['collection']}: {plural(report['documents'], 'document')} imported ({work})")


def snapshot(
    ctx: typer.Context,
    to: Annotated[str, typer.Argument(metavar="FOLDER", help="Folder to make.")],
    collection: CollectionOption = None,
    json: JsonOption = False,
) -> None:
    """Copy a collection into a folder.

    The copy is the collection at one moment; it can be used meanwhile.
    """
    from thresher.api.cli.perform import perform
    from thresher.api.operations.moving import SNAPSHOT, SnapshotRequest

    chosen = settings(ctx, collection=collection)
    report = perform(SNAPSHOT, SnapshotRequest(to=absolute(to)), chosen.collection, opener=opener(chosen))
    if json:
        emit(report)
    else:
        out().print(f"{report['collection']}: {plural(report['documents'], 'document')} in {report['to']}")


def restore(
    ctx: typer.Context,
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Folder that `thresher snapshot` made.")],
    collection: CollectionOption = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace the collection if there is one.")] = False,
    embedder: EmbedderOption = None,
    json: JsonOption = False,
) -> None:
    """Make a collection what it was in a snapshot.

    A snapshot whose embedder is an endpoint (openai:MODEL@URL) is refused unless `--embedder`, or the setting, names
    the same: questions will be sent there.
    """
    from thresher.api.cli.perform import perform
    from thresher.api.operations.moving import RESTORE, RestoreRequest

    chosen = settings(ctx, collection=collection, embedder=embedder)
    request = RestoreRequest(snapshot=_existing(folder), replace=replace, endpoints=(chosen.embedder,))
    report = perform(RESTORE, request, chosen.collection, opener=opener(chosen))
    if json:
        emit(report)
    else:
        out().print(f"{report['collection']}: {plural(report['documents'], 'document')} restored")


def _existing(path: str) -> str:
    import os

    from thresher.api.errors import UsageError

    place = absolute(path)
    if not os.path.exists(place):
        raise UsageError(f"no such file or folder: {path}")
    return place


def _reindexed(report: dict[str, Any]) -> str:
    name = report["collection"]
    if report["object"] == "reindex_drop":
        return f"{name}: previous index {'removed' if report['dropped'] else 'not there'}"
    if report["object"] == "reindex_discard":
        return f"{name}: unfinished index {'removed' if report['discarded'] else 'not there'}"
    sizes = f"{plural(report['documents'], 'document')}, {plural(report['chunks'], 'chunk')}"
    return (
        f"{name}: embedder {report['embedder']}, chunker {report['chunker']}: {sizes} in {report['seconds']:.1f} s; "
        f"`thresher reindex {name} --undo` goes back"
    )
