"""``hf:org/name[@revision]`` → model profile, through huggingface_hub (extra ``hub``): json files and safetensors headers, nothing else.

The library honours HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE and the local cache. Files that are already in the cache are not asked for
again; no code of a repository is ever run.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from calc.errors import ProfileError, RoofcastError, UnknownNameError, UsageError
from calc.profiles.importers import safetensors_index as safetensors
from calc.profiles.importers.hf_config import CONFIG_NAME, QUANT_CONFIG_NAME, import_folder_or_file
from calc.profiles.model import ModelProfile
from calc.profiles.schema import Source

_DAMAGED = "the file is damaged or not what its name says; fetch it again"
_SOURCE = re.compile(r"(?P<repository>[\w.-]{1,96}/[\w.-]{1,96})(@(?P<revision>[\w./-]{1,200}))?")
#: Beyond, each answer would cost hundreds of requests; the index then tells the total.
MAX_FILES = 64
_FIRST_BYTES = 100_000  # holds most headers whole
_WORKERS = 8

Imported = tuple[ModelProfile, tuple[str, ...]]


def import_hub(source: str) -> tuple[Path, Imported]:
    """(path of the config in the local cache, profile and warnings). Raises UsageError, UnknownNameError or ProfileError."""
    found = _SOURCE.fullmatch(source)
    if found is None or ".." in source:
        raise UsageError(f"hf:{source[:120]!s} is not hf:org/name or hf:org/name@revision", "for example hf:Qwen/Qwen3-8B")
    repository = Repository(found["repository"], found["revision"])
    with _quiet(repository.hub):
        config = repository.fetch(CONFIG_NAME)
        notes = [repository.try_to_fetch(name) for name in (QUANT_CONFIG_NAME, safetensors.INDEX_NAME)]
        profile, warnings = import_folder_or_file(config)
        profile, more = _with_headers(repository, profile)
    source_of = Source(url=repository.page(CONFIG_NAME), fields=["all"], date=date.today().isoformat(), access="read")
    profile = msgspec.structs.replace(profile, hub_id=repository.name, sources=[source_of])
    return config, (profile, (*warnings, *(note for note in (*notes, more) if note)))


def _library() -> Any:
    try:
        for part in ("constants", "errors", "utils"):
            import_module(f"huggingface_hub.{part}")
        return import_module("huggingface_hub")
    except ImportError as error:
        raise UsageError(
            "models of the Hugging Face Hub need huggingface_hub, which is not installed",
            "pip install 'roofcast[hub]', or download the model's config.json and give its path",
        ) from error


@contextmanager
def _quiet(hub: Any) -> Iterator[None]:
    """No progress bars and no log lines of the library between ours; both as they were afterwards."""
    level, bars = hub.utils.logging.get_verbosity(), hub.utils.are_progress_bars_disabled()
    hub.utils.logging.set_verbosity_error()
    hub.utils.disable_progress_bars()
    try:
        yield
    finally:
        hub.utils.logging.set_verbosity(level)
        if not bars:
            hub.utils.enable_progress_bars()


class Repository:
    """One repository at one revision. The first file settles the commit; the rest are asked for at that commit."""

    def __init__(self, name: str, revision: str | None) -> None:
        self.hub = _library()
        self.name = name
        self.revision = revision
        self.folder: Path | None = None  # of the snapshot in the local cache

    @property
    def commit(self) -> str | None:
        """The commit once it is known, else the revision asked for."""
        return self.folder.name if self.folder else self.revision

    def page(self, file: str) -> str:
        """Address where a person can read a file of this commit."""
        return f"{self.hub.constants.ENDPOINT}/{self.name}/blob/{self.commit or 'main'}/{file}"

    def fetch(self, file: str) -> Path:
        """A file's path in the local cache, downloaded where it is not there."""
        try:
            if (
                not self.hub.constants.HF_HUB_OFFLINE
                and self.hub.try_to_load_from_cache(self.name, file, revision=self.commit) is None
            ):
                # Asked once, without the retries of a download: an absent or unreachable repository is told at once.
                self.hub.get_hf_file_metadata(self.hub.hf_hub_url(self.name, file, revision=self.commit))
            path = Path(self.hub.hf_hub_download(self.name, file, revision=self.commit))
        except Exception as error:  # the library raises errors of its HTTP client too, which differ between versions
            raise self._explain(error, file) from error
        self.folder = path.parent
        return path

    def try_to_fetch(self, file: str) -> str | None:
        """Bring a file that need not exist into the cache; a warning where it could not be asked for."""
        if self.hub.try_to_load_from_cache(self.name, file, revision=self.commit) is not None:
            return None  # it is there, or it is known not to exist
        errors = self.hub.errors
        try:
            self.hub.hf_hub_download(self.name, file, revision=self.commit)
        except errors.LocalEntryNotFoundError:
            return f"{file} of {self.name} is not in the local cache and the Hub was not asked: the config alone decides"
        except errors.EntryNotFoundError:
            return None
        except Exception as error:
            raise self._explain(error, file) from error
        return None

    def _explain(self, error: Exception, file: str) -> RoofcastError:
        """The library's error in one sentence with what to do about it."""
        errors, constants = self.hub.errors, self.hub.constants
        source = f"hf:{self.name}" + (f"@{self.revision}" if self.revision else "")
        by_hand = f"or download {CONFIG_NAME} by other means and give its path"
        if isinstance(error, errors.GatedRepoError):
            return ProfileError(
                f"{source} is gated", f"accept its terms at {constants.ENDPOINT}/{self.name} and set HF_TOKEN, {by_hand}"
            )
        if isinstance(error, errors.RepositoryNotFoundError):
            return UnknownNameError(
                f"{source}: no such repository at {constants.ENDPOINT}", "check the spelling; private repositories need HF_TOKEN"
            )
        if isinstance(error, errors.RevisionNotFoundError):
            return UnknownNameError(
                f"{source}: the repository has no revision {self.revision!r}", "name a branch, a tag or a commit"
            )
        if isinstance(error, errors.LocalEntryNotFoundError):
            offline = bool(constants.HF_HUB_OFFLINE)
            why = "HF_HUB_OFFLINE is set" if offline else f"{constants.ENDPOINT} cannot be reached"
            return ProfileError(
                f"{source}: {file} is not in the local cache and {why}",
                f"{'unset it' if offline else 'try again online'}, {by_hand}",
            )
        if isinstance(error, errors.EntryNotFoundError):
            return ProfileError(f"{source} holds no {file}", "of a repository of GGUF files, download one and give its path")
        said = " ".join(str(error).split())[:200] or type(error).__name__
        return ProfileError(f"{source}: {file} cannot be fetched: {said}", f"try again, {by_hand}")

    def header(self, file: str) -> list[safetensors.Tensor]:
        """Tensors of a safetensors file of the repository by its header alone."""
        content = self._start_of(file, _FIRST_BYTES)
        if len(content) < 8:
            raise ProfileError(f"{file}: too short for a safetensors file", _DAMAGED)
        (length,) = struct.unpack("<Q", content[:8])
        if length > safetensors.MAX_HEADER_BYTES:
            raise ProfileError(f"{file}: a header of {length:,} bytes; at most {safetensors.MAX_HEADER_BYTES:,} are read", _DAMAGED)
        if length + 8 > len(content):
            content = self._start_of(file, length + 8)
        if length + 8 > len(content):
            raise ProfileError(f"{file}: the header is cut off", _DAMAGED)
        return safetensors.parse_header(content[8 : length + 8], f"hf:{self.name}/{file}")

    def _start_of(self, file: str, count: int) -> bytes:
        """The first bytes of a file. Never more is read, even where the server ignores the range."""
        url = self.hub.hf_hub_url(self.name, file, revision=self.commit)
        headers = {**self.hub.utils.build_hf_headers(), "Range": f"bytes=0-{count - 1}"}
        session, timeout = self.hub.utils.get_session(), self.hub.constants.HF_HUB_DOWNLOAD_TIMEOUT
        if callable(getattr(session, "stream", None)):  # httpx, from version 1 on; of requests it is a flag
            with session.stream("GET", url, headers=headers, timeout=timeout) as response:
                return self._first(response, response.iter_bytes(), count)
        with session.get(url, headers=headers, timeout=timeout, stream=True) as response:
            return self._first(response, response.iter_content(1 << 16), count)

    def _first(self, response: Any, chunks: Iterable[bytes], count: int) -> bytes:
        if response.status_code == 404:
            raise FileNotFoundError(response.status_code)
        if response.status_code >= 400:
            raise OSError(f"the server answered {response.status_code}")
        content = bytearray()
        for chunk in chunks:
            content += chunk
            if len(content) >= count:
                break
        return bytes(content[:count])


def _with_headers(repository: Repository, profile: ModelProfile) -> tuple[ModelProfile, str | None]:
    """Exact bytes by role where the files are not here but their headers can be had: of quantised checkpoints, whose config says least,
    and of those without an index."""
    storage, folder = profile.storage, repository.folder
    if storage.role_bytes or folder is None or repository.hub.constants.HF_HUB_OFFLINE:
        return profile, None
    index_path = folder / safetensors.INDEX_NAME
    index = safetensors.read_index(index_path) if index_path.is_file() else None
    files = sorted({*index.files.values()}) if index else [safetensors.SINGLE_NAME]
    if len(files) > MAX_FILES or (index and index.total_bytes and not storage.roles):
        return profile, None
    try:
        tensors = _all_headers(repository, files)
    except FileNotFoundError:  # weights in another format
        return profile, None
    except Exception as error:  # any failure of the network or of a file leaves what the index says
        return (
            profile,
            f"headers of the safetensors files were not read ({' '.join(str(error).split())[:160]}): the config alone decides",
        )
    if index:
        tensors = [tensor for tensor in tensors if tensor.name in index.files]
    stored = msgspec.structs.replace(
        storage,
        total_bytes=sum(tensor.bytes for tensor in tensors),
        role_bytes=safetensors.bytes_by_role(tensors, profile.num_hidden_layers),
    )
    return msgspec.structs.replace(profile, storage=stored), None


def _all_headers(repository: Repository, files: list[str]) -> list[safetensors.Tensor]:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(max_workers=min(_WORKERS, len(files))) as pool:
        return [tensor for tensors in pool.map(repository.header, files) for tensor in tensors]
