"""fairseq's command lines: targets of each flag, compared with tables written by hand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kit.dialects import called, changes, resolved
from kit.foreign_files import byte_pieces
from ordsmed.base.arguments import UsageError
from ordsmed.base.machine import host
from ordsmed.cli import main
from ordsmed.others.translate import install, perform
from ordsmed.others.translate.program import find
from ordsmed.weights.trained_model import open_model

CODE = "fairseq"
TRAIN, PREPROCESS, HYDRA, BPE = (
    "fairseq-train",
    "fairseq-preprocess",
    "fairseq-hydra-train",
    "multiprocessing_bpe_encoder.py",
)
P, E, C = "pretrain: ", "encode: ", "corpus: "
PHASE, SCHEDULE = P + "phase[1].", P + "phase[1].schedule."
BASE = [
    "data-bin",
    "--task=masked_lm",
    "--criterion=masked_lm",
    "--arch=roberta_base",
    "--optimizer=adam",
    "--lr-scheduler=polynomial_decay",
    "--lr=0.0005",
    "--max-update=100",
    "--batch-size=16",
    "--tokens-per-sample=512",
]
Table = dict[str, tuple[list[str], dict[str, Any]]]
FLAGS: Table = {
    "data": ([], {}),
    "--arch": (["roberta_large"], {P + "model.layers": 24, P + "model.width": 1024}),
    "--encoder-layers": (["3"], {P + "model.layers": 3}),
    "--encoder-embed-dim": (["96"], {P + "model.width": 96, P + "model.heads": 12, P + "model.inner": 3072}),
    "--encoder-ffn-embed-dim": (["64"], {P + "model.inner": 64}),
    "--encoder-attention-heads": (["4"], {P + "model.heads": 4}),
    "--activation-fn": (["relu"], {P + "model.activation": "relu"}),
    "--dropout": (["0.2"], {P + "model.dropout": 0.2}),
    "--attention-dropout": (["0.3"], {P + "model.attention_dropout": 0.3}),
    "--max-positions": (["256"], {P + "model.positions": 256}),
    "--untie-weights-roberta": ([], {P + "model.tied": False}),
    "--sample-break-mode": (["complete_doc"], {P + "objective.cut": "doc_sentences", PHASE + "pack": False}),
    "--tokens-per-sample": (["128"], {PHASE + "length": 128}),
    "--mask-prob": (["0.3"], {P + "objective.mask_prob": 0.3}),
    "--leave-unmasked-prob": (["0.2"], {P + "objective.keep": 0.2}),
    "--random-token-prob": (["0"], {P + "objective.swap": 0.0}),
    "--mask-whole-words": ([], {P + "objective.unit": "word"}),
    "--batch-size": (["4"], {PHASE + "batch": 4, P + "layout.micro": 4}),
    "--max-tokens": (["2048"], {PHASE + "batch": 4, P + "layout.micro": 4}),
    "--update-freq": (["[16]"], {PHASE + "batch": 256}),
    "--num-workers": (["3"], {P + "layout.workers": 3}),
    "--validate-interval-updates": (["50"], {P + "validate": 50}),
    "--disable-validation": ([], {P + "validation_rows": 1, P + "validate": 0}),
    "--max-valid-steps": (["5"], {P + "validation_rows": 80}),
    "--batch-size-valid": (["2", "--max-valid-steps=5"], {P + "validation_rows": 10}),
    "--max-update": (["200"], {PHASE + "steps": 200}),
    "--clip-norm": (["2"], {P + "clip": 2.0}),
    "--lr": (["1e-3"], {PHASE + "learning_rate": 1e-3}),
    "--adam-betas": (["(0.9,0.98)"], {P + "optimizer.betas": [0.9, 0.98]}),
    "--adam-eps": (["1e-6"], {P + "optimizer.epsilon": 1e-6}),
    "--lr-scheduler": (["fixed"], {SCHEDULE + "kind": "constant"}),
    "--warmup-updates": (["24"], {PHASE + "warmup": 24.0}),
    "--power": (["2"], {SCHEDULE + "power": 2.0}),
    "--end-learning-rate": (["5e-5"], {SCHEDULE + "end": 0.1}),
    "--total-num-update": (["500"], {SCHEDULE + "over": 500}),
    "--store-ema": ([], {P + "average": 0.9999}),
    "--ema-decay": (["0.99", "--store-ema"], {P + "average": 0.99}),
    "--save-dir": (["o"], {P + "out": "o"}),
    "--restore-file": (["roberta.base/model.pt"], {P + "init": "roberta.base/model.pt"}),
    "--finetune-from-model": (["roberta.base/model.pt"], {P + "init": "roberta.base/model.pt"}),
    "--save-interval-updates": (["70"], {P + "save": 70}),
    "--keep-interval-updates": (["2"], {P + "keep": 2}),
    "--seed": (["3"], {P + "seed": 3}),
    "--cpu": ([], {P + "layout.device": "cpu"}),
    "--fp16": ([], {P + "layout.precision": "fp16", P + "layout.scale": 128.0}),
    "--memory-efficient-fp16": ([], {P + "layout.precision": "fp16", P + "layout.scale": 128.0}),
    "--amp": ([], {P + "layout.precision": "fp16", P + "layout.scale": 128.0}),
    "--bf16": ([], {P + "layout.precision": "bf16"}),
    "--memory-efficient-bf16": ([], {P + "layout.precision": "bf16"}),
    "--fp16-init-scale": (["4", "--fp16"], {P + "layout.precision": "fp16", P + "layout.scale": 4.0}),
    "--amp-init-scale": (["4", "--amp"], {P + "layout.precision": "fp16", P + "layout.scale": 4.0}),
    "--fp16-scale-window": (
        ["50", "--fp16"],
        {P + "layout.precision": "fp16", P + "layout.scale": 128.0, P + "layout.scale_window": 50},
    ),
    "--amp-scale-window": (
        ["50", "--amp"],
        {P + "layout.precision": "fp16", P + "layout.scale": 128.0, P + "layout.scale_window": 50},
    ),
    "--model-parallel-size": (["2"], {P + "layout.tensor": 2}),
    "--log-interval": (["5"], {P + "log": 5}),
    "--distributed-world-size": (["4"], {PHASE + "batch": 64}),
    "--ddp-backend": (["fully_sharded", "--distributed-world-size=4"], {PHASE + "batch": 64, P + "layout.shard": 4}),
    "--no-reshard-after-forward": (["--ddp-backend=fully_sharded"], {P + "layout.reshard": False}),
    "--checkpoint-activations": ([], {P + "layout.recompute": True}),
    "--offload-activations": ([], {P + "layout.recompute": True}),
}
ELSEWHERE = {
    "--warmup-init-lr",
    "--task",
    "--criterion",
    "--optimizer",
    "--weight-decay",
    "--max-epoch",
    "--reset-optimizer",
}
FIELDS = """
    aim_repo aim_run_hash all_gather_list_size amp amp_batch_retries amp_init_scale amp_scale_window azureml_logging
    batch_size batch_size_valid best_checkpoint_metric bf16 broadcast_buffers bucket_cap_mb checkpoint_shard_count
    checkpoint_suffix clip_norm combine_valid_subsets continue_once cpu cpu_offload curriculum data_buffer_size
    dataset_impl ddp_backend ddp_comm_hook debug_param_names device_id disable_validation distributed_backend
    distributed_init_method distributed_no_spawn distributed_num_procs distributed_port distributed_rank
    distributed_world_size ema_decay ema_fp32 ema_seed_model ema_start_update ema_update_freq empty_cache_freq
    fast_stat_sync find_unused_parameters finetune_from_model fix_batches_to_gpus fixed_validation_seed fp16
    fp16_init_scale fp16_no_flatten_grads fp16_scale_tolerance fp16_scale_window fp32_reduce_scatter gen_subset
    gradient_as_bucket_view grouped_shuffling heartbeat_timeout ignore_unused_valid_subsets keep_best_checkpoints
    keep_interval_updates keep_interval_updates_pattern keep_last_epochs load_checkpoint_on_all_dp_ranks
    localsgd_frequency log_file log_format log_interval lr max_epoch max_tokens max_tokens_valid max_update
    max_valid_steps maximize_best_checkpoint_metric memory_efficient_bf16 memory_efficient_fp16 min_loss_scale
    model_parallel_size no_epoch_checkpoints no_last_checkpoints no_progress_bar no_reshard_after_forward no_save
    no_save_optimizer_state not_fsdp_flatten_parameters nprocs_per_node num_shards num_workers
    on_cpu_convert_precision optimizer_overrides patience pipeline_balance pipeline_checkpoint pipeline_chunks
    pipeline_decoder_balance pipeline_decoder_devices pipeline_devices pipeline_encoder_balance
    pipeline_encoder_devices pipeline_model_parallel plasma_path profile quantization_config_path
    required_batch_size_multiple required_seq_len_multiple reset_dataloader reset_logging reset_lr_scheduler
    reset_meters reset_optimizer restore_file save_dir save_interval save_interval_updates seed sentence_avg
    shard_id skip_invalid_size_inputs_valid_test skip_remainder_batch slowmo_base_algorithm slowmo_momentum
    stop_min_lr stop_time_hours store_ema suppress_crashes tensorboard_logdir threshold_loss_scale tpu train_subset
    update_epoch_batch_itr update_freq update_ordered_indices_seed use_bmuf use_plasma_view use_sharded_state
    user_dir valid_subset validate_after_updates validate_interval validate_interval_updates wandb_project
    write_checkpoints_asynchronously zero_sharding
"""  # of its configurations: common, distributed training, data, optimization, checkpoints, means of weights


def test_every_flag_is_in_a_table() -> None:
    assert {flag.name for flag in find(CODE, TRAIN).flags if flag.goes} - ELSEWHERE == set(FLAGS)


def test_no_field_of_theirs_is_swallowed() -> None:
    known = {flag.key for flag in find(CODE, TRAIN).flags}
    assert set(FIELDS.split()) - known == set()


@pytest.mark.parametrize("flag", FLAGS)
def test_a_flag_arrives(flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words, wanted = FLAGS[flag]
    got = changes(CODE, TRAIN, BASE, *([flag] if flag.startswith("-") else []), *words)
    if flag == "--arch":
        got = {key: got[key] for key in wanted}
    assert got == {key: pytest.approx(value) if isinstance(value, float) else value for key, value in wanted.items()}


def test_what_theirs_leaves_unsaid() -> None:
    got = resolved(CODE, TRAIN, *BASE)
    wanted = {
        "model.kind": "roberta",
        "model.layers": 12,
        "model.width": 768,
        "model.types": 0,
        "model.positions": 512,
        "model.dropout": 0.1,
        "objective.kind": "mlm",
        "objective.cut": "anywhere",
        "objective.over": "row",
        "objective.rounding": "chance",
        "objective.signs": True,
        "objective.swap_from": "text",
        "seed": 1,
        "phase[1].warmup": 0.0,
        "phase[1].schedule.kind": "polynomial",
        "phase[1].schedule.power": 1.0,
        "optimizer.betas": [0.9, 0.999],
        "optimizer.epsilon": 1e-8,
        "optimizer.decay": 0.0,
        "clip": 0.0,
        "out": "checkpoints",
        "data": "data-bin",
        "layout.precision": "fp32",
        "save": 500,
        "validate": 500,
        "log": 100,
    }
    assert {key: got[P + key] for key in wanted} == wanted
    assert got.get(P + "init") is None


def test_all_weights_decay() -> None:
    """Biases and norms too, as fairseq's Adam has no groups."""
    recipe = called(CODE, TRAIN, *BASE, "--weight-decay", "0.01").recipes["pretrain"]
    assert (recipe["optimizer"]["decay"], recipe["group"]) == (0.01, [{"match": ".", "decay": True}])
    assert "group" not in called(CODE, TRAIN, *BASE).recipes["pretrain"]


def test_rows_of_all_devices() -> None:
    assert resolved(CODE, TRAIN, *BASE, "--update-freq", "16", world=8)[PHASE + "batch"] == 2048
    call = called(CODE, TRAIN, *BASE, "--distributed-world-size", "4")
    assert perform.words(find(CODE, TRAIN), call)[-2:] == ["--devices", "4"]
    few = resolved(CODE, TRAIN, *BASE, "--max-tokens", "1100")
    assert (few[PHASE + "batch"], few[P + "layout.micro"]) == (2, 2)


def test_epochs_and_adagrad() -> None:
    words = [word for word in BASE if not word.startswith(("--max-update", "--optimizer"))]
    words += ["--max-epoch=3", "--optimizer=adagrad"]
    got = resolved(CODE, TRAIN, *words)
    assert (got[PHASE + "epochs"], got[PHASE + "max_steps"], got[P + "optimizer.kind"]) == (3.0, 0, "adagrad")
    assert got[SCHEDULE + "over"] == 0
    assert resolved(CODE, TRAIN, *words, "--total-num-update=50")[SCHEDULE + "over"] == 50


def test_what_comes_first_of_epochs_and_updates_is_the_end() -> None:
    """The schedule spans all updates or --total-num-update, whichever ends the training."""
    got = resolved(CODE, TRAIN, *BASE, "--max-epoch=3")
    wanted = {"steps": 0, "epochs": 3.0, "max_steps": 100, "schedule.over": 100}
    assert {key: got[PHASE + key] for key in wanted} == wanted
    assert resolved(CODE, TRAIN, *BASE, "--max-epoch=3", "--total-num-update=500")[SCHEDULE + "over"] == 500
    shards = resolved(CODE, TRAIN, "a:b", *BASE[1:], "--max-epoch=3")
    assert (shards[PHASE + "epochs"], shards[PHASE + "max_steps"]) == (1.5, 100)


def test_what_a_course_does_not_read_is_said() -> None:
    for kind, warmup in (("fixed", 0.0), ("inverse_sqrt", 4000.0)):
        words = [
            *BASE,
            f"--lr-scheduler={kind}",
            "--power=2",
            "--end-learning-rate=0",
            "--total-num-update=100",
            "--max-update=9000",
        ]
        call = called(CODE, TRAIN, *words)
        found = {note for note in call.notes if "has no effect" in note}
        assert found == {
            f"--{name}: has no effect for --lr-scheduler {kind}"
            for name in ("power", "end-learning-rate", "total-num-update")
        }
        assert resolved(CODE, TRAIN, *words)[PHASE + "warmup"] == warmup
        assert resolved(CODE, TRAIN, *words, "--warmup-updates=30")[PHASE + "warmup"] == 30


def test_checkpoints_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert called(CODE, TRAIN, *BASE, "--restore-file", "checkpoint_last.pt").recipes["pretrain"].get("init") is None
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "status.json").write_text('{"verb": "pretrain"}')
    for words, wanted in (([], "old"), (["--reset-optimizer"], "old/weights")):
        call = called(CODE, TRAIN, *BASE, "--restore-file", "old/checkpoint_last.pt", *words)
        assert call.recipes["pretrain"]["init"] == wanted


CONFIG = """# @package _group_
common:
  fp16: true
  log_interval: 200
task:
  _name: masked_lm
  data: ???
  sample_break_mode: complete
  tokens_per_sample: 512

criterion: masked_lm
dataset:
  batch_size: 16
  ignore_unused_valid_subsets: true
optimizer:
  _name: adam
  weight_decay: 0.01
  adam_betas: (0.9,0.98)
  adam_eps: 1e-06
lr_scheduler:
  _name: polynomial_decay
  warmup_updates: 10000  # of them
optimization:
  clip_norm: 0
  lr: [0.0005]
  max_update: 125000
  update_freq: [16]
model:
  _name: roberta
  max_positions: 512
"""


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a configuration like those of fairseq's examples."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.yaml").write_text(CONFIG)
    return tmp_path


def test_a_configuration_is_what_its_flags_are(configured: Path) -> None:
    words = ["-m", "--config-dir", ".", "--config-name", "base", "task.data=data-bin", "dataset.batch_size=8"]
    flags = [
        "data-bin",
        "--fp16",
        "--log-interval=200",
        *BASE[1:3],
        "--sample-break-mode=complete",
        *BASE[3:8],
        "--tokens-per-sample=512",
        "--batch-size=8",
        "--weight-decay=0.01",
        "--adam-betas=(0.9,0.98)",
        "--adam-eps=1e-6",
        "--warmup-updates=10000",
        "--clip-norm=0",
        "--max-update=125000",
        "--update-freq=16",
        "--max-positions=512",
    ]
    by_file = called(CODE, HYDRA, *words, "hydra.run.dir=x")
    assert by_file.recipes == called(CODE, TRAIN, *flags).recipes
    assert by_file.recipes["pretrain"]["phase"][0]["batch"] == 128
    without = called(CODE, HYDRA, *words, "common.fp16=false").recipes["pretrain"]
    assert without["layout"]["precision"] == "fp32", "a switch that is off"
    assert by_file.verb == "pretrain"
    assert len(by_file.after) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--config-name=base", "optimization.lr=[0.1]"], "task.data: found ???; wanted a value"),
        (["--config-name=base", "task.data=d", "optimization.lr=0.1,0.2"], "--lr: found 0.1,0.2; wanted a"),
        (["--config-name=base", "task.data=d", "optimization.rate=1"], "--rate=1: no such flag"),
        (["--config-name=base", "data"], "found data; wanted group.name=value"),
        (["--config-name=other", "task.data=d"], "other.yaml is not a file"),
        (["--config-name=bad", "task.data=d"], "bad.yaml:1: found - a list"),
    ],
)
def test_wrong_configurations(configured: Path, words: list[str], said: str) -> None:
    (configured / "bad.yaml").write_text("- a list\n")
    with pytest.raises(UsageError, match=re.escape(said)):
        called(CODE, HYDRA, "--config-dir=.", *words)


SOURCE = ["--only-source", "--trainpref=t.raw", "--srcdict=gpt2_bpe/dict.txt"]


@pytest.mark.usefixtures("many_cores")
def test_texts_become_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    got = resolved(
        CODE, PREPROCESS, *SOURCE, "--validpref=v.raw,w.raw", "--testpref=x.raw", "--destdir=d", "--workers=6"
    )
    wanted = {
        C + "source.path": ["t.raw"],
        C + "given.validation.path": ["v.raw", "w.raw"],
        C + "given.test.path": ["x.raw"],
        C + "sentences": "lines",
        C + "duplicates": "keep",
        C + "processes": 6,
        C + "validation": 0.0,
        E + "tokenizer": "gpt2_bpe/dict.txt",
        E + "out": "d",
        E + "processes": 6,
        E + "sentences": True,
    }
    assert {key: got[key] for key in wanted} == wanted
    assert called(CODE, PREPROCESS, *SOURCE).words == ["--anew"]


def test_no_more_processes_than_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """The README's 60 processes would be too many for a laptop."""
    monkeypatch.setattr(host, "cores", lambda: 3)
    call = called(CODE, PREPROCESS, *SOURCE, "--workers=60")
    assert [call.recipes[name]["processes"] for name in ("corpus", "encode")] == [3, 3]
    assert "--workers 60: uses 3 processes, one per core" in call.notes
    assert called(CODE, PREPROCESS, *SOURCE, "--workers=2").recipes["encode"]["processes"] == 2


def test_several_folders_and_a_sentence_a_row() -> None:
    """Folders joined by colons have equal weights; an epoch of the original is over one of them."""
    got = resolved(CODE, TRAIN, "a:b", *BASE[1:7], *BASE[8:], "--max-epoch=4", "--sample-break-mode=eos")
    assert [got[P + key] for key in ("data.a", "data.b", "objective.cut", "phase[1].epochs")] == [
        1.0,
        1.0,
        "one_sentence",
        2.0,
    ]
    assert got[PHASE + "pack"] is False


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        (TRAIN, BASE[1:], "no data"),
        (TRAIN, [*BASE, "--task=sentence_prediction"], "--task: found sentence_prediction; wanted masked_lm"),
        (TRAIN, [*BASE, "--num-classes=2"], "--num-classes: is not supported; `ordsmed finetune`"),
        (TRAIN, [*BASE[:2], *BASE[3:]], "--criterion: missing"),
        (TRAIN, [*BASE[:3], *BASE[4:]], "--arch: missing; wanted roberta"),
        (TRAIN, [*BASE, "--arch=transformer"], "--arch: found transformer"),
        (TRAIN, [*BASE[:4], *BASE[5:]], "--optimizer: missing"),
        (TRAIN, [*BASE, "--sample-break-mode=line"], "found line; wanted none, complete, complete_doc, eos"),
        (TRAIN, [*BASE, "--activation-fn=gelu_fast"], "--activation-fn: found gelu_fast"),
        (TRAIN, [word for word in BASE if "batch" not in word], "--batch-size: missing, as is --max-tokens"),
        (TRAIN, [*BASE, "--max-tokens=100"], "--max-tokens: found 100; wanted at least the 512"),
        (TRAIN, [*BASE, "--update-freq=4,8"], "--update-freq: found 4,8; wanted a single value"),
        (TRAIN, [*BASE, "--update-freq=many"], "--update-freq: found many; wanted a whole number"),
        (TRAIN, [*BASE, "--warmup-init-lr=1e-7"], "--warmup-init-lr: found 1e-07; wanted 0"),
        *(
            (TRAIN, [*BASE, f"--ddp-backend={word}"], f"--ddp-backend: found {word}; wanted pytorch_ddp, legacy_ddp")
            for word in ("slowmo", "fully_shardd")
        ),
        (TRAIN, [*BASE, "--lr=low"], "--lr: found low; wanted a number"),
        (TRAIN, [*BASE, "--adam-betas=0.9"], "--adam-betas: found 0.9"),
        (TRAIN, [word for word in BASE if "update" not in word], "--max-update: missing, as is --max-epoch"),
        (TRAIN, [*BASE, "--lr-scheduler=tri_stage"], "found tri_stage; wanted polynomial_decay, inverse_sqrt or fixed"),
        (TRAIN, [*BASE, "--fp16", "--bf16"], "--fp16: found with --bf16"),
        (TRAIN, [*BASE, "--finetune-from-model=a", "--restore-file=b/c.pt"], "found with --restore-file"),
        (TRAIN, [*BASE, "--max-updates=3"], "--max-updates=3: no such flag; did you mean `--max-update`?"),
        (TRAIN, [*BASE, "--encoder-layerdrop=0.2"], "--encoder-layerdrop: is not supported; leave it out"),
        (TRAIN, [*BASE, "other"], "found `other`; wanted flags"),
        (TRAIN, [".", *BASE[1:]], ".: is not a token store of ordsmed"),
        (PREPROCESS, SOURCE[1:], "--only-source: missing"),
        (PREPROCESS, SOURCE[:2], "--srcdict: missing; wanted a vocabulary"),
        (TRAIN, [*BASE, "--max-option-length=128"], "ordsmed has no multiple-choice head"),
        (PREPROCESS, [*SOURCE, "--trainpref=ids.bpe"], "ids.bpe: contains token ids; wanted texts"),
        (PREPROCESS, [*SOURCE, "--target-lang=de"], "--target-lang: is not supported; there is only one language"),
        (BPE, ["--encoder-json=e", "--vocab-bpe=v", "--inputs", "a", "b", "--outputs", "c"], "--inputs: found 2;"),
        (BPE, ["--encoder-json=e"], "no --vocab-bpe"),
    ],
)
def test_wrong_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: list[str], said: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ids.bpe").write_text("262 318 13\n\n50 7\n")
    with pytest.raises(UsageError, match=re.escape(said)):
        called(CODE, name, *words)


def test_programs_without_an_ending_are_installed(tmp_path: Path) -> None:
    install.install(CODE, str(tmp_path))
    names = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert names == {TRAIN, PREPROCESS, HYDRA, "examples/roberta/multiprocessing_bpe_encoder.py"}
    assert os.access(tmp_path / TRAIN, os.X_OK)
    done = subprocess.run(
        [sys.executable, tmp_path / TRAIN, *BASE[:-1]],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "ORDSMED_RECIPE": "1"},
    )
    assert "ordsmed pretrain work/as/checkpoints/pretrain.toml" in done.stdout, done.stderr


SMALL = [
    "--encoder-layers=1",
    "--encoder-embed-dim=16",
    "--encoder-ffn-embed-dim=32",
    "--encoder-attention-heads=2",
    "--max-positions=32",
    "--tokens-per-sample=32",
    "--max-update=2",
    "--batch-size=2",
    "--cpu",
    "--save-dir=out",
    "--sample-break-mode=complete",
]


@pytest.mark.long
def test_their_three_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Encode, preprocess and train, twice because the original overwrites; the checkpoint is in fairseq's format."""
    monkeypatch.chdir(tmp_path)
    byte_pieces(tmp_path / "gpt2_bpe", 60)
    (tmp_path / "gpt2_bpe" / "dict.txt").write_text("".join(f"{n} 1\n" for n in [*range(9, 60), *range(9)]))
    (tmp_path / "t.raw").write_text("abc ab a\nb a cab\n\n" * 30)
    for _ in range(2):
        main(
            [
                "as",
                CODE,
                BPE,
                "--encoder-json=gpt2_bpe/encoder.json",
                "--vocab-bpe=gpt2_bpe/vocab.bpe",
                "--inputs",
                "t.raw",
                "--outputs",
                "t.bpe",
                "--keep-empty",
            ]
        )
        main(["as", CODE, PREPROCESS, *SOURCE, "--trainpref=t.bpe", "--validpref=t.bpe", "--destdir=data-bin"])
    assert (tmp_path / "data-bin" / "dict.txt").read_text() == (tmp_path / "gpt2_bpe" / "dict.txt").read_text()
    main(["as", CODE, TRAIN, *BASE, *SMALL])
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    for name in ("dict.txt", "encoder.json", "vocab.bpe"):
        (theirs / name).write_text((tmp_path / "gpt2_bpe" / name).read_text())
    (theirs / "model.pt").write_bytes((tmp_path / "out" / "checkpoint_best.pt").read_bytes())
    ours, back = open_model("out"), open_model(str(theirs))
    assert ours.tokenizer.fingerprint == back.tokenizer.fingerprint
    weights = dict(back.objective.named_parameters())
    for name, weight in ours.objective.named_parameters():
        assert weight.equal(weights[name]), name
    main(
        [
            "as",
            CODE,
            TRAIN,
            *BASE,
            *SMALL[:-2],
            "--save-dir=more",
            "--restore-file=out/checkpoint_last.pt",
            "--reset-optimizer",
        ]
    )
    assert 'init = "out/weights"' in (tmp_path / "work/as/more/pretrain.toml").read_text()
