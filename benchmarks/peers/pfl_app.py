"""The same federation in Apple's pfl: FederatedAveraging on its simulated backend, in one process."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from pfl.aggregate.simulate import SimulatedBackend  # type: ignore[import-not-found]
from pfl.algorithm.base import NNAlgorithmParams  # type: ignore[import-not-found]
from pfl.algorithm.federated_averaging import FederatedAveraging  # type: ignore[import-not-found]
from pfl.callback.base import TrainingProcessCallback  # type: ignore[import-not-found]
from pfl.data.federated_dataset import FederatedDataset  # type: ignore[import-not-found]
from pfl.data.pytorch import PyTorchTensorDataset  # type: ignore[import-not-found]
from pfl.data.sampling import get_user_sampler  # type: ignore[import-not-found]
from pfl.hyperparam.base import NNTrainHyperParams  # type: ignore[import-not-found]
from pfl.metrics import Metrics  # type: ignore[import-not-found]
from pfl.model.pytorch import PyTorchModel  # type: ignore[import-not-found]
from torch import Tensor, nn

from benchmarks.peers import work


class Counting(nn.Module):
    """The network with the two methods that pfl asks for; counts what it is trained on."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.total, self.steps = torch.zeros(()), 0

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """What a local step minimizes."""
        loss = work.loss_of(self.net, images, labels)
        self.total += loss.detach()
        self.steps += 1
        return loss

    def metrics(self, *_batch: Tensor) -> dict[str, Any]:
        """Evaluate nothing, though pfl asks for it around the first round."""
        return {}


class Clock(TrainingProcessCallback):  # type: ignore[misc]
    """Reports every round as it ends."""

    def __init__(self, report: work.Report, model: Counting) -> None:
        self.report, self.model = report, model

    def on_train_begin(self, *, model: Any) -> Any:
        """The first round begins."""
        self.report.begin()
        return Metrics()

    def after_central_iteration(self, aggregate_metrics: Any, model: Any, *, central_iteration: int) -> Any:
        """A round is over, and training goes on."""
        self.report.round_ended()
        self.report.loss = float(self.model.total) / self.model.steps
        self.report.steps += self.model.steps
        self.model.total, self.model.steps = torch.zeros(()), 0
        return False, Metrics()


def main() -> None:
    """Run the rounds and report."""
    arguments = work.arguments()
    torch.set_num_threads(arguments.threads)
    report, model = work.Report(), Counting(work.network())
    visits = itertools.count()

    def examples(client: int) -> Any:
        """The examples of a client in the order in which this round takes them: as one epoch of ``steps`` batches."""
        images, labels = work.data_of(client)
        rows = work.batches(client, 1 + next(visits) // work.CLIENTS, arguments.steps).flatten()
        return PyTorchTensorDataset((images[rows], labels[rows]))

    federation = FederatedDataset(examples, get_user_sampler("minimize_reuse", list(range(work.CLIENTS))))
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=arguments.rounds,
            evaluation_frequency=arguments.rounds,
            train_cohort_size=work.CLIENTS,
            val_cohort_size=None,
        ),
        SimulatedBackend(training_data=federation, val_data=federation),
        PyTorchModel(
            model,
            local_optimizer_create=lambda _parameters, lr: work.optimizer(model.net),
            central_optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
        ),
        NNTrainHyperParams(
            local_batch_size=work.BATCH,
            local_num_epochs=1,
            local_learning_rate=work.LR,
            local_max_grad_norm=work.CLIP,
        ),
        callbacks=[Clock(report, model)],
        send_metrics_to_platform=False,
    )
    report.write(arguments.report)


if __name__ == "__main__":
    main()
