"""Command line of the local cluster: python -m tools.local up | down | status | kubeconfig | image | build | binary."""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tools.local import binaries, cluster, images, registry, release, targets, teardown
from tools.local.cluster import Cluster, kubectl
from tools.local.console import Steps
from tools.local.environment import given_kubeconfig
from tools.local.errors import ClusterError
from tools.local.machine import network, snapshot
from tools.local.paths import KUBECONFIG, STATE
from tools.local.record import Record, changing
from tools.local.targets import Target

MAX_NODES = 5
NEWEST = binaries.kubernetes("newest")
LOCAL_REGISTRY = "local"
PROGRAMS = {
    binaries.COREDNS: "cluster DNS",
    binaries.PAUSE: "sandboxes of pods",
    binaries.HELM: "installs the charts",
}
"""Programs that the local cluster needs in addition to Kubernetes, and what for."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code; an error names the problem and its fix."""
    options = _parser().parse_args(arguments)
    try:
        options.command(options)
    except ClusterError as error:
        print(f"\nerror: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; `make up` continues, `make down` removes what was created", file=sys.stderr)
        return 130
    return 0


def up(options: argparse.Namespace) -> None:
    """Start a cluster, install the platform and apply the samples; existing parts are kept."""
    if not 1 <= options.nodes <= MAX_NODES:
        raise ClusterError(f"NODES={options.nodes} is out of range: 1 to {MAX_NODES} nodes", "make up NODES=2")
    _check_images(options)
    kubernetes = binaries.kubernetes(options.kubernetes)
    began = time.monotonic()
    steps = Steps()
    with changing(), steps.shown(), _background_worker() as background:
        local_runs = Cluster.running() is not None or options.registry == LOCAL_REGISTRY or kubernetes is not NEWEST
        choice = targets.choose(options.cluster, local_runs=local_runs, kind_can_pull=targets.kind_can_pull)
        _check_registry(options.registry, choice)
        _check_kubernetes(kubernetes, choice)
        operator_images = {name: images.operator_image(name) for name in release.operators()}
        local: Cluster | None = None
        if choice == "local":
            loaded = {} if options.registry else operator_images
            required = _required(loaded, options.versions)
            local, update_charts = _start_local(options.nodes, kubernetes, steps, background, required)
            target = Target("local", local.kubeconfig)
        elif choice == "kind":
            with steps.step(f"Start a kind cluster with {options.nodes} worker{'s' * (options.nodes > 1)}"):
                target, update_charts = targets.start_kind(options.nodes), release.update_charts
        else:
            target, update_charts = targets.current(), release.update_charts
        if options.registry == LOCAL_REGISTRY:
            _install_from_registry(target, steps)
        else:
            tags = _tags(target, operator_images, options, steps)
            with steps.step("Install the operators (Helm release platform)"):
                release.install(target.kubeconfig, tags, update_charts, release.local_values() if local else ())
            if local:
                steps.write(f"        {release.local_defaults()}")
        with steps.step("Apply the samples and wait until they are Ready"):
            if local:
                local.await_dns()  # the members of etcd need it; the operators do not
            release.apply_samples(target.kubeconfig, steps.write)
    _print_summary(steps, target, time.monotonic() - began)


@contextmanager
def _background_worker() -> Iterator[ThreadPoolExecutor]:
    """Run work in a background thread; when the main thread fails, work that has not started is cancelled."""
    background = ThreadPoolExecutor(1)
    try:
        yield background
    finally:
        background.shutdown(cancel_futures=True)


def _required(operator_images: Mapping[str, images.Image], versions: str) -> list[tuple[images.Image, str]]:
    """Return the images that the local cluster needs, each with the reason.

    Args:
        operator_images: image of each operator.
        versions: further versions of databases, separated by commas, or `all`.
    """
    samples = images.required_by("\n---\n".join(path.read_text() for path in release.sample_files()))
    further = images.operand_images() if versions == "all" else images.required_by(versions)
    sampled = {image.tag for image in samples}
    return [
        *((image, f"the {name} operator") for name, image in operator_images.items()),
        *((image, "the samples run it") for image in samples),
        *((image, f"VERSIONS={versions}") for image in further if image.tag not in sampled),
    ]


def _start_local(
    nodes: int,
    kubernetes: binaries.Program,
    steps: Steps,
    background: ThreadPoolExecutor,
    required: list[tuple[images.Image, str]],
) -> tuple[Cluster, Callable[[], None]]:
    """Start the local cluster while a background thread builds the images of its nodes and updates the charts.

    Returns:
        The cluster, and a function that returns when the charts are updated.
    """
    cluster.prepare(nodes, kubernetes, steps)

    def build(image: images.Image, reason: str) -> Path:
        if image.archive.exists():
            return image.archive
        with steps.step(f"Build image {image.tag} ({reason})"):
            return images.build(image)

    building = [background.submit(build, image, reason) for image, reason in required]
    _build_programs({kubernetes: "the control plane and the nodes", **PROGRAMS}, steps)
    # A running cluster needs the charts only if they or the images changed.
    running = Cluster.running() is not None
    update_charts = release.update_charts if running else background.submit(release.update_charts).result

    def archives() -> list[Path]:
        own = [images.build(image) for image in images.cluster_images()]
        return own + [future.result() for future in building]

    return cluster.start(nodes, kubernetes, steps, archives, background), update_charts


def _build_programs(programs: Mapping[binaries.Program, str], steps: Steps) -> None:
    """Build the programs that the cache lacks, those of one module together.

    Args:
        programs: programs, and what each is for.
    """
    modules: dict[Path, list[binaries.Program]] = {}
    for program in programs:
        if not binaries.is_built(program):
            modules.setdefault(program.directory, []).append(program)
    for missing in modules.values():
        what = ", ".join(f"{_described(program)} ({programs[program]})" for program in missing)
        with steps.step(f"Build from source: {what}"):
            binaries.build_module(missing)


def _described(program: binaries.Program) -> str:
    names = ", ".join(program.names)
    return f"Kubernetes {binaries.version(program)} with {names}" if program in binaries.KUBERNETES.values() else names


def _check_images(options: argparse.Namespace) -> None:
    """Refuse options that do not name an image for every operator.

    Raises:
        ClusterError: one image is given for all operators, or a tag without the images that it belongs to.
    """
    if options.image:
        raise ClusterError(
            f"IMG={options.image} names one image, but `make up` installs {', '.join(release.operators())}",
            "make up CLUSTER=current REGISTRY=registry.example.com/team TAG=0.2.0, which uses the images "
            "REGISTRY/NAME-operator:TAG; or install one operator: make deploy OPERATOR=redis IMG=…",
        )
    if options.tag and options.registry in ("", LOCAL_REGISTRY):
        raise ClusterError(
            f"TAG={options.tag} is the tag of images in REGISTRY, which names no registry of yours",
            f"make up CLUSTER=current REGISTRY=registry.example.com/team TAG={options.tag}",
        )


def _check_registry(given: str, choice: str) -> None:
    """Refuse a registry that the chosen cluster does not use.

    Raises:
        ClusterError: the combination makes no sense; the error names one that does.
    """
    if given == LOCAL_REGISTRY and choice != "local":
        raise ClusterError(
            f"REGISTRY=local is the registry of the local cluster, but the cluster is {choice}",
            "make up CLUSTER=local REGISTRY=local",
        )
    if given and given != LOCAL_REGISTRY and choice != "current":
        raise ClusterError(
            f"REGISTRY={given} is for CLUSTER=current; the images of the {choice} cluster come from this machine",
            f"make up CLUSTER=current REGISTRY={given}",
        )


def _check_kubernetes(kubernetes: binaries.Program, choice: str) -> None:
    """Refuse a version of Kubernetes for a cluster that brings its own.

    Raises:
        ClusterError: the version is not the default one, and the cluster is not the local one.
    """
    if kubernetes is not NEWEST and choice != "local":
        minor = f"1.{binaries.minor_version(kubernetes)}"
        raise ClusterError(
            f"{binaries.KUBERNETES_SETTING}={minor} is a version of the local cluster, but the cluster is {choice}",
            f"make up CLUSTER=local {binaries.KUBERNETES_SETTING}={minor}",
        )


def _install_from_registry(target: Target, steps: Steps) -> None:
    """Publish images and charts in a registry on this machine, and install from there as a user would."""
    # They import the models of all values of the charts, which takes a second that other commands need not wait.
    from tools.release import charts, publishing

    running = Cluster.running()
    assert running is not None, "the local cluster was started by this command"
    if not any(process.name == registry.NAME for process in running.record.processes):
        _build_programs({binaries.REGISTRY: "the operators are installed from it"}, steps)
        with steps.step(f"Start a registry at {registry.NODES_ADDRESS}"):
            running.record.add(registry.start(network.HOST_ADDRESS, STATE / "registry"))
    version = release.version()
    references = publishing.push_images(registry.NODES_ADDRESS, version, [images.native_architecture()], steps)
    helm = release.Helm(None)
    with steps.step("Package the charts with the images' digests and push them"), tempfile.TemporaryDirectory() as made:
        packaged = charts.package(version, references, Path(made), helm)
        platform = publishing.push_charts(packaged, registry.NODES_ADDRESS, helm)
    with steps.step(f"Install the operators from {platform} (Helm release platform)"):
        release.install_published(target.kubeconfig, platform, version, references, release.local_values())


def _tags(
    target: Target, operator_images: dict[str, images.Image], options: argparse.Namespace, steps: Steps
) -> dict[str, str]:
    """Return the image of each operator; build and load the images if the cluster gets them from this machine."""
    if options.registry:
        tag = options.tag or release.version()
        return {name: f"{options.registry}/{name}-operator:{tag}" for name in operator_images}
    if target.name == "current":
        raise ClusterError(
            "CLUSTER=current needs REGISTRY: the nodes must be able to pull the operators' images",
            "make push-images up CLUSTER=current REGISTRY=registry.example.com/team",
        )
    if target.load:
        for image in operator_images.values():
            with steps.step(f"Build image {image.tag} and load it into the nodes"):
                target.load(image)
    return {name: image.tag for name, image in operator_images.items()}


def _print_summary(steps: Steps, target: Target, total: float) -> None:
    steps.table(
        f"\nThe {target.name} cluster is up (took {total:.0f} s)",
        ["step", "seconds"],
        [[name, f"{took:.1f}"] for name, took in steps.times if took >= 0.1],
    )
    steps.write(f"""
Next:
  export KUBECONFIG={target.kubeconfig or os.environ.get("KUBECONFIG", "~/.kube/config")}
  kubectl get platform                        # every resource of the operators (.venv/bin/kubectl works too)
  kubectl describe platform                   # conditions and events explain the current state
  kubectl scale memcached/<name> --replicas=3
  make status, make test-e2e, make down""")


def down(options: argparse.Namespace) -> None:
    """Remove the local cluster and the kind cluster `platform`, and report leftovers."""
    if options.cluster == "current":
        raise ClusterError(
            "CLUSTER=current: make down removes only what make up created on this machine, not your cluster",
            "helm uninstall platform --namespace platform-system (CRDs, resources and their data stay)",
        )
    with changing():
        record = Record.load()
        targets.stop_kind()
        if not teardown.take_down():
            print("No local cluster is running.")
            return
        left = snapshot.differences(record.before, snapshot.take()) if record and record.before else []
        leftovers = [line for line in left if ": new: " in line and teardown.belongs_to_cluster(line)]
        if leftovers:
            raise ClusterError(
                "the cluster was removed, but these parts of it remain:\n  " + "\n  ".join(leftovers),
                "remove them by hand and report a bug",
            )
        print("The cluster was removed. Binaries and images stay in the cache.")


def status(_: argparse.Namespace) -> None:
    """Show the nodes, the pods and the resources of the operators."""
    is_current = os.environ.get("CLUSTER") == "current"
    record = Record.load()
    if record and Cluster.running() is None and not is_current:
        dead = [process for process in record.processes if not process.alive]
        names = ", ".join(f"{process.name} exited (log: {process.log})" for process in dead)
        raise ClusterError(
            f"the local cluster is broken: {names or 'it did not finish starting'}",
            "make up (removes this cluster and starts a new one)",
        )
    config = Path(given_kubeconfig()) if is_current else _kubeconfig_path()
    if config is None:
        raise ClusterError(
            "no cluster of this clone is running", "make up, or make status CLUSTER=current for that of KUBECONFIG"
        )
    print(f"kubeconfig: {config}\n")
    for resources in ("nodes", "pods --all-namespaces", "platform --all-namespaces"):
        try:
            print(kubectl("get", *resources.split(), "--output=wide", kubeconfig=config))
        except ClusterError as error:
            print(f"{resources}: {error.what}\n")


def kubeconfig(_: argparse.Namespace) -> None:
    """Print the path of the kubeconfig of this clone's cluster."""
    path = _kubeconfig_path()
    if path is None:
        raise ClusterError("no cluster of this clone is running", "make up")
    print(path)


def _kubeconfig_path() -> Path | None:
    running = Cluster.running()
    if running:
        return running.kubeconfig
    return KUBECONFIG if KUBECONFIG.exists() else None


def image(options: argparse.Namespace) -> None:
    """Build or push an operator's image with buildah; a built image is loaded into a running local cluster."""
    if options.action == "push":
        images.push(options.names[-1])
        return
    operator, tag = options.names
    archive = images.build(images.operator_image(operator, tag))
    running = Cluster.running()
    if running:
        running.load_images([archive])
    print(f"{tag}: built as {archive}{', loaded into the local cluster' if running else ''}")


def build(options: argparse.Namespace) -> None:
    """Build programs that the cache lacks, with progress, before something with a time limit needs them."""
    steps = Steps()
    with steps.shown():
        _build_programs(dict.fromkeys(map(binaries.program_of, options.names), "once on each machine"), steps)


def binary(options: argparse.Namespace) -> None:
    """Print the path of one of the cluster's programs; build it if the cache lacks it."""
    print(binaries.find(options.name))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.local", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="command")
    starting = commands.add_parser("up", help="start a cluster, install the platform and apply the samples")
    starting.add_argument(
        "--cluster", default="auto", help=f"cluster to use: {' | '.join(targets.CHOICES)} (default: auto)"
    )
    starting.add_argument("--nodes", type=int, default=2, help=f"number of nodes, 1 to {MAX_NODES} (default: 2)")
    starting.add_argument(
        "--kubernetes",
        default="",
        help=f"Kubernetes of the local cluster: newest, oldest, {', '.join(binaries.KUBERNETES)} (default: newest)",
    )
    starting.add_argument(
        "--versions", default="", help="versions of databases in addition to those of the samples: all, or 3.7.3,9.1"
    )
    starting.add_argument(
        "--registry", default="", help="local: install from a registry on this machine; with current: images' prefix"
    )
    starting.add_argument("--tag", default="", help="tag of the images in --registry (default: the version)")
    starting.add_argument("--image", help="refused: one image is not that of every operator")
    starting.set_defaults(command=up)
    removing = commands.add_parser("down", help="remove the local cluster and report leftovers")
    removing.add_argument("--cluster", default="auto", help="current is refused: it is not removed")
    removing.set_defaults(command=down)
    for command, text in (
        (status, "show the nodes, the pods and the resources of the operators"),
        (kubeconfig, "print the path of the cluster's kubeconfig"),
    ):
        commands.add_parser(command.__name__, help=text).set_defaults(command=command)
    building = commands.add_parser("image", help="build OPERATOR TAG | push TAG, with buildah")
    building.add_argument("action", choices=("build", "push"))
    building.add_argument("names", nargs="+", metavar="OPERATOR TAG | TAG")
    building.set_defaults(command=image)
    names = sorted({name for program in binaries.ALL for name in program.names})
    preparing = commands.add_parser("build", help="build programs such as helm or etcd, unless this was done before")
    preparing.add_argument("names", nargs="+", choices=names, metavar="NAME", help=" | ".join(names))
    preparing.set_defaults(command=build)
    finding = commands.add_parser("binary", help="print the path of a program, such as helm or etcd")
    finding.add_argument("name", choices=names)
    finding.set_defaults(command=binary)
    return parser


if __name__ == "__main__":
    sys.exit(main())
