"""Many samples in one training forward, through the library's own layers.

The library's transformer takes one sample a call. Its decoder layers, however, only see two flat token streams
(understanding and generation) and leave attention to a processor. So the tokens of all samples are laid end to end, and
a processor that knows where each sample lies does the attention, batch by batch. Samples of one shape form a
:class:`Group`; groups of every kind (pictures, videos, questions) run together in one pass.

Token layout, positions and timestep handling are those of ``Cosmos3OmniPipeline`` for generation, and of
``Cosmos3OmniForConditionalGeneration`` for questions; the tests hold both to the libraries' own forwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from diffusers import Cosmos3OmniTransformer
from diffusers.models.transformers.transformer_cosmos3 import Cosmos3PackedMoTAttention, _rotate_half
from diffusers.pipelines.cosmos.pipeline_cosmos3_omni import get_3d_mrope_ids_vae_tokens
from torch import Tensor
from transformers import Qwen3VLVisionModel
from transformers.models.qwen3_vl.modeling_qwen3_vl import apply_rotary_pos_emb_vision
from transformers.vision_utils import get_vision_interpolation_indices_and_weights, get_vision_position_ids


@dataclass
class Group:
    """Samples of one shape. B samples, U text tokens (padded on the right), F latent frames.

    Attributes:
        input_ids: ``[B, U]`` text token ids.
        lengths: ``[B]`` real tokens of each row.
        text_positions: ``[3, B, U]`` M-RoPE positions; ``None`` counts 0, 1, 2, … as for text alone.
        frames: ``[B*N, P, 1536]`` patch rows of the pictures the Reasoner sees, all of one grid.
        frame_grid: Patches per column and row of those pictures, for example ``(12, 20)``.
        frame_slots: ``[B*N*P/4]`` where their tokens go, as indices into the flattened ``[B*U]``.
        vision: ``[B, C, F, h, w]`` latents, already mixed with noise where ``vision_noisy``.
        vision_noisy: ``[B, F]`` 1 where the frame is to be denoised, 0 where it is a condition.
        vision_positions: ``[3, F*h/2*w/2]`` positions relative to the start of generation.
        sound: ``[B, S, D]`` noised sound latents; ``sound_present``: ``[B]`` bool; ``sound_positions``: ``[3, S]``.
        action: ``[B, A, D]`` actions, noised where ``action_noisy`` (``[B]``); ``action_positions``: ``[3, A]``.
        domains: ``[B]`` embodiment domain ids.
        timesteps: ``[B]`` 0 to 1000.
    """

    input_ids: Tensor
    lengths: Tensor
    text_positions: Tensor | None = None
    frames: Tensor | None = None
    frame_grid: tuple[int, int] = (0, 0)
    frame_slots: Tensor | None = None
    vision: Tensor | None = None
    vision_noisy: Tensor | None = None
    vision_positions: Tensor | None = None
    sound: Tensor | None = None
    sound_present: Tensor | None = None
    sound_positions: Tensor | None = None
    action: Tensor | None = None
    action_noisy: Tensor | None = None
    action_positions: Tensor | None = None
    domains: Tensor | None = None
    timesteps: Tensor | None = None


@dataclass
class Prediction:
    """What the transformer says about one group: text states ``[B, U, D]`` and velocities shaped as the inputs."""

    text: Tensor
    vision: Tensor | None = None
    sound: Tensor | None = None
    action: Tensor | None = None


@dataclass
class _Span:
    """Where one group lies in the two streams: B rows of ``und`` and ``gen`` tokens, and who may be attended to."""

    batch: int
    und: int
    gen: int
    visible: Tensor | None


class GroupedAttention:
    """Attention processor over packed groups; set with ``transformer.set_attn_processor``.

    The text stream is causal, so padding on the right is never seen by real tokens; generation tokens see all real
    tokens of their own sample.
    """

    _attention_backend = None
    _parallel_config = None

    def __init__(self) -> None:
        self.spans: list[_Span] = []

    def __call__(
        self,
        attn: Cosmos3PackedMoTAttention,
        und_seq: Tensor,
        gen_seq: Tensor,
        rotary_emb: tuple[Tensor, Tensor, Tensor, Tensor],
    ) -> tuple[Tensor, Tensor]:
        cos_und, sin_und, cos_gen, sin_gen = (part.unsqueeze(1) for part in rotary_emb)
        heads, kv_heads, size = attn.num_attention_heads, attn.num_key_value_heads, attn.head_dim

        v_und = attn.to_v(und_seq).view(-1, kv_heads, size)
        v_gen = attn.add_v_proj(gen_seq).view(-1, kv_heads, size)
        q_und = _rotate(attn.norm_q(attn.to_q(und_seq).view(-1, heads, size)), cos_und, sin_und, v_und.dtype)
        k_und = _rotate(attn.norm_k(attn.to_k(und_seq).view(-1, kv_heads, size)), cos_und, sin_und, v_und.dtype)
        q_gen = _rotate(
            attn.norm_added_q(attn.add_q_proj(gen_seq).view(-1, heads, size)), cos_gen, sin_gen, v_gen.dtype
        )
        k_gen = _rotate(
            attn.norm_added_k(attn.add_k_proj(gen_seq).view(-1, kv_heads, size)), cos_gen, sin_gen, v_gen.dtype
        )

        und_out, gen_out = [], []
        und_at = gen_at = 0
        for span in self.spans:
            text = slice(und_at, und_at + span.batch * span.und)
            media = slice(gen_at, gen_at + span.batch * span.gen)
            und_at, gen_at = text.stop, media.stop
            keys, values = _rows(k_und[text], span.batch), _rows(v_und[text], span.batch)
            und_out.append(_attend(_rows(q_und[text], span.batch), keys, values, is_causal=True))
            if span.gen:
                keys = torch.cat([keys, _rows(k_gen[media], span.batch)], dim=2)
                values = torch.cat([values, _rows(v_gen[media], span.batch)], dim=2)
                gen_out.append(_attend(_rows(q_gen[media], span.batch), keys, values, attn_mask=span.visible))
        return attn.to_out(torch.cat(und_out)), attn.to_add_out(torch.cat(gen_out) if gen_out else gen_seq[:0])


def _rotate(states: Tensor, cos: Tensor, sin: Tensor, dtype: torch.dtype) -> Tensor:
    return (states * cos + _rotate_half(states) * sin).to(dtype)


def _rows(stream: Tensor, batch: int) -> Tensor:
    """``[B*L, heads, size]`` to ``[B, heads, L, size]``."""
    return stream.view(batch, -1, *stream.shape[1:]).transpose(1, 2)


def _attend(query: Tensor, key: Tensor, value: Tensor, **how: Tensor | bool | None) -> Tensor:
    repeats = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(repeats, dim=1), value.repeat_interleave(repeats, dim=1)
    out = F.scaled_dot_product_attention(query, key, value, **how)
    return out.transpose(1, 2).flatten(0, 1).flatten(-2, -1)


def relative_positions(
    frames: int, height: int, width: int, fps: float, *, temporal_factor: int, base_factor: int = 4, first: int = 0
) -> Tensor:
    """Positions of generated tokens relative to where generation starts, from the pipeline's own function.

    Args:
        frames, height, width: Token grid.
        fps: Rate of the video (or of the sound latents).
        temporal_factor: 4 for video latents, 1 for sound and actions.
        base_factor: The factor that ``base_fps`` refers to: 4 for video and actions, 1 for sound.
        first: 1 for actions, which describe the way *to* the next frame.

    Returns:
        ``[3, frames*height*width]`` float positions.
    """
    positions, _ = get_3d_mrope_ids_vae_tokens(
        grid_t=frames,
        grid_h=height,
        grid_w=width,
        temporal_offset=0,
        fps=fps,
        base_fps=24.0,
        temporal_compression_factor=temporal_factor,
        base_temporal_compression_factor=base_factor,
        start_frame_offset=first,
    )
    return positions.float()


def patch_rows(pictures: Tensor) -> Tensor:
    """Pictures as the rows of patches that the vision encoder reads, in the image processor's order.

    Args:
        pictures: ``[N, 2, 3, H, W]`` pairs of frames in -1 to 1; H and W multiples of 32. A still is its own pair.

    Returns:
        ``[N, H/16*W/16, 1536]``.
    """
    count, pair, channels, height, width = pictures.shape
    blocks = pictures.reshape(count, pair, channels, height // 32, 2, 16, width // 32, 2, 16)
    return blocks.permute(0, 3, 6, 4, 7, 2, 1, 5, 8).reshape(count, height // 16 * (width // 16), -1)


def patchify(latents: Tensor) -> Tensor:
    """``[B, C, F, h, w]`` latents to ``[B, F*h/2*w/2, 4*C]`` tokens, as the transformer's own packing does."""
    batch, channels, frames, height, width = latents.shape
    cells = latents.reshape(batch, channels, frames, height // 2, 2, width // 2, 2)
    return cells.permute(0, 2, 3, 5, 4, 6, 1).reshape(batch, frames * height // 2 * (width // 2), 4 * channels)


def unpatchify(tokens: Tensor, frames: int, height: int, width: int) -> Tensor:
    """Inverse of :func:`patchify` for latents of ``frames`` x ``height`` x ``width``."""
    batch = tokens.shape[0]
    cells = tokens.reshape(batch, frames, height // 2, width // 2, 2, 2, -1)
    return cells.permute(0, 6, 1, 2, 4, 3, 5).reshape(batch, -1, frames, height, width)


class VisionForward:
    """The vision encoder over many pictures of one size: its own modules, attention within each picture."""

    def __init__(self, model: Qwen3VLVisionModel, grid: tuple[int, int]) -> None:
        self.model = model
        device = model.pos_embed.weight.device
        size = torch.tensor([[1, *grid]], device=device)
        self.taps, self.weights = get_vision_interpolation_indices_and_weights(
            size,
            num_grid_per_side=model.num_grid_per_side,
            mode=model.interpolation_mode,
            align_corners=model.interpolation_align_corners,
            spatial_merge_size=model.config.spatial_merge_size,
        )
        positions = get_vision_position_ids(size, model.config.spatial_merge_size)
        self.rotary = model.rotary_pos_emb(model.pos_embed.weight, positions)

    def __call__(self, patches: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Encode ``[N, P, 1536]`` patches to ``[N*P/4, D]`` tokens and the deepstack features of the same shape."""
        model = self.model
        pictures, count, _ = patches.shape
        places = (model.pos_embed(self.taps) * self.weights[:, :, None]).sum(1)
        kernel = model.patch_embed.proj
        states = F.linear(patches, kernel.weight.flatten(1), kernel.bias) + places
        deep = []
        for depth, block in enumerate(model.blocks):
            attention = block.attn
            query, key, value = (
                attention.qkv(block.norm1(states)).view(pictures, count, 3, attention.num_heads, -1).unbind(2)
            )
            query, key = apply_rotary_pos_emb_vision(query, key, *self.rotary)
            mixed = F.scaled_dot_product_attention(
                query.transpose(1, 2).to(value.dtype), key.transpose(1, 2).to(value.dtype), value.transpose(1, 2)
            )
            states = states + attention.proj(mixed.transpose(1, 2).flatten(2))
            states = states + block.mlp(block.norm2(states))
            if depth in model.deepstack_visual_indexes:
                merger = model.deepstack_merger_list[model.deepstack_visual_indexes.index(depth)]
                deep.append(merger(states.flatten(0, 1)))
        return model.merger(states.flatten(0, 1)), deep


def forward(
    transformer: Cosmos3OmniTransformer, vision: dict[tuple[int, int], VisionForward], groups: Sequence[Group]
) -> list[Prediction]:
    """Run all groups in one pass.

    Args:
        transformer: With one shared :class:`GroupedAttention` as its attention processor.
        vision: A :class:`VisionForward` for each picture grid that occurs.
        groups: What to run.
    """
    texts, text_positions, media, media_positions, spans = [], [], [], [], []
    deepstack: dict[int, list[tuple[Tensor, Tensor]]] = {}
    und_at = 0
    seen = _see(vision, groups)
    for index, group in enumerate(groups):
        batch, length = group.input_ids.shape
        text = transformer.embed_tokens(group.input_ids).flatten(0, 1)
        if group.frames is not None:
            tokens, deep = seen[index]
            text = text.index_copy(0, group.frame_slots, tokens.to(text.dtype))
            for layer, features in enumerate(deep):
                deepstack.setdefault(layer, []).append((und_at + group.frame_slots, features))
        texts.append(text)
        if group.text_positions is None:
            counts = torch.arange(length, device=text.device, dtype=torch.float32).repeat(batch)
            text_positions.append(counts.expand(3, -1))
        else:
            text_positions.append(group.text_positions.flatten(1).float())
        tokens, positions, visible = _media_tokens(transformer, group)
        media.append(tokens.flatten(0, 1))
        media_positions.append(positions)
        spans.append(_Span(batch, length, tokens.shape[1], visible))
        und_at += batch * length

    und, gen = torch.cat(texts), torch.cat(media).to(texts[0].dtype)
    processor = next(iter(transformer.attn_processors.values()))
    processor.spans = spans
    places = torch.cat([*text_positions, *media_positions], dim=1)
    cos, sin = transformer.rotary_emb(places.unsqueeze(1), device=und.device, dtype=und.dtype)
    cos, sin = cos.squeeze(0), sin.squeeze(0)
    split = und.shape[0]
    rotary = (cos[:split], sin[:split], cos[split:], sin[split:])
    for depth, layer in enumerate(transformer.layers):
        und, gen = layer(und, gen, rotary)
        for slots, features in deepstack.get(depth, ()):
            und = und.index_add(0, slots, features.to(und.dtype))
    und, gen = transformer.norm(und), transformer.norm_moe_gen(gen)

    predictions = []
    und_at = gen_at = 0
    for group, span in zip(groups, spans, strict=True):
        text = und[und_at : und_at + span.batch * span.und].view(span.batch, span.und, -1)
        states = gen[gen_at : gen_at + span.batch * span.gen].view(span.batch, span.gen, gen.shape[1])
        und_at, gen_at = und_at + span.batch * span.und, gen_at + span.batch * span.gen
        predictions.append(_read(transformer, group, text, states))
    return predictions


def _see(
    vision: dict[tuple[int, int], VisionForward], groups: Sequence[Group]
) -> dict[int, tuple[Tensor, tuple[Tensor, ...]]]:
    """Visual tokens and deepstack features by group index; pictures of one grid are encoded together."""
    seen = {}
    for grid, encode in vision.items():
        having = [i for i, group in enumerate(groups) if group.frames is not None and group.frame_grid == grid]
        if having:
            tokens, deep = encode(torch.cat([groups[i].frames for i in having]))
            sizes = [groups[i].frame_slots.numel() for i in having]
            layers = zip(*(features.split(sizes) for features in deep), strict=True)
            seen |= {i: (part, of) for i, part, of in zip(having, tokens.split(sizes), layers, strict=True)}
    return seen


def _media_tokens(transformer: Cosmos3OmniTransformer, group: Group) -> tuple[Tensor, Tensor, Tensor | None]:
    """Embedded generation tokens ``[B, G, D]``, their positions ``[3, B*G]`` and the mask of what they may see."""
    batch, length = group.input_ids.shape
    device = group.input_ids.device
    if group.vision is None:
        return (
            torch.zeros(batch, 0, transformer.config.hidden_size, device=device),
            torch.zeros(3, 0, device=device),
            None,
        )

    # The library keeps the time embedder in float32 even when all else is bfloat16.
    with torch.autocast(device.type, enabled=False):
        time = transformer.time_proj(group.timesteps * transformer.config.timestep_scale)
        time = transformer.time_embedder(time.to(transformer.time_embedder.linear_1.weight.dtype))

    frames = group.vision.shape[2]
    tokens = transformer.proj_in(patchify(group.vision))
    cell = tokens.shape[1] // frames
    tokens = tokens + group.vision_noisy.repeat_interleave(cell, dim=1)[:, :, None] * time[:, None]
    parts, positions = [tokens], [group.vision_positions]
    seen = torch.arange(length, device=device) < group.lengths[:, None]
    visible = [seen, seen.new_ones(batch, tokens.shape[1])]
    if group.sound is not None:
        sound = transformer.audio_proj_in(group.sound) + transformer.audio_modality_embed
        parts.append(sound + time[:, None])
        positions.append(group.sound_positions)
        visible.append(group.sound_present[:, None].expand(-1, sound.shape[1]))
    if group.action is not None:
        action = _domain_linear(transformer.action_proj_in, group.action, group.domains)
        action = action + transformer.action_modality_embed
        parts.append(action + group.action_noisy[:, None, None] * time[:, None])
        positions.append(group.action_positions)
        visible.append(seen.new_ones(batch, action.shape[1]))

    relative = torch.cat(positions, dim=1)
    start = group.lengths + transformer.config.unified_3d_mrope_temporal_modality_margin
    places = relative[:, None].repeat(1, batch, 1)
    places[0] += start[:, None]
    return torch.cat(parts, dim=1), places.flatten(1), torch.cat(visible, dim=1)[:, None, None]


def _read(transformer: Cosmos3OmniTransformer, group: Group, text: Tensor, states: Tensor) -> Prediction:
    if group.vision is None:
        return Prediction(text)
    _, _, frames, height, width = group.vision.shape
    sizes = [frames * height // 2 * (width // 2)]
    sizes += [part.shape[1] for part in (group.sound, group.action) if part is not None]
    parts = iter(states.split(sizes, dim=1))
    prediction = Prediction(text, vision=unpatchify(transformer.proj_out(next(parts)), frames, height, width))
    if group.sound is not None:
        prediction.sound = transformer.audio_proj_out(next(parts))
    if group.action is not None:
        prediction.action = _domain_linear(transformer.action_proj_out, next(parts), group.domains)
    return prediction


def _domain_linear(linear: torch.nn.Module, tokens: Tensor, domains: Tensor) -> Tensor:
    """The library's ``DomainAwareLinear`` without its range check, which would read the ids back from the device."""
    weight = linear.fc(domains).view(-1, linear.input_size, linear.output_size)
    return torch.bmm(tokens.to(weight.dtype), weight) + linear.bias(domains)[:, None]
