"""Families of metrics in the text format of Prometheus, with those of the process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from wonder_server.ports.metrics import Family, Histogram


class Exposition(Collector):
    """Renders the families of one read."""

    def __init__(self) -> None:
        self._families: Iterable[Family] = ()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def render(self, families: Iterable[Family]) -> bytes:
        """Return the families, and then those of the process, as text."""
        self._families = families
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the current `render`."""
        return map(_metric, self._families)


def _metric(family: Family) -> Metric:
    if family.kind == "histogram":
        histogram = HistogramMetricFamily(family.name, family.help, labels=family.labels)
        for labels, sample in family.samples:
            assert isinstance(sample, Histogram), "the kind says so"
            buckets = [(_bound(bound), float(count)) for bound, count in sample.cumulative()]
            histogram.add_metric(labels, buckets, sample.total_s)
        return histogram
    make: Callable[..., CounterMetricFamily | GaugeMetricFamily]
    make = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = make(family.name, family.help, labels=family.labels)
    for labels, sample in family.samples:
        assert not isinstance(sample, Histogram), "the kind says so"
        metric.add_metric(labels, sample)
    return metric


def _bound(seconds: float) -> str:
    return "+Inf" if seconds == float("inf") else repr(float(seconds))
