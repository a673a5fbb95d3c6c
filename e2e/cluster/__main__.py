"""The commands of the local cluster: python -m e2e.cluster up | down | status | kubeconfig | image | binary."""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from e2e.cluster import binaries, cluster, images, release, targets, teardown
from e2e.cluster.cluster import Cluster, kubectl
from e2e.cluster.console import Steps
from e2e.cluster.errors import ClusterError
from e2e.cluster.machine import snapshot
from e2e.cluster.paths import KUBECONFIG
from e2e.cluster.record import Record, changing
from e2e.cluster.targets import Target

MOST_NODES = 5


def main(arguments: list[str] | None = None) -> int:
    """Run one command; a failure says what is wrong and what mends it."""
    options = _parser().parse_args(arguments)
    try:
        options.command(options)
    except ClusterError as error:
        print(f"\nerror: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstopped; `make up` goes on from here, `make down` removes what is there", file=sys.stderr)
        return 130
    return 0


def up(options: argparse.Namespace) -> None:
    """A cluster, the platform and the samples, in order; what is there already stays."""
    if not 1 <= options.nodes <= MOST_NODES:
        raise ClusterError(f"NODES={options.nodes}: a cluster has 1 to {MOST_NODES} nodes", "make up NODES=2")
    began = time.monotonic()
    steps = Steps()
    with changing(), steps.shown(), _aside() as aside:
        local_runs = Cluster.running() is not None
        choice = targets.choose(options.cluster, local_runs=local_runs, kind_can_pull=targets.kind_can_pull)
        operator_images = {name: images.operator_image(name) for name in release.operators()}
        if choice == "local":
            target = _start_local(options.nodes, steps, aside, [*operator_images.values(), *images.operand_images()])
        elif choice == "kind":
            with steps.step("start kind's cluster"):
                target = targets.start_kind(options.nodes)
        else:
            target = targets.current()
        tags = _tags(target, operator_images, options.image, steps)
        with steps.step("install the platform (helm)"):
            release.install(target.kubeconfig, tags)
        with steps.step("apply the samples and wait until they are Ready"):
            release.apply_samples(target.kubeconfig, steps.say)
    _say_what_next(steps, target, time.monotonic() - began)


@contextmanager
def _aside() -> Iterator[ThreadPoolExecutor]:
    """A thread for work beside the main line; when that fails, what has not begun there is dropped."""
    aside = ThreadPoolExecutor(1)
    try:
        yield aside
    finally:
        aside.shutdown(cancel_futures=True)


def _start_local(nodes: int, steps: Steps, aside: ThreadPoolExecutor, wanted: list[images.Image]) -> Target:
    """Start this machine's cluster while its images are built aside, and load them."""
    cluster.make_room(nodes, steps)

    def build(image: images.Image) -> Path:
        if image.archive.exists():
            return image.archive
        with steps.step(f"build the image {image.tag}"):
            return images.build(image)

    building = [aside.submit(build, image) for image in wanted]
    for program in binaries.ALL:
        if not binaries.is_built(program):
            with steps.step(f"build {', '.join(program.names)}"):
                binaries.build(program)
    running = cluster.start(nodes, steps)
    archives = [future.result() for future in building]
    with steps.step("load the images into the nodes"):
        running.load_images(archives)
    return Target("local", running.kubeconfig)


def _tags(target: Target, operator_images: dict[str, images.Image], given: str | None, steps: Steps) -> dict[str, str]:
    """The name of each operator's image on the cluster, brought there now if it takes them from this machine."""
    if given:
        return dict.fromkeys(operator_images, given)
    if target.name == "current":
        raise ClusterError(
            "CLUSTER=current: its nodes must be able to pull the operator's image, and none is named",
            "make docker-build docker-push IMG=…, then make up CLUSTER=current IMG=… (one operator)",
        )
    if target.load:
        for image in operator_images.values():
            with steps.step(f"build the image {image.tag} and load it"):
                target.load(image)
    return {name: image.tag for name, image in operator_images.items()}


def _say_what_next(steps: Steps, target: Target, total: float) -> None:
    steps.table(
        f"\nUp in {total:.0f} s ({target.name} cluster)",
        ["step", "seconds"],
        [[name, f"{took:.1f}"] for name, took in steps.times if took >= 0.1],
    )
    steps.say(f"""
Next:
  export KUBECONFIG={target.kubeconfig or os.environ.get("KUBECONFIG", "~/.kube/config")}
  kubectl get platform                        # kubectl: .venv/bin/kubectl, if you have none
  kubectl describe platform                   # conditions and events tell the story
  kubectl scale memcached/<name> --replicas=3
  make status, make test-e2e, make down""")


def down(_: argparse.Namespace) -> None:
    """Take down this machine's cluster and kind's of our name, and say if anything stayed."""
    with changing():
        record = Record.load()
        targets.stop_kind()
        if not teardown.take_down():
            print("no cluster here")
            return
        left = snapshot.differences(record.before, snapshot.take()) if record and record.before else []
        ours = [line for line in left if ": new: " in line and teardown.is_ours(line)]
        if ours:
            raise ClusterError("taken down, but left behind:\n  " + "\n  ".join(ours), "remove it by hand, and tell us")
        print("the cluster is gone; binaries and images stay in the cache")


def status(_: argparse.Namespace) -> None:
    """What is up."""
    record = Record.load()
    if record and Cluster.running() is None:
        dead = [process for process in record.processes if not process.alive]
        names = ", ".join(f"{process.name} (see {process.log})" for process in dead) or "it did not come up whole"
        raise ClusterError(f"the local cluster is broken: {names}", "make up starts it anew")
    config = _kubeconfig_path()
    if config is None and not os.environ.get("KUBECONFIG"):
        raise ClusterError("no cluster of this clone is up, and KUBECONFIG names no other", "make up")
    print(f"kubeconfig {config or 'as kubectl finds it'}\n")
    for wanted in ("nodes", "pods --all-namespaces", "platform --all-namespaces"):
        try:
            print(kubectl("get", *wanted.split(), "--output=wide", kubeconfig=config))
        except ClusterError as error:
            print(f"{wanted}: {error.what}\n")


def kubeconfig(_: argparse.Namespace) -> None:
    """Print the path of the kubeconfig of this clone's cluster."""
    path = _kubeconfig_path()
    if path is None:
        raise ClusterError("no cluster of this clone is up", "make up")
    print(path)


def _kubeconfig_path() -> Path | None:
    running = Cluster.running()
    if running:
        return running.kubeconfig
    return KUBECONFIG if KUBECONFIG.exists() else None


def image(options: argparse.Namespace) -> None:
    """Build or push an operator's image where there is no docker; a local cluster that runs gets what was built."""
    if options.action == "push":
        images.push(options.names[-1])
        return
    operator, tag = options.names
    archive = images.build(images.operator_image(operator, tag))
    running = Cluster.running()
    if running:
        running.load_images([archive])
    print(f"{tag}: {archive}{', loaded into the cluster' if running else ''}")


def binary(options: argparse.Namespace) -> None:
    """Print the path of one of the cluster's programs, built first if need be."""
    print(binaries.find(options.name))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m e2e.cluster", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="command")
    starting = commands.add_parser("up", help="a cluster with the platform and the samples")
    starting.add_argument("--cluster", default="auto", help=" | ".join(targets.CHOICES))
    starting.add_argument("--nodes", type=int, default=2, help=f"nodes, 1 to {MOST_NODES}")
    starting.add_argument("--image", help="the operator's image, instead of building it")
    starting.set_defaults(command=up)
    for name, command in (("down", down), ("status", status), ("kubeconfig", kubeconfig)):
        commands.add_parser(name, help=(command.__doc__ or "").partition("\n")[0]).set_defaults(command=command)
    building = commands.add_parser("image", help="build OPERATOR TAG | push TAG, by buildah")
    building.add_argument("action", choices=("build", "push"))
    building.add_argument("names", nargs="+", metavar="OPERATOR TAG | TAG")
    building.set_defaults(command=image)
    finding = commands.add_parser("binary", help="print the path of a program of the cluster")
    finding.add_argument("name", choices=sorted(name for program in binaries.ALL for name in program.names))
    finding.set_defaults(command=binary)
    return parser


if __name__ == "__main__":
    sys.exit(main())
