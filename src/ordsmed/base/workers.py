"""Map a function over tasks in this process, in worker processes or on a Dask cluster. Results come in order.

    with worker_pool(processes=8) as map_in_order:   map_in_order(function, [(a, 1), ...]) -> function(a, 1), ...
    with worker_pool(engine="tcp://head:8786") as map_in_order:   the same on the workers of a Dask cluster

Functions must be importable, and arguments and results picklable. Tasks are read as needed, a few more than there are
workers. Results that wait for a slow task are limited to AHEAD per worker, so memory use stays small, and a slow task
does not stop the others for long.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import resource_tracker
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.popen_spawn_posix import Popen
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any

from ordsmed.base.ending import STOP_SIGNALS
from ordsmed.base.errors import Lost, RecipeError, RunError
from ordsmed.base.machine.host import max_processes

PATIENCE = 0.1  # seconds until a signal is handled
AHEAD = 8  # tasks per worker that are submitted or wait for a slower one

MapInOrder = Callable[[Callable[..., Any], Iterable[tuple[Any, ...]]], Iterator[Any]]


@contextlib.contextmanager
def worker_pool(processes: int = 1, engine: str | None = None) -> Iterator[MapInOrder]:
    """Yield a function that maps tasks in order, until this block ends."""
    if not engine and processes == 1:
        yield lambda function, tasks: (function(*task) for task in tasks)
        return
    if not engine and processes > (most := max_processes()):
        raise RecipeError("processes", f"found {processes:,}", f"at most {most:,} on this machine", "leave it out")
    try:
        with _dask(engine) if engine else _pool(processes) as (executor, workers):
            yield lambda function, tasks: _in_order(executor, function, tasks, workers)
    except BrokenProcessPool:
        problem = "was killed, perhaps because memory ran out"
        remedy = "give it more memory or use fewer `processes`, then resume with the same command"
        raise Lost("a worker process", problem, "", remedy) from None
    except Exception as error:
        if engine and type(error).__module__.startswith("distributed"):
            problem = f"{type(error).__name__}: {error}"
            remedy = "check its workers, then resume with the same command"
            raise RunError(f"engine {engine}", problem, "", remedy) from None
        raise


def _in_order(
    executor: Executor, function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]], workers: int
) -> Iterator[Any]:
    line: deque[Future[Any]] = deque()
    pool = isinstance(executor, ProcessPoolExecutor)
    try:
        for task in tasks:
            with _delaying_signals(pool):
                line.append(executor.submit(function, *task))
            while line and (line[0].done() or (unfinished := _awaited(line, workers))):
                if line[0].done():
                    yield line.popleft().result()
                else:
                    with _delaying_signals(pool):
                        wait(unfinished, timeout=PATIENCE if pool else None, return_when=FIRST_COMPLETED)
        while line:
            yield line.popleft().result()
    finally:
        for future in () if pool else line:
            future.cancel()  # a pool cancels when it ends; before Python 3.11.3, cancelling here made it hang


def _delaying_signals(pool: bool) -> contextlib.AbstractContextManager[None]:
    """Delay signals to the end of this block.

    If a signal handler raised an exception just after the pool took one of its locks, the lock would never be released
    and the pool would hang.
    """
    return blocking_stop_signals(forked=True) if pool else contextlib.nullcontext()


def _awaited(line: Sequence[Future[Any]], workers: int) -> list[Future[Any]]:
    """Return the futures to wait for before another task is submitted; none if it may be submitted now."""
    unfinished = [future for future in line if not future.done()]
    return unfinished if len(unfinished) > 2 * workers or len(line) > AHEAD * workers else []


class WorkerProcess(SpawnProcess):
    """A spawned process that does not import the caller's main script."""

    @staticmethod
    def _Popen(process_obj: BaseProcess) -> Popen:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            with blocking_stop_signals(forked=False):
                return SpawnProcess._Popen(process_obj)
        finally:
            sys.modules["__main__"] = main


class WorkerContext(SpawnContext):
    Process = WorkerProcess


@contextlib.contextmanager
def _pool(processes: int) -> Iterator[tuple[Executor, int]]:
    with blocking_stop_signals(forked=False):
        executor = ProcessPoolExecutor(processes, WorkerContext(), _init_worker)
    try:
        yield executor, processes
    finally:
        executor.shutdown(cancel_futures=True)


@contextlib.contextmanager
def blocking_stop_signals(*, forked: bool) -> Iterator[None]:
    """Start processes in this block with blocked STOP_SIGNALS.

    `timeout`, torchrun, PBS and systemd send a signal to all processes, but the parent still needs its workers then.
    The workers call `allow_termination_by_parent`.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)  # inherited, so it is effective before any handler
    try:
        if not forked:
            resource_tracker.ensure_running()  # a helper of multiprocessing, whose start unblocks two of the signals
            signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def allow_termination_by_parent() -> None:
    """Let this process end on a SIGTERM from its parent, although it was started with blocked signals."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_wait_for_termination, args=(parent.pid,), daemon=True).start()


def _wait_for_termination(parent: int) -> None:
    while signal.sigwaitinfo((signal.SIGTERM,)).si_pid != parent:
        pass
    os._exit(0)


def _init_worker() -> None:
    """Prepare a worker process, which ends when its parent ends for any reason."""
    allow_termination_by_parent()
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


def _exit_with_parent(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


@contextlib.contextmanager
def _dask(address: str) -> Iterator[tuple[Executor, int]]:
    """Yield an executor on the workers of a Dask scheduler, and the number of their threads.

    `address` is the address of the scheduler, or the path of its scheduler file.
    """
    try:
        from distributed import Client
    except ImportError:
        raise RecipeError("engine", "`distributed` is not installed", "", "pip install 'ordsmed[cluster]'") from None
    wanted = "the address of a running `dask scheduler`, or the file it wrote"
    if address.endswith(".json") and not os.path.exists(address):  # Dask would wait for it
        raise RecipeError("engine", f"no file {address}", wanted)
    where = {"scheduler_file": address} if address.endswith(".json") else {"address": address}
    try:
        client = Client(**where, timeout="30s", set_as_default=False)
    except Exception as error:  # many classes, including AssertionError for an invalid file
        raise RecipeError("engine", f"no scheduler at {address}: {error or type(error).__name__}", wanted) from None
    with client:
        workers = sum(client.nthreads().values())
        if not workers:
            raise RecipeError("engine", f"the scheduler at {address} has no workers", "", "start some: `dask worker`")
        yield client.get_executor(pure=False), workers
