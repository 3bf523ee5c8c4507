"""The nursery: holds torch imported, and forks `ordsmed` from itself when it is asked to, launcher and ranks alike.

Also scripts of the tests that many processes run ({"script": its path and arguments}). Variables of a process that is
asked for name its files: SAID what it writes, TOLD its errors if they go apart, READ its standard input.
"""

# ruff: noqa: F401 (what is imported here is there at once in every process)

import gc
import json
import os
import runpy
import signal
import subprocess
import sys

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # as the command does before it imports torch

import filelock
import msgspec
import numpy.ma
import numpy.random
import safetensors.torch
import tokenizers
import torch._dynamo
import torch.distributed.fsdp
import torch.distributed.tensor.parallel
import torch.utils.tensorboard

import ordsmed.cli
from ordsmed.base.launch import local
from ordsmed.learn.objectives import mlm
from ordsmed.learn.optimizers import adamw
from ordsmed.nn.models import bert
from ordsmed.train import runner

runner.measured_peak = lambda *_: 1e11  # a figure on the screen, and seconds


class Born(BaseException):
    "What a new process begins with: nothing of the stack that made it."


OURS, POPEN = [sys.executable, "-m", "ordsmed"], subprocess.Popen


def popen(command, *given, **how):
    "In place of subprocess.Popen: forks where it would start the command; others (compilers) start as they do."
    return Child(command, **how) if isinstance(command, list) and command[:3] == OURS else POPEN(command, *given, **how)


class Child:
    "What the launcher and this nursery use of subprocess.Popen."

    def __init__(self, command, env, stdin=None, stdout=None, stderr=None, start_new_session=True, preexec_fn=None):
        self.returncode, self.pid = None, os.fork()
        if not self.pid:
            os.setsid()
            for number, file in enumerate((stdin, stdout, stderr)):
                if file:
                    os.dup2(file.fileno(), number)
            if preexec_fn:
                preexec_fn()
            os.environ.clear()
            os.environ.update(env)
            raise Born(command)

    def poll(self):
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self):
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode

    def send_signal(self, number):
        os.kill(self.pid, number)

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)


def serve():
    children = {}
    for line in sys.stdin:
        asked = json.loads(line)
        if not asked:
            answer = "ready"
        elif "poll" in asked:
            answer = children[asked["poll"]].poll()
        else:
            command = [*OURS, *asked["words"]] if "words" in asked else [sys.executable, *asked["script"]]
            env = {**os.environ, **asked["env"]}
            said, told, read = env["SAID"], env.get("TOLD", env["SAID"]), env.get("READ", os.devnull)
            with open(read) as read, open(said, "a") as said, open(told, "a") as told:
                child = Child(command, env, read, said, told)
            children[child.pid], answer = child, child.pid
        print(json.dumps(answer), flush=True)


subprocess.Popen, command = popen, None
gc.freeze()  # or every process would copy all of it when it ends
while True:
    try:
        if command is None:
            serve()
            break
        if command[:3] != OURS:
            sys.argv = command[1:]
            runpy.run_path(command[1], run_name="__main__")
            sys.stdout.flush()
            os._exit(0)
        words = command[3:]
        sys.argv = ["ordsmed", *words]
        if "--devices" in words:  # the launcher
            local.GRACE = float(os.environ["GRACE"])
        else:
            import lab.faulty
        try:
            ordsmed.cli.main(words)
            status = 0
        except SystemExit as end:
            status = end.code
        sys.stdout.flush()
        if "--devices" in words or not status:  # a third of a second less than the interpreter's way out
            os._exit(status)
        sys.exit(status)
    except Born as born:
        command = born.args[0]
