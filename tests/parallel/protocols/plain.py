"""The protocols whose workers stay in step, once more: W serial networks trained one after another, in plain NumPy.

Nothing of `parallel/protocols` is used here. A protocol is a function of a `Run`, whose `x` holds the parameters of the
workers, one in each row. The samples of a worker are a list with one index array for each step.
"""

import numpy as np

from gridgrad.nn import LOSSES
from gridgrad.nn.device import to_device, to_host
from gridgrad.parallel.training.steps import minibatch_indices


def in_shares(count, batch_size, workers, steps):
    """Each worker's part of each global minibatch."""
    whole = [minibatch_indices(count, batch_size, 0, step)[0] for step in range(steps)]
    return [[np.array_split(indices, workers)[w] for indices in whole] for w in range(workers)]


def in_stripes(count, batch_size, workers, steps):
    """The minibatches of workers that train on the samples that they store: each sample of a step is another worker's."""
    found, per_epoch = [[] for _ in range(workers)], -(-count // batch_size)
    for step in range(steps):
        if step % per_epoch == 0:
            order, dealt = minibatch_indices(count, count, 0, step // per_epoch)[0].tolist(), 0
            stripes = np.array_split(np.arange(count), workers)
            left = [[sample for sample in order if sample in stripe] for stripe in stripes]
        given = [[] for _ in range(workers)]
        for _ in range(min(batch_size, count - dealt)):
            given[dealt % workers].append(left[dealt % workers].pop(0))
            dealt += 1
        for mine, some in zip(found, given, strict=True):
            mine.append(np.array(some, np.int64))
    return found


class Run:
    """Serial networks that train on the samples of the workers. The steps are 0 to `steps` - 1.

    build: returns a serial network. indices: a list for each worker. data: (x, y). lr: a function of the step.
    """

    def __init__(self, build, indices, data, lr, momentum):
        self.nets = [build() for _ in indices]
        for w, net in enumerate(self.nets):
            net.allocate()
            net.seed += w
        self.x = np.stack([to_host(net.params) for net in self.nets])
        self.velocity = np.zeros_like(self.x)
        self.indices, self.data, self.lr, self.momentum = indices, data, lr, momentum
        self.samples = np.array([[len(one) for one in mine] for mine in indices]).T  # by step and worker
        self.steps, self.workers = self.samples.shape
        self.loss = LOSSES["cross-entropy"]()

    def local(self, step, pull=None):
        """A local step of each worker that has samples. pull: is added to the gradients."""
        for w, net in enumerate(self.nets):
            mine = self.indices[w][step]
            if not len(mine):
                continue
            net.params[:], net.step, net.context.training = to_device(self.x[w]), step, True
            outputs = net.forward(to_device(self.data[0][mine]), net.context)
            self.loss.forward(outputs, to_device(self.data[1][mine]), net.context)
            net.backward(self.loss.backward(net.context), net.context)
            gradient = to_host(net.grads).copy() if pull is None else to_host(net.grads) + pull[w]
            self.velocity[w] = self.momentum * self.velocity[w] + gradient
            self.x[w] -= self.lr(step) * self.velocity[w]

    def mean(self, rows, first, stop):
        """The mean of rows, weighted by the samples of the steps from `first` to `stop` - 1."""
        return np.average(rows, axis=0, weights=self.samples[first:stop].sum(axis=0))

    def state(self):
        """What all workers have at the end, with buffers that are averaged: a state_dict."""
        assert np.ptp(self.x, axis=0).max(initial=0) < 1e-12
        for w, net in enumerate(self.nets):
            net.params[:] = to_device(self.x[w])
        states = [net.state_dict() for net in self.nets]
        weights = self.samples.sum(axis=0) / self.samples.sum()
        return {name: sum(w * state[name] for w, state in zip(weights, states, strict=True)) for name in states[0]}


def local(run, period, start=0):
    last = 0
    for t in range(run.steps):
        run.local(t)
        if t < start or (t + 1 - start) % period == 0 or t + 1 == run.steps:
            run.x[:] = run.mean(run.x, last, t + 1)
            last = t + 1
        yield


def slowmo(run, period, beta, rate=1.0):
    agreed, u, last = run.x[0].copy(), 0.0, 0
    for t in range(run.steps):
        run.local(t)
        if (t + 1) % period == 0 or t + 1 == run.steps:
            mean, gamma = run.mean(run.x, last, t + 1), run.lr(t)
            if gamma > 0:
                u = beta * u + (agreed - mean) / gamma
                agreed = agreed - rate * gamma * u
            else:
                agreed = mean
            run.x[:], last = agreed, t + 1
        yield


def diloco(run, period, lr=0.7, momentum=0.9):
    agreed, v, last = run.x[0].copy(), 0.0, 0
    for t in range(run.steps):
        run.local(t)
        if (t + 1) % period == 0 or t + 1 == run.steps:
            gradient = agreed - run.mean(run.x, last, t + 1)
            v = momentum * v + gradient
            agreed = agreed - lr * (gradient + momentum * v)
            run.x[:], last = agreed, t + 1
        yield


def streaming(run, period, cuts, lr=0.7, momentum=0.9):
    """cuts: where each fragment begins; the last one ends with the parameters."""
    parts = [slice(*pair) for pair in zip(cuts, [*cuts[1:], run.x.shape[1]], strict=True)]
    agreed, v, last = run.x[0].copy(), np.zeros(run.x.shape[1]), [0] * len(parts)
    travelling = None

    def arrive():
        if travelling:
            part, sent, mean = travelling
            gradient = agreed[part] - mean
            v[part] = momentum * v[part] + gradient
            agreed[part] -= lr * (gradient + momentum * v[part])
            run.x[:, part] += agreed[part] - sent

    for t in range(run.steps):
        run.local(t)
        for f, part in enumerate(parts):
            if (t + 1) % period == (f + 1) * period // len(parts) % period:
                arrive()
                travelling = part, run.x[:, part].copy(), run.mean(run.x[:, part], last[f], t + 1)
                last[f] = t + 1
        if t + 1 == run.steps:
            arrive()
            for f, part in enumerate(parts):
                if last[f] < run.steps:
                    travelling = part, run.x[:, part].copy(), run.mean(run.x[:, part], last[f], run.steps)
                    arrive()
            run.x[:] = agreed
        yield


def easgd(run, period, alpha):
    centre = run.x[0].copy()
    for t in range(run.steps):
        apart = run.x - centre if t % period == 0 else np.zeros_like(run.x)
        run.local(t)
        run.x -= alpha * apart
        centre = centre + alpha * apart.sum(axis=0)
        if t + 1 == run.steps:
            run.x[:] = centre
        yield


def admm(run, period, rho):
    z, u, last = run.x[0].copy(), np.zeros_like(run.x), 0
    for t in range(run.steps):
        run.local(t, rho * (run.x - z + u))
        if (t + 1) % period == 0 or t + 1 == run.steps:
            z = run.mean(run.x + u, last, t + 1)
            took_part = run.samples[last : t + 1].sum(axis=0) > 0
            u[took_part] += (run.x - z)[took_part]
            last = t + 1
        if t + 1 == run.steps:
            run.x[:] = z
        yield


def sgp(run):
    workers = run.workers
    push, weight = run.x.copy(), np.ones(workers)
    for t in range(run.steps):
        before = run.x.copy()
        run.local(t)
        push += run.x - before
        hop = 2 ** (t % int(np.ceil(np.log2(workers)))) if workers > 1 else 0
        sent, weights = push / 2, weight / 2
        push, weight = sent.copy(), weights.copy()
        for w in range(workers):
            push[(w + hop) % workers] += sent[w]
            weight[(w + hop) % workers] += weights[w]
        run.x[:] = push / weight[:, None]
        if t + 1 == run.steps:
            run.x[:] = push.sum(axis=0) / weight.sum()
        yield


def parallel_sgd(run, per_epoch=None):
    last = 0
    for t in range(run.steps):
        run.local(t)
        if per_epoch and (t + 1) % per_epoch == 0 or t + 1 == run.steps:
            run.x[:] = run.mean(run.x, last, t + 1)
            last = t + 1
        yield
