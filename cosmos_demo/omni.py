"""One model, two heads: a checkpoint loaded once, its language weights used by the Reasoner and the Generator alike.

diffusers' pipeline owns all weights. transformers' Reasoner is built without any and given the very same Parameter
objects (not ``state_dict()`` tensors, which part at the first ``.to()``), so the two can't drift apart and a move of
one moves the other. Only the vision encoder, which the Generator never uses, is the Reasoner's own.
"""

from __future__ import annotations

import threading
import traceback
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from pathlib import Path

import accelerate
import diffusers
import torch
import transformers
from diffusers import (
    AutoencoderKLWan,
    Cosmos3AVAEAudioTokenizer,
    Cosmos3DistilledModularPipeline,
    Cosmos3OmniModularPipeline,
    Cosmos3OmniPipeline,
    Cosmos3OmniTransformer,
)
from diffusers.utils import is_cosmos_guardrail_available
from safetensors import safe_open
from torch import nn
from transformers import AutoConfig, AutoProcessor, AutoTokenizer, GenerationConfig, PreTrainedModel, ProcessorMixin
from transformers.conversion_mapping import get_checkpoint_conversion_mapping
from transformers.core_model_loading import rename_source_key

from cosmos_demo.checkpoints import EDGE, OMNI, Checkpoint, Progress, WeightFile, read_json
from cosmos_demo.engines.base import Capabilities
from cosmos_demo.errors import CheckpointError, OutOfMemoryError
from cosmos_demo.placement import Offload, choose_device, choose_dtype, gigabytes, memory_of, stays_on_device, tensors

HEADS = ("reasoner", "generator")
REASONERS = {OMNI: "Cosmos3OmniForConditionalGeneration", EDGE: "Cosmos3EdgeForConditionalGeneration"}
COMPONENTS = {
    "transformer": Cosmos3OmniTransformer,
    "vae": AutoencoderKLWan,
    "sound_tokenizer": Cosmos3AVAEAudioTokenizer,
}

_loaded: weakref.WeakValueDictionary[tuple[object, ...], OmniModel] = weakref.WeakValueDictionary()
_loading = threading.Lock()


class OmniModel:
    """A loaded checkpoint.

    Attributes:
        checkpoint: Where it came from and what it can do.
        device, dtype: Where it computes, and in what precision (the time embedder always in float32).
        pipeline: The Generator; owns the weights. For a distilled checkpoint use `distilled_pipeline` instead.
        reasoner: The Reasoner on the same Parameters, or ``None`` when the checkpoint has none.
        processor: Chat template, tokenizer and picture preparation of the Reasoner, or ``None``.
        guardrails: What screens prompts and results, in words.
        active_head: ``reasoner`` or ``generator`` while one works.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        device: torch.device,
        dtype: torch.dtype,
        pipeline: Cosmos3OmniPipeline,
        reasoner: PreTrainedModel | None,
        processor: ProcessorMixin | None,
        guardrails: str,
        offload: Offload | None = None,
    ) -> None:
        self.checkpoint = checkpoint
        self.device = device
        self.dtype = dtype
        self.pipeline = pipeline
        self.reasoner = reasoner
        self.processor = processor
        self.guardrails = guardrails
        self.active_head: str | None = None
        self._offload = offload

    @classmethod
    def load(
        cls,
        checkpoint: Checkpoint,
        device: str = "auto",
        dtype: str = "auto",
        offload: str = "auto",
        guardrails: bool = True,
        progress: Progress = lambda fraction, what: None,
    ) -> OmniModel:
        """Load a checkpoint; while an equal one is alive in this process, that one is returned.

        Args:
            checkpoint: From `checkpoints.find`.
            device: ``auto`` (CUDA, else MPS, else CPU), ``cpu``, ``mps``, ``cuda`` or ``cuda:N``.
            dtype: ``auto`` (bfloat16 on accelerators, float32 on CPU), ``float32`` or ``bfloat16``.
            offload: Keep weights in host memory between uses: ``auto`` (only if they don't fit), ``never``, ``always``.
            guardrails: Screen with NVIDIA's guardrails where they are installed.
            progress: Told the fraction of bytes read and the file being read.

        Raises:
            CheckpointError: when weights are missing, damaged or don't fit the configs.
            OutOfMemoryError: when nothing on this machine holds the weights.
        """
        where = choose_device(device)
        precision = choose_dtype(dtype, where)
        key = (checkpoint.folder.resolve(), where, precision, offload, guardrails)
        with _loading:
            model = _loaded.get(key)
            if model is None:
                try:
                    model = _load(checkpoint, where, precision, offload, guardrails, progress)
                except torch.OutOfMemoryError as error:
                    traceback.clear_frames(error.__traceback__)
                    raise OutOfMemoryError(
                        f"{where} ran out of memory while {checkpoint.name} was loaded, though it fitted before: "
                        "something else took the room. Free it, or start with --offload always."
                    ) from None
                _loaded[key] = model
        progress(1.0, "ready")
        return model

    @property
    def capabilities(self) -> Capabilities:
        return self.checkpoint.capabilities

    @cached_property
    def transfer_pipeline(self) -> Cosmos3OmniModularPipeline:
        """diffusers' modular pipeline on the same components; the one that can do transfer."""
        return self._modular(Cosmos3OmniModularPipeline())

    @cached_property
    def distilled_pipeline(self) -> Cosmos3DistilledModularPipeline:
        """The few-step pipeline on the same components, with the checkpoint's fixed noise levels."""
        pipeline = Cosmos3DistilledModularPipeline()
        pipeline.update_components(is_distilled=True, distilled_sigmas=list(self.checkpoint.distilled_sigmas))
        return self._modular(pipeline)

    def _modular(self, pipeline: Cosmos3OmniModularPipeline) -> Cosmos3OmniModularPipeline:
        shared = ("transformer", "vae", "scheduler", "text_tokenizer", "sound_tokenizer")
        components = {name: self.pipeline.components[name] for name in shared}
        pipeline.update_components(**components, **self.checkpoint.pipeline_options)
        pipeline.set_progress_bar_config(disable=True)
        if self.pipeline.safety_checker is None:
            pipeline.disable_safety_checker()
        else:
            pipeline.enable_safety_checker(self.pipeline.safety_checker)
        return pipeline

    @contextmanager
    def head(self, name: str) -> Iterator[OmniModel]:
        """Make one head ready to work, and leave nothing of its run behind, also when it fails.

        Args:
            name: ``reasoner`` or ``generator``.

        Raises:
            OutOfMemoryError: when the run needs more memory than there is.
        """
        if name not in HEADS:
            raise ValueError(f"no head {name!r}; one of {', '.join(HEADS)}")
        self.active_head = name
        out_of_memory = ""
        try:
            with self._weights_of(name):
                yield self
        except torch.OutOfMemoryError as error:
            # What the run held hangs on the frames of its traceback.
            traceback.clear_frames(error.__traceback__)
            out_of_memory = self._out_of_memory()
        finally:
            self.active_head = None
            if self.reasoner is not None:
                # Positions of the last conversation; the next one must not inherit them.
                self.reasoner.model.rope_deltas = None
            _free_cache(self.device)
        if out_of_memory:
            raise OutOfMemoryError(out_of_memory)

    @property
    def offloaded(self) -> bool:
        """Weights live in host memory and visit the device; layers may come one by one, by calls of their `forward`."""
        return self._offload is not None

    def networks(self) -> list[nn.Module]:
        """The transformer, VAE, sound tokenizer and Reasoner, as far as there are."""
        everything = [*(getattr(self.pipeline, name) for name in COMPONENTS), self.reasoner]
        return [network for network in everything if network is not None]

    def memory(self) -> dict[str, int]:
        """Bytes: ``weights`` of all networks (shared ones once), ``allocated`` and ``total`` of the device."""
        weights = sum({tensor.data_ptr(): tensor.nbytes for tensor in tensors(self.networks())}.values())
        device = memory_of(self.device)
        return {"weights": weights, "allocated": device.allocated, "total": device.total}

    def _weights_of(self, head: str) -> AbstractContextManager[None]:
        if self._offload is None:
            return nullcontext()
        if head == "reasoner":
            return self._offload.visit([self.reasoner], self.reasoner.model.language_model.layers)
        generator = [network for network in self.networks() if network is not self.reasoner]
        return self._offload.visit(generator, self.pipeline.transformer.layers)

    def _out_of_memory(self) -> str:
        device = memory_of(self.device)
        return (
            f"The {self.active_head} needed more memory than {self.device} has: {gigabytes(device.total)}, of which "
            f"{gigabytes(device.free)} were free beside the weights ({gigabytes(self.memory()['weights'])} in all). "
            "Choose a lower resolution, fewer frames or smaller pictures"
            f"{'' if self.offloaded else ', or start with --offload always'}."
        )


def _load(
    checkpoint: Checkpoint,
    device: torch.device,
    dtype: torch.dtype,
    offload: str,
    guardrails: bool,
    progress: Progress,
) -> OmniModel:
    files = checkpoint.weights(progress)
    stays = stays_on_device(_needed(checkpoint, files, dtype), device, offload)
    home = device if stays else torch.device("cpu")
    reader = _Reader(home, dtype, sum(file.bytes for part in files.values() for file in part), progress)
    networks = {
        name: reader.network(cls, checkpoint, name, files[name]) for name, cls in COMPONENTS.items() if name in files
    }
    pipeline, screened = _pipeline(checkpoint, networks, guardrails)
    reasoner = processor = None
    if checkpoint.has_reasoner:
        reasoner = _reasoner(checkpoint, networks["transformer"], reader.tensors(files["vision_encoder"]), dtype, home)
        with _blaming(checkpoint.folder):
            processor = AutoProcessor.from_pretrained(checkpoint.folder)
    visits = None if stays else Offload(device, memory_of(device).for_weights, keep=offload != "always")
    model = OmniModel(checkpoint, device, dtype, pipeline, reasoner, processor, screened, visits)
    for network in model.networks():
        network.requires_grad_(False).eval()
    return model


def _needed(checkpoint: Checkpoint, files: dict[str, tuple[WeightFile, ...]], dtype: torch.dtype) -> int:
    """Bytes that the weights of these files take once they are loaded."""
    return sum(
        file.bytes if checkpoint.quantized and component == "transformer" else file.elements_total * dtype.itemsize
        for component, part in files.items()
        for file in part
    )


class _Reader:
    """Reads weight files tensor by tensor to where they belong, telling how far it got."""

    def __init__(self, device: torch.device, dtype: torch.dtype, total: int, progress: Progress) -> None:
        self.device = device
        self.dtype = dtype
        self.total = total
        self.done = 0
        self.progress = progress

    def network(
        self, cls: type[diffusers.ModelMixin], checkpoint: Checkpoint, component: str, files: tuple[WeightFile, ...]
    ) -> nn.Module:
        """A diffusers network with its weights, without a second copy of them in memory."""
        folder = checkpoint.folder / component
        if checkpoint.quantized and component == "transformer":
            try:
                return cls.from_pretrained(folder, dtype=self.dtype).to(self.device)
            except ImportError as error:
                raise CheckpointError(f"{checkpoint.name} is quantised, which needs another package: {error}") from None
        with _blaming(folder), accelerate.init_empty_weights():
            network = cls.from_config(read_json(folder / "config.json"))
        fill(network, self.tensors(files, keep_in_fp32=cls._keep_in_fp32_modules or ()), f"{folder}")
        return network.to(self.device)

    def tensors(self, files: tuple[WeightFile, ...], keep_in_fp32: tuple[str, ...] = ()) -> dict[str, torch.Tensor]:
        """All tensors of some files on the device; floating ones in the model's precision."""
        result = {}
        for file in files:
            what = f"reading {file.path.parent.name}/{file.path.name}"
            with safe_open(file.path, framework="pt") as source:
                for name, elements in file.elements.items():
                    self.progress(self.done / self.total, what)
                    tensor = source.get_tensor(name)
                    dtype = torch.float32 if set(keep_in_fp32) & set(name.split(".")) else self.dtype
                    dtype = dtype if tensor.is_floating_point() else tensor.dtype
                    result[name] = tensor.to(self.device, dtype, copy=True)
                    self.done += file.bytes * elements // file.elements_total
        return result


def fill(network: nn.Module, tensors: dict[str, torch.Tensor], origin: str) -> None:
    """Give a network its tensors, as they are; Parameters stay the very same objects.

    Raises:
        CheckpointError: when one is missing or has another shape than the config says.
    """
    missing = [name for name, _ in network.named_parameters() if name not in tensors]
    if missing:
        raise CheckpointError(
            f"{origin} lacks {len(missing)} of the tensors its config calls for, for example {missing[0]}; "
            "download the checkpoint again."
        )
    try:
        network.load_state_dict(tensors, strict=False, assign=True)
    except RuntimeError as error:
        raise CheckpointError(f"{origin} doesn't fit its config ({error}); download the checkpoint again.") from None


def _pipeline(
    checkpoint: Checkpoint, networks: dict[str, nn.Module], guardrails: bool
) -> tuple[Cosmos3OmniPipeline, str]:
    """The Generator over these networks, and what screens it in words."""
    folder = checkpoint.folder
    scheduler_class = getattr(
        diffusers, read_json(folder / "scheduler" / "scheduler_config.json").get("_class_name", ""), None
    )
    if scheduler_class is None:
        raise CheckpointError(f"{folder / 'scheduler'} names no scheduler of diffusers; download the checkpoint again.")
    with _blaming(folder):
        tokenizer = AutoTokenizer.from_pretrained(folder / "text_tokenizer")
        scheduler = scheduler_class.from_pretrained(folder / "scheduler")
    checker, screened = _safety_checker(guardrails)
    pipeline = Cosmos3OmniPipeline(
        transformer=networks["transformer"],
        text_tokenizer=tokenizer,
        vae=networks["vae"],
        scheduler=scheduler,
        sound_tokenizer=networks.get("sound_tokenizer"),
        safety_checker=checker,
        enable_safety_checker=checker is not None,
        **checkpoint.pipeline_options,
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline, screened


def _safety_checker(wanted: bool) -> tuple[object | None, str]:
    """NVIDIA's guardrails if they are wanted and can be had, and what is active in words."""
    if not wanted:
        return None, "off (switched off at start): prompts and results are not screened"
    if not is_cosmos_guardrail_available():
        return None, "off (cosmos_guardrail is not installed): prompts and results are not screened"
    from cosmos_guardrail import CosmosSafetyChecker

    try:
        checker = CosmosSafetyChecker()
    except OSError as error:
        return None, f"off (their weights can't be had: {error}): prompts and results are not screened"
    return checker, "NVIDIA's guardrails screen prompts and generated frames, not sound, uploads or actions"


def _reasoner(
    checkpoint: Checkpoint,
    transformer: nn.Module,
    vision: dict[str, torch.Tensor],
    dtype: torch.dtype,
    device: torch.device,
) -> PreTrainedModel:
    """The Reasoner on the transformer's own Parameters, with the vision encoder's tensors beside them."""
    with _blaming(checkpoint.folder), torch.device("meta"):
        config = AutoConfig.from_pretrained(checkpoint.folder)
        reasoner = getattr(transformers, REASONERS[checkpoint.family])._from_config(config, dtype=dtype)
    renamings = get_checkpoint_conversion_mapping(checkpoint.family)
    wanted = dict(reasoner.named_parameters())
    weights: dict[str, torch.Tensor] = {}
    for name, tensor in (*transformer.named_parameters(), *vision.items()):
        renamed, _ = rename_source_key(name, renamings, [], reasoner.base_model_prefix, wanted)
        if renamed in wanted:
            weights[renamed] = tensor
    fill(reasoner, weights, str(checkpoint.folder))
    _fill_rotary_buffers(reasoner, device)
    if (checkpoint.folder / "generation_config.json").exists():
        reasoner.generation_config = GenerationConfig.from_pretrained(checkpoint.folder)
    return reasoner


@contextmanager
def _blaming(folder: Path) -> Iterator[None]:
    """Turn what the libraries raise about configs and tokenizer files into a `CheckpointError`."""
    try:
        yield
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise CheckpointError(
            f"{folder} has a config or tokenizer file that is missing or damaged ({error}); download it again."
        ) from error


def _fill_rotary_buffers(reasoner: nn.Module, device: torch.device) -> None:
    """Compute the rotary frequencies of language model and vision encoder, which no checkpoint stores."""
    for module in reasoner.modules():
        if hasattr(module, "original_inv_freq"):
            fresh = type(module)(module.config)
            module.inv_freq = fresh.inv_freq.to(device)
            module.original_inv_freq = fresh.original_inv_freq.to(device)


def _free_cache(device: torch.device) -> None:
    """Give memory that no tensor uses any more back to the device."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
    elif device.type == "mps":
        torch.mps.empty_cache()
