"""The Reasoner's published tasks: what each takes, how its prompt is put, how it samples and how its answer is read.

One catalogue drives the page, the API, the tests and Pico's training. Prompt forms follow NVIDIA's cookbook for the
Cosmos 3 Reasoner in substance (keys, time formats, option letters); the wording is ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

SYSTEM = "You are a helpful assistant."

REASONING = (
    "Think step by step first. Put your thoughts between <think> and </think>, then give the final answer right after "
    "the closing tag."
)
"""Appended to the user's text to turn reasoning on; there is no switch in the chat template."""

MEDIA = ("any", "image", "video")
"""What a task takes: any media or none, pictures, or a clip."""


@dataclass(frozen=True)
class Sampling:
    """Sampling settings; ``presence_penalty`` counts a token once, however often it was written."""

    temperature: float
    top_p: float
    top_k: int
    repetition_penalty: float
    presence_penalty: float


DIRECT = Sampling(temperature=0.7, top_p=0.8, top_k=20, repetition_penalty=1.0, presence_penalty=1.5)
THINKING = Sampling(temperature=0.6, top_p=0.95, top_k=20, repetition_penalty=1.0, presence_penalty=0.0)
"""The two published presets, without and with reasoning."""


@dataclass(frozen=True)
class Task:
    """One task.

    Attributes:
        name: Its id.
        title: For people.
        media: One of `MEDIA`.
        form: The prompt with ``{text}`` for what the person typed; ``{text}`` alone sends it as it is.
        asks_for: Label of the text field, empty when the task needs no text.
        example: What somebody might type there.
        reads: How the answer is read: ``text``, ``boxes``, ``points``, ``spans``, ``trajectory``, ``choice``,
            ``subjects`` or ``prompt``.
        hint: One sentence for people.
        reasoning: Whether thinking is on to begin with.
        max_new_tokens: Room for the answer to begin with.
        choices: Option letter to its meaning.
        public: Offered on the page.
    """

    name: str
    title: str
    media: str
    form: str = "{text}"
    asks_for: str = ""
    example: str = ""
    reads: str = "text"
    hint: str = ""
    reasoning: bool = False
    max_new_tokens: int = 512
    choices: Mapping[str, str] = field(default_factory=dict)
    public: bool = True


_SPANS_SECONDS = '[{{"start": 0.0, "end": 0.0, "caption": "..."}}]'
_SPANS_CLOCK = '[{{"start": "mm:ss.ff", "end": "mm:ss.ff", "caption": "..."}}]'

_ALL = (
    Task(
        "chat",
        "Chat",
        "any",
        asks_for="Question",
        example="How many objects are there?",
        hint="Ask anything about a picture, a clip, or neither.",
    ),
    Task(
        "image-caption",
        "Describe a picture",
        "image",
        "Describe this image in detail.",
        hint="A full description of one picture.",
    ),
    Task(
        "video-caption",
        "Describe a video",
        "video",
        "Describe this video in detail.",
        hint="A full description of what happens.",
    ),
    Task(
        "grounding",
        "Find with boxes",
        "image",
        "Locate the accurate bounding box of {text}. Return JSON with keys bbox_2d and label.",
        asks_for="What to find",
        example="every cube",
        reads="boxes",
        hint="Draws a box around each thing found.",
    ),
    Task(
        "pointing",
        "Point at",
        "image",
        "Point to {text}. Return JSON with keys point_2d and label.",
        asks_for="What to point at",
        example="the red ball",
        reads="points",
        hint="Marks each thing with a point.",
    ),
    Task(
        "temporal-localization",
        "Segments in seconds",
        "video",
        "List all action segments of this video. Times are in seconds. Return JSON of the form " + _SPANS_SECONDS + ".",
        reads="spans",
        max_new_tokens=1024,
        hint="Every action with its start and end.",
    ),
    Task(
        "event-timeline",
        "Event timeline",
        "video",
        "List the notable events of this video. Times are mm:ss.ff. Return JSON of the form " + _SPANS_CLOCK + ".",
        reads="spans",
        max_new_tokens=1024,
        hint="Notable events on the clip's clock; click one to go there.",
    ),
    Task(
        "timestamp-query",
        "When does it happen?",
        "video",
        'When is "{text}" shown? Times are mm:ss.ff. Return JSON of the form '
        '{{"start": "mm:ss.ff", "end": "mm:ss.ff"}}.',
        asks_for="What to look for",
        example="the ball hits the table",
        reads="spans",
        hint="Finds the stretch in which something happens.",
    ),
    Task(
        "interval-question",
        "What happens between?",
        "video",
        "What happens between {text} in this video?",
        asks_for="Start and end",
        example="00:00.50 and 00:01.20",
        hint="Describes a stretch of the clip.",
    ),
    Task(
        "next-action",
        "Next action",
        "video",
        "What can be the next immediate action? Answer in one sentence.",
        reasoning=True,
        max_new_tokens=1024,
        hint="Embodied reasoning: what a robot should do next.",
    ),
    Task(
        "driving-next-action",
        "Drive: next action",
        "video",
        "You are an autonomous vehicle planning system. Observe the critical objects in the scene, then explain the "
        "next action and trajectory.",
        max_new_tokens=1024,
        hint="What the car should do next, and why.",
    ),
    Task(
        "robot-planning",
        "Robot plan",
        "image",
        "The task is: {text}. Produce a plan of subtasks as a numbered list.",
        asks_for="Task",
        example="put the red ball next to the blue cube",
        max_new_tokens=1024,
        hint="Breaks a task into steps.",
    ),
    Task(
        "assisted-next-action",
        "Assist: next step",
        "video",
        "{text} What is the next action? Answer with a short phrase.",
        asks_for="Overall task and current step",
        example='The overall task is "tidy the table". The current step is "pick up the cube".',
        reasoning=True,
        max_new_tokens=1024,
        hint="The next step of a task somebody is busy with.",
    ),
    Task(
        "common-sense",
        "Common sense",
        "video",
        asks_for="Question",
        example="Will the ball reach the wall? Why?",
        reasoning=True,
        max_new_tokens=1024,
        hint="A yes, no or why question about the physical world.",
    ),
    Task(
        "describe-anything",
        "Describe marked things",
        "image",
        "Describe the notable attributes of all marked subjects in this image. Return JSON of the form "
        '[{{"subject_id": "1", "category": "...", "caption": "..."}}].',
        reads="subjects",
        max_new_tokens=1024,
        hint="The picture carries numbered marks; each one is described.",
    ),
    Task(
        "trajectory",
        "Gripper trajectory",
        "image",
        'The task is "{text}". Give the 2D trajectory of the end effector in pixel space. Return JSON of the form '
        '[{{"point_2d": [x, y], "label": "gripper trajectory"}}].',
        asks_for="Task",
        example="move to the red ball",
        reads="trajectory",
        reasoning=True,
        max_new_tokens=1024,
        hint="Action chain of thought: draws the path of the gripper.",
    ),
    Task(
        "driving-chain-of-thought",
        "Drive: chain of thought",
        "video",
        "Name the objects that are critical for safe navigation and think step by step, then answer with the "
        "manoeuvre as Category - subcategory.",
        reads="choice",
        reasoning=True,
        max_new_tokens=1024,
        hint="Ends in a manoeuvre label.",
    ),
    Task(
        "physical-plausibility",
        "Physically possible?",
        "video",
        "Is this video physically possible, given object permanence, shape constancy and continuous motion? Ignore "
        "the quality of the rendering. Options: (A) Possible (B) Impossible. Answer with one letter.",
        reads="choice",
        choices={"A": "Possible", "B": "Impossible"},
        hint="Does the clip respect the laws of physics?",
    ),
    Task(
        "situation-understanding",
        "Situation",
        "video",
        "What is going on in this video, and what happens next?",
        hint="What somebody or something is doing, and what comes next.",
    ),
    Task(
        "upsample",
        "Upsample a prompt",
        "any",
        asks_for="Prompt",
        reads="prompt",
        max_new_tokens=4096,
        public=False,
        hint="Rewrites a short prompt as a structured one for the Generator.",
    ),
)

TASKS: Mapping[str, Task] = {task.name: task for task in _ALL}


def prompt_for(task: str, text: str = "", reasoning: bool = False) -> str:
    """The text sent to the Reasoner.

    Args:
        task: A name in `TASKS`.
        text: What the person typed; ignored by tasks that ask for nothing.
        reasoning: Append the request for thinking.
    """
    prompt = TASKS[task].form.format(text=text.strip())
    return f"{prompt}\n{REASONING}" if reasoning else prompt
