"""All that a run remembers between its steps: data, model, buffer, and how far it has come."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ..data import check_outside, split
from ..embedding import embed
from ..learning import learner
from ..learning.augment import normalise
from ..learning.models import check_single, make_model
from ..learning.plan import generator_of, seed_of
from ..learning.resnet import draw_units
from ..learning.stack import check_stackable
from ..learning.step import masked
from ..learning.trainer import Engine, Episode, Trainer, load_model
from ..learning.uncertainty import uncertainty
from ..selection import Selection, select_per_class
from ..views.encoders import LEARNED
from .config import RunConfig
from .episode_views import EpisodeViews, Told
from .keeping import buffer_state, empty_buffer, told
from .results import Progress, RunFolder
from .shared import First, Shared

Chosen = Mapping[int | str, Selection]
SAVING_SHARE = 20  # a checkpoint is written when this many times as long has gone by as one took


class World:
    def __init__(
        self,
        config: RunConfig,
        folder: RunFolder,
        shared: Shared | None = None,
        on_epoch: Told | None = None,
        on_view: Told | None = None,
        engine: Engine | None = None,
    ) -> None:
        if config.device == "cuda" and not torch.cuda.is_available():
            raise ValueError("device is cuda, but torch sees no GPU; set it to cpu")
        self.config, self.folder, self.on_epoch = config, folder, on_epoch
        self.shared = shared or Shared()
        check_outside(config.data, folder.path)
        self.data = self.shared.data(config.data)
        folder.check_data(self.shared.content(config.data))
        self.episodes = split(self.data, config.data)
        self.learner = learner(config.learner, config.learning)
        self.model = make_model(
            config.model.name,
            self.data.classes,
            tuple(self.data.train_images.shape[1:]),
            config.model.width,
            generator_of(config.seed, "model"),
            config.model.initialisation,
        ).to(config.device)
        if config.train.stacked:
            for side in self.data.train_images.shape[2:]:
                check_stackable(self.learner, self.model, side, config.train.batch, config.device)
        self.trainer = Trainer(self.model, self.learner, config.train, self.shared.material(config), engine)
        self.buffer = empty_buffer(config, self.data.classes)
        self.views = EpisodeViews(config, self.data, folder, on_view, self.shared)
        self.views.check_cache(self.episodes)
        self.progress, self._resumed = Progress(), dict[str, Tensor]()
        self._saved = 0.0, 0.0  # when the last checkpoint was written, and the seconds that it took
        self._check_sizes()

    def _check_sizes(self) -> None:
        """Refuse batches and episodes that are too small or too large before anything is trained."""
        batch = self.config.train.batch
        learned = [name for name in self.config.used_views() if name in LEARNED]
        for number, episode in enumerate(self.episodes, start=1):
            count = len(episode.train_images)
            if count < batch:
                raise ValueError(f"train.batch must be at most {count}, the images of episode {number}, got {batch}")
            if count < 2 and learned:
                raise ValueError(
                    f"the view {learned[0]} is learned from 2 images or more, episode {number} has {count}"
                )
        apart = () if self.learner.name == "er" else self.learner.draws  # er takes new and replayed images together
        if 1 in (batch, *apart):
            check_single(self.model, tuple(self.data.train_images.shape[1:]))

    def begin(self) -> None:
        """Make the folder ready, and go on from its last state, if it has one."""
        self.folder.prepare()
        self.progress, self._resumed = self.folder.resume()
        for text in self.progress.warnings:
            warnings.warn(text, RuntimeWarning, stacklevel=3)
        if self._resumed:
            load_model(self.model, self._resumed)
            self.buffer.load_state_dict(buffer_state(self.buffer, self.progress.counts, self._resumed))
        self.views.previous = self._resumed.get("previous")

    # ------------------------------------------------------------ train

    def train(self, number: int) -> Generator[Trainer, float, None]:
        """The episode's epochs: each is asked for, to be trained alone or beside those of other runs.

        What is sent back is the epoch's mean loss. After it comes a checkpoint.
        """
        if self.progress.epoch == 0:
            self._look_before(number)
            if number > 0 and self.config.model.head == "grown":
                source = generator_of(self.config.seed, "head", number)
                draw_units(self.model, self.episodes[number].classes, source)
            if number > 0 and self.learner.holds_new_classes:
                self.keep(number, self._random_picks(number))  # replaced by the selection after training
        trainer = self.trainer
        trainer.begin(Episode(self._new(number), self._memory(number), self.seen(number), self._seed(number)))
        if self.progress.epoch:
            trainer.restore(self._resumed, self.progress.epoch)
        self._resumed = {}
        while trainer.epoch < self.config.train.epochs:
            with self.timed("train"):
                begin = time.perf_counter()
                loss = yield trainer
                spent = time.perf_counter() - begin
            self._after_epoch(number, loss, spent)

    def _after_epoch(self, number: int, loss: float, spent: float) -> None:
        trainer = self.trainer
        if not math.isfinite(loss):
            held = ", or leave out train.statistics" if trainer.holding else ""
            raise ValueError(
                f"the loss is {loss} after epoch {trainer.epoch} of episode {number + 1}; lower learning.rate{held}"
            )
        self.progress.epoch = trainer.epoch
        record = self._record(number, loss, spent)
        self.folder.record(record)
        if self._saving_pays():
            self.save(trainer.tensors())
        self._tell(record)

    def first(self) -> First:
        """The model after the first episode, for runs that agree on it."""
        tensors = {f"model.{name}": tensor.detach().cpu().clone() for name, tensor in self.model.state_dict().items()}
        return First(tensors, self.folder.records())

    def take_first(self, first: First) -> None:
        """The first episode as another run trained it."""
        self._look_before(0)
        load_model(self.model, first.tensors)
        self.progress.epoch = self.config.train.epochs
        self.progress.seconds.setdefault("train", 0.0)
        for record in first.records:
            self.folder.record({**record, "shared": True})
            self._tell({**record, "shared": True})

    def _tell(self, record: Mapping[str, Any]) -> None:
        if self.on_epoch is not None:
            self.on_epoch(record)

    def _seed(self, number: int) -> tuple[object, ...]:
        return (self.config.seed, "episode", number)

    def seen(self, number: int) -> Tensor:
        """(classes,) which have come by episode `number`."""
        mask = torch.zeros(self.data.classes, dtype=torch.bool)
        for episode in self.episodes[: number + 1]:
            mask[list(episode.classes)] = True
        return mask.to(self.config.device)

    def _new(self, number: int) -> Tensor:
        """Rows of what is trained on: the new images, or all so far for the joint learner."""
        part = self.episodes[: number + 1] if self.learner.joint else self.episodes[number : number + 1]
        return torch.cat([episode.train_rows for episode in part])

    def _memory(self, number: int) -> Tensor:
        """Rows of what may be replayed: none in the first episode, and none for a learner that draws nothing."""
        if number == 0 or not len(self.buffer) or not self.learner.draws:
            return torch.zeros(0, dtype=torch.int64)
        held, _ = self.buffer.contents()
        rows: Tensor = held["row"]
        return rows

    def _random_picks(self, number: int) -> dict[int, list[int]]:
        """ER-ACE: random exemplars of the classes that are being learned, as many as the selection will keep."""
        labels = self.episodes[number].train_labels
        picks = {}
        for label, quota in self.buffer.quota(labels).items():
            rows = (labels == int(label)).nonzero().flatten()
            order = torch.randperm(len(rows), generator=generator_of(self.config.seed, "temporary", number, label))
            picks[int(label)] = rows[order[:quota]].tolist()
        return picks

    # ------------------------------------------------------------ select and keep

    def embed(self, number: int) -> dict[str, Tensor]:
        """The views of the episode's images."""
        with self.timed("embed"):
            return self.views.make(number, self.episodes[number], self.model, self.normalise)

    def _look_before(self, number: int) -> None:
        with self.timed("embed"):
            self.views.look_before(self.episodes[number], self.model, self.normalise)

    def select(self, number: int, views: dict[str, Tensor]) -> Chosen:
        """The selector's choice among the new images, class by class."""
        episode, method = self.episodes[number], self.config.method_and_view()[0]
        options = dict(self.config.options)
        with self.timed("select"):
            if method == "rainbow":
                images = episode.train_images.to(self.config.device)
                generator = generator_of(self.config.seed, "uncertainty", number)
                options["uncertainty"] = uncertainty(lambda batch: self.logits(batch, number), images, generator)
            return select_per_class(
                views,
                episode.train_labels,
                self.buffer.quota(episode.train_labels),
                method=method,
                generator=seed_of(self.config.seed, "select", number) >> 1,
                **options,
            )

    def keep(self, number: int, chosen: Mapping[Any, Any]) -> None:
        episode = self.episodes[number]
        parts = {"image": episode.train_images, "row": episode.train_rows}
        self.buffer.update(parts, episode.train_labels, chosen)

    # ------------------------------------------------------------ evaluate

    def normalise(self, images: Tensor) -> Tensor:
        return normalise(images, self.data.mean, self.data.std)

    def logits(self, images: Tensor, number: int) -> Tensor:
        """(n, classes) of images as they are, in eval mode, classes not yet seen masked."""
        outputs = embed(lambda batch: self.model(self.normalise(batch)).float(), images, model=self.model)
        return masked(outputs, self.seen(number))

    def evaluate(self, number: int) -> None:
        """A row of the accuracy matrix: each episode so far, over all classes seen."""
        with self.timed("evaluate"):
            row = []
            for episode in self.episodes[: number + 1]:
                found = self.logits(episode.test_images, number).argmax(1).cpu()
                row.append(float((found == episode.test_labels).double().mean()))
        self.progress.accuracy.append(row)

    # ------------------------------------------------------------ saving and telling

    def next_episode(self, chosen: Chosen) -> None:
        rows = self.episodes[self.progress.episode].train_rows
        self.progress.picks.append({str(label): told(selection, rows) for label, selection in chosen.items()})
        self.progress.views.append(self.views.told)
        self.views.previous = None
        self.progress.episode += 1
        self.progress.epoch = 0
        if self._saving_pays():
            self.save({f"model.{name}": tensor for name, tensor in self.model.state_dict().items()})

    def _saving_pays(self) -> bool:
        """Whether checkpoints stay below a twentieth of the time, those of all runs side by side together."""
        ended, took = self._saved
        return time.perf_counter() - ended >= SAVING_SHARE * took * max(1, self.shared.alive)

    def save(self, tensors: Mapping[str, Tensor]) -> None:
        begin = time.perf_counter()
        state = self.buffer.state_dict()
        self.progress.counts = [list(pair) for pair in state["counts"]]
        held = {f"buffer.{name}": tensor for name, tensor in state["data"].items()}
        if self.views.previous is not None:
            held["previous"] = self.views.previous
        self.folder.save(self.progress, {**tensors, **held, "buffer-generator": state["generator"]})
        self._saved = time.perf_counter(), time.perf_counter() - begin

    def _record(self, number: int, loss: float, spent: float) -> dict[str, Any]:
        trainer = self.trainer
        return {
            "episode": number + 1,
            "epoch": trainer.epoch,
            "loss": loss,
            "rate": trainer.rate(trainer.epoch - 1),
            "episodes": len(self.episodes),
            "steps a second": trainer.steps / max(spent, 1e-9),
            "seconds": self.progress.seconds["train"],
            "average accuracies": [sum(row) / len(row) for row in self.progress.accuracy],
        }

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        spent = time.perf_counter() - begin
        self.progress.seconds[phase] = self.progress.seconds.get(phase, 0.0) + spent
