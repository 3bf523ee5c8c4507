"""torch.compile: objectives are one graph each, blocks are compiled as often as expected, and never silently less."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from ordsmed.base.errors import Trouble
from ordsmed.data.batch import Batch
from ordsmed.learn.objectives import clm, diffusion, hybrid, mlm, mlm_nsp, rtd
from ordsmed.nn import loss
from ordsmed.nn.model import Block
from ordsmed.nn.models import bert, electra, gpt2
from ordsmed.train.mesh import compiler
from ordsmed.train.mesh.compiler import Compiler, compile_blocks

# torch hides this warning of its own by a way that does not know filters which raise
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")

SMALL: dict[str, Any] = {"width": 16, "layers": 1, "heads": 2, "dropout": 0.0, "attention_dropout": 0.0}
CASES: dict[str, tuple[Any, Any]] = {
    "rtd": (rtd.Rtd(generator=rtd.Generator(width=16)), electra.Electra(**SMALL)),
    "mlm": (mlm.Mlm(), bert.Bert(**SMALL)),
    "mlm_nsp": (mlm_nsp.MlmNsp(), bert.Bert(**SMALL)),
    "clm": (clm.Clm(), gpt2.Gpt2(**SMALL)),
    "hybrid": (hybrid.Hybrid(), gpt2.Gpt2(**SMALL)),
    "diffusion": (diffusion.Diffusion(), bert.Bert(**SMALL)),
}


class Signs:
    vocabulary, pad, start, stop, mask, end, unknown, special = 60, 0, 2, 3, 4, 5, 1, (0, 1, 2, 3, 4, 5)


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    config = torch._dynamo.config
    before = config.recompile_limit, config.fail_on_recompile_limit_hit
    torch._dynamo.reset()
    yield
    config.recompile_limit, config.fail_on_recompile_limit_hit = before
    torch._dynamo.reset()


def batch_for(kind: str, rows: int = 3, length: int = 12, *, masked: bool = True) -> Batch:
    places, everywhere = 2, kind in ("clm", "hybrid", "diffusion")
    shape = (rows, length) if everywhere else (rows, places)
    made: dict[str, Any] = {
        "numbers": torch.arange(rows),
        "tokens": torch.randint(6, 60, (rows, length)),
        "positions": torch.arange(length).expand(rows, length).contiguous(),
        "targets": torch.randint(6, 60, shape),
        "weights": torch.ones(shape),
    }
    made |= {} if everywhere else {"predicted_positions": torch.tensor([[2, 5]]).repeat(rows, 1)}
    made |= {"documents": torch.ones(rows, length, dtype=torch.int32)} if masked else {}
    made |= {"keys": torch.arange(rows), "types": torch.zeros(rows, length, dtype=torch.int64)} if kind == "rtd" else {}
    made |= {"pairs": torch.zeros(rows, dtype=torch.int64)} if kind == "mlm_nsp" else {}
    made |= {"causal": torch.arange(rows) % 2 == 0} if kind == "hybrid" else {}
    made |= {"counting": torch.arange(0, rows * length, 3)} if kind in ("hybrid", "diffusion") else {}
    if "counting" in made:
        made["weights"] = torch.zeros(rows * length).index_fill_(0, made["counting"], 1.0).view(shape)
    return Batch(**made)


@pytest.mark.long
@pytest.mark.skipif(torch.__version__ < "2.12", reason="gives other gradients; nothing compiles so much at once")
@pytest.mark.parametrize("kind", CASES)
def test_a_whole_objective_is_one_graph(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss, "BY_HAND", ())  # as on a GPU: nothing looks at numbers on the way
    objective, model = CASES[kind]
    network = objective.build(model, Signs()).train()
    for module in network.modules():
        if isinstance(module, Block):
            module.compiled = True  # masks, as for compiled blocks
    batch, found = batch_for(kind), []
    for forward in (network, torch.compile(network, fullgraph=True, backend="aot_eager" if kind == "mlm" else "eager")):
        network.zero_grad()
        sums = forward(batch)
        sum(sums.values()).backward()
        found.append(([float(value.detach()) for value in sums.values()], [p.grad for p in network.parameters()]))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-5)
    assert all(torch.allclose(one, other, atol=1e-5) for one, other in zip(found[0][1], found[1][1], strict=True))


def blocks_of(kind: str) -> tuple[Any, Compiler]:
    objective, model = CASES[kind]
    network, counted = objective.build(model, Signs()), Compiler("eager")
    compile_blocks([module for module in network.modules() if isinstance(module, Block)], counted)
    return network, counted


def learn(network: Any, batch: Batch) -> None:
    sums = network.train()(batch)
    sum(sums.values()).backward()


@pytest.mark.long
@pytest.mark.parametrize(("kind", "graphs"), [("mlm", [1, 2, 3, 3]), ("rtd", [2, 4, 6, 6])])
def test_blocks_are_compiled_once_a_network_and_kind_of_row(kind: str, graphs: list[int]) -> None:
    """With a mask, without, and for another phase's shape (from then on for any); a validation compiles nothing."""
    network, counted = blocks_of(kind)
    found = []
    for batch in (batch_for(kind), batch_for(kind, masked=False), batch_for(kind, 4, 20), batch_for(kind, 5, 16)):
        learn(network, batch)
        learn(network, batch)
        with torch.no_grad():
            network.eval().validate(batch)
        found.append(counted.graphs)
    assert found == graphs


def test_dropout_on_a_cpu_compiles_no_more_with_every_micro_batch(
    details: None, capsys: pytest.CaptureFixture[str]
) -> None:
    from ordsmed.nn.dropout import begin_micro_batch

    network = mlm.Mlm().build(bert.Bert(**{**SMALL, "dropout": 0.1}), Signs())
    counted = Compiler("eager")
    compile_blocks([module for module in network.modules() if isinstance(module, Block)], counted)
    found = []
    for step in range(4):
        begin_micro_batch(0, step)
        learn(network, batch_for("mlm"))
        found.append(counted.graphs)
    assert found[0] == found[-1]
    assert capsys.readouterr().err.count("compile: graph") == found[0]


def test_more_shapes_than_the_limit_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "LIMIT", 1)
    network, _ = blocks_of("mlm")
    learn(network, batch_for("mlm"))
    with pytest.raises(Trouble, match=r"layout\.compile: torch compiled a block 1 times.*set layout\.compile = false"):
        learn(network, batch_for("mlm", masked=False))
