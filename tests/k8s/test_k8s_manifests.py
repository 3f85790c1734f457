"""What `kubectl apply -k` would send: valid for three Kubernetes versions, restricted, and whole in its references."""

import copy
import re
import shutil
import tomllib

import configargparse
import kubernetes_validate
import pytest
import yaml

from loadkit.live.exporter import MOST_LINGER_S
from loadkit.plan.endpoints_file import parse
from loadkit.plan.options import add_options, resolve

VERSIONS = ("1.29", "1.33", "1.37")
KINDS = {
    "ConfigMap": 2,
    "Job": 2,
    "NetworkPolicy": 2,
    "PodDisruptionBudget": 2,
    "PodMonitor": 1,
    "Service": 1,
}
ENDING_S = 60  # the last records of the workers are waited for 30 s; the report takes less
OUTSIDE = {"loadkit-results", "loadkit-key"}  # made once, by hand and by setup.yaml
COMPONENTS = ("master", "worker")


def loose(k8s):
    """The objects outside of overlays."""
    return [item for name in ("setup.yaml", "reader.yaml") for item in yaml.safe_load_all((k8s / name).read_text())]


def templates(overlay, k8s):
    """Pod specs of an overlay and of the reader."""
    (reader,) = [item for item in loose(k8s) if item["kind"] == "Pod"]
    return [*(overlay.pod(component)["spec"] for component in COMPONENTS), reader["spec"]]


def seconds(text):
    number, unit = re.fullmatch(r"(\d+)([smh])", text).groups()
    return int(number) * {"s": 1, "m": 60, "h": 3600}[unit]


@pytest.fixture
def plan_of(tmp_path, monkeypatch):
    """plan_of(built): (the plan that its ConfigMaps ask for, the options of its file that are Locust's)."""

    def read(built):
        path, endpoints = tmp_path / "plan.conf", tmp_path / "endpoints.toml"
        path.write_text(built.data("plan.conf"))
        keyless = [line for line in built.data("endpoints.toml").splitlines() if not line.startswith("key_file")]
        endpoints.write_text("\n".join(keyless))
        parser = configargparse.ArgumentParser(default_config_files=[str(path)])
        add_options(parser)
        parser.add_argument("--headless", action="store_true")
        parser.add_argument("--web-host")
        known = parser.parse_args(["--endpoints", str(endpoints), "--seed", "1"])
        return resolve(known, {}, tmp_path), known

    return read


def test_every_overlay_makes_the_same_objects(overlay):
    """Nothing is lost or doubled, all of it is in one namespace and has the overlay's name at its end."""
    found = [item["kind"] for item in overlay.objects]
    assert {kind: found.count(kind) for kind in found} == KINDS
    for item in overlay.objects:
        assert item["metadata"]["namespace"] == "loadkit"
        assert item["metadata"]["labels"]["app.kubernetes.io/instance"] == overlay.name
        hashed = r"-[a-z0-9]{10}" if item["kind"] == "ConfigMap" else ""
        assert re.fullmatch(rf"loadkit(-\w+)?-{overlay.name}{hashed}", item["metadata"]["name"])


@pytest.mark.parametrize("version", VERSIONS)
def test_the_schema_of_three_versions_takes_everything(overlay, k8s, version):
    """No unknown field, no wrong type; the PodMonitor has a schema of its operator's, and its own test."""
    for item in [*overlay.objects, *loose(k8s)]:
        if item["kind"] != "PodMonitor":
            kubernetes_validate.validate(item, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_schema_does_not_take_a_slip_of_the_pen(ci, version):
    """A field that does not exist, and a number where text must be, are found."""
    for slip in ({"backofLimit": 0}, {"backoffLimit": "0"}):
        job = copy.deepcopy(ci.one("Job", "master"))
        job["spec"].update(slip)
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(job, version, strict=True)


def test_every_pod_keeps_to_the_restricted_standard(overlay, k8s):
    """The Pod Security Standard `restricted`, a read-only root file system, and no token of the cluster's."""
    for pod in templates(overlay, k8s):
        assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers", "ephemeralContainers"} & set(pod)
        assert (pod["automountServiceAccountToken"], pod["enableServiceLinks"]) == (False, False)
        about = pod["securityContext"]
        assert (about["runAsNonRoot"], about["seccompProfile"]) == (True, {"type": "RuntimeDefault"})
        assert about["runAsUser"] == about["runAsGroup"] == about["fsGroup"] == 10001
        assert {kind for volume in pod["volumes"] for kind in set(volume) - {"name"}} <= {
            "configMap",
            "emptyDir",
            "persistentVolumeClaim",
            "projected",
            "secret",
        }
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": True,
            }
            assert not any("hostPort" in port for port in container.get("ports", []))
    (namespace,) = [item for item in loose(k8s) if item["kind"] == "Namespace"]
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_load_generators_have_a_whole_core_and_no_limit_of_it(overlay):
    """A limit would stop the clock of the instrument; memory is limited to what is asked for."""
    for component in COMPONENTS:
        resources = overlay.container(component)["resources"]
        assert set(resources["limits"]) == {"memory"}
        assert resources["limits"]["memory"] == resources["requests"]["memory"]
        if overlay.name != "edge":
            assert resources["requests"]["cpu"] == "1"


def test_names_that_are_referred_to_exist(overlay):
    """Service, ConfigMaps with their hashes, mounted volumes; the rest is what is made by hand once."""
    service = overlay.one("Service")["metadata"]["name"]
    assert overlay.container("worker")["env"] == [{"name": "LOCUST_MASTER_NODE_HOST", "value": service}]
    maps = {item["metadata"]["name"] for item in overlay.all("ConfigMap")}
    used, outside = set(), set()
    for component in COMPONENTS:
        volumes = overlay.pod(component)["spec"]["volumes"]
        mounted = {mount["name"] for mount in overlay.container(component)["volumeMounts"]}
        assert mounted == {volume["name"] for volume in volumes}
        for volume in volumes:
            sources = volume.get("projected", {}).get("sources", [])
            used |= {source["configMap"]["name"] for source in sources}
            outside |= {volume.get("secret", {}).get("secretName")}
            outside |= {volume.get("persistentVolumeClaim", {}).get("claimName")}
    assert used == maps
    assert outside - {None} == OUTSIDE


def test_a_suffix_of_your_own_reaches_the_address_of_the_master(k8s, build, tmp_path):
    """kustomize renames a Service and not what stands in variables; names.yaml makes it, however often."""
    own = shutil.copytree(k8s, tmp_path / "k8s") / "overlays" / "own"
    own.mkdir()
    (own / "kustomization.yaml").write_text("resources: [../ci]\nnameSuffix: -nightly\n")
    built = build(own)
    assert built.container("worker")["env"][0]["value"] == "loadkit-master-ci-nightly"
    assert built.one("Service")["metadata"]["name"] == "loadkit-master-ci-nightly"


def test_selectors_choose_the_pods_of_this_run_and_no_others(overlay):
    """Two runs in one namespace do not mix: every selector names the overlay, and is met by the pods it means."""
    labels = {component: overlay.pod(component)["metadata"]["labels"] for component in COMPONENTS}
    chosen = {
        "master": [
            overlay.one("Service")["spec"]["selector"],
            overlay.one("PodMonitor")["spec"]["selector"]["matchLabels"],
            overlay.one("PodDisruptionBudget", "master")["spec"]["selector"]["matchLabels"],
            overlay.one("NetworkPolicy", "master")["spec"]["podSelector"]["matchLabels"],
        ],
        "worker": [
            overlay.one("PodDisruptionBudget", "worker")["spec"]["selector"]["matchLabels"],
            overlay.one("NetworkPolicy", "worker")["spec"]["podSelector"]["matchLabels"],
            overlay.one("NetworkPolicy", "master")["spec"]["ingress"][0]["from"][0]["podSelector"]["matchLabels"],
            overlay.pod("worker")["spec"]["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"],
        ],
    }
    for component, selectors in chosen.items():
        for selector in selectors:
            assert selector == labels[component]
            assert selector["app.kubernetes.io/instance"] == overlay.name


def test_ports_have_one_name_everywhere(overlay):
    """Service, policy and monitor mean ports that the master has; the metrics port is the one it is told to serve."""
    ports = {port["name"]: port["containerPort"] for port in overlay.container("master")["ports"]}
    assert ports == {"rpc": 5557, "metrics": 9646}
    assert {port["targetPort"]: port["port"] for port in overlay.one("Service")["spec"]["ports"]} == ports
    rules = overlay.one("NetworkPolicy", "master")["spec"]["ingress"]
    assert [port["port"] for rule in rules for port in rule["ports"]] == ["rpc", "metrics"]
    assert f"--metrics-port=0.0.0.0:{ports['metrics']}" in overlay.container("master")["args"]
    assert overlay.one("NetworkPolicy", "worker")["spec"]["policyTypes"] == ["Ingress"]
    assert "ingress" not in overlay.one("NetworkPolicy", "worker")["spec"]


def test_the_monitor_keeps_our_labels_and_scrapes_often(overlay):
    """`endpoint` is a label of ours and of the operator's; the page stays for two scrapes."""
    assert overlay.one("PodMonitor")["spec"]["podMetricsEndpoints"] == [
        {"port": "metrics", "path": "/metrics", "honorLabels": True, "interval": "5s", "scrapeTimeout": "4s"}
    ]
    assert overlay.one("PodMonitor")["apiVersion"] == "monitoring.coreos.com/v1"


def test_the_number_of_workers_is_one_number(overlay):
    """What the Job starts, the master waits for, and the disruption budget, a whole number, keeps."""
    job = overlay.one("Job", "worker")["spec"]
    workers = job["parallelism"]
    assert (job["completions"], job["completionMode"]) == (workers, "Indexed")
    assert f"--expect-workers={workers}" in overlay.container("master")["args"]
    assert overlay.one("PodDisruptionBudget", "worker")["spec"]["minAvailable"] == workers
    budgets = [item["spec"] for item in overlay.all("PodDisruptionBudget")]
    assert all(type(spec["minAvailable"]) is int and set(spec) == {"minAvailable", "selector"} for spec in budgets)


def test_a_run_is_tried_once_and_its_exit_code_is_the_jobs(overlay):
    """No second attempt and no restart; a worker is replaced, but not when another would fare no better."""
    master, worker = (overlay.one("Job", component)["spec"] for component in COMPONENTS)
    assert (master["backoffLimit"], master["completions"], master["parallelism"]) == (0, 1, 1)
    for job in (master, worker):
        assert job["template"]["spec"]["restartPolicy"] == "Never"
        assert job["podReplacementPolicy"] == "Failed"
    assert overlay.container("master")["command"] == ["locust"]
    on_codes = [rule for rule in worker["podFailurePolicy"]["rules"] if rule["action"] == "FailJob"]
    assert [rule["onExitCodes"]["values"] for rule in on_codes] == [[2, 3]]


def test_there_is_time_to_drain(overlay, plan_of):
    """A pod that is told to end has longer than its longest request and the linger of its metrics; a run ends by itself
    before its deadline does it."""
    request, _ = plan_of(overlay)
    total = max(request.plan.timeouts.for_tier(cell.target_tokens).total for cell in request.plan.cells)
    drain = total + MOST_LINGER_S + ENDING_S
    (waits,) = [arg for arg in overlay.container("master")["args"] if arg.startswith("--expect-workers-max-wait=")]
    for component in COMPONENTS:
        job = overlay.one("Job", component)["spec"]
        assert job["template"]["spec"]["terminationGracePeriodSeconds"] >= drain
        longest = request.plan.max_duration_s + int(waits.partition("=")[2]) + drain
        assert job["activeDeadlineSeconds"] >= longest


def test_every_plan_is_one(overlay, plan_of):
    """The options of each ConfigMap are known and make the plan of the overlay; only `interactive` has a page."""
    request, known = plan_of(overlay)
    cells = {cell.id for cell in request.plan.cells}
    expected = {
        "ci": {"1024x1", "1024x4", "4096x1", "4096x4"},
        "edge": {"128x1", "512x1", "1024x1"},
        "interactive": {f"{tier}x{level}" for tier in (1024, 4096) for level in (1, 2, 4)},
    }
    assert cells == expected.get(overlay.name, cells)
    if overlay.name == "long-context":
        assert max(cell.tier_tokens for cell in request.plan.cells) == 1024 * 1024
    assert request.yes
    assert known.headless is (overlay.name != "interactive")
    assert known.web_host == (None if known.headless else "127.0.0.1")


def test_a_changed_plan_is_a_changed_pod(k8s, build, ci):
    """Names of ConfigMaps end in a hash of their content, so that two plans have two names."""
    other = build(k8s / "overlays" / "edge")
    names = [next(m["metadata"]["name"] for m in b.all("ConfigMap") if "plan.conf" in m["data"]) for b in (ci, other)]
    assert names[0].rpartition("-")[2] != names[1].rpartition("-")[2]


def test_the_key_is_a_file_and_nowhere_else(overlay):
    """The endpoint names the file that the Secret is mounted as, on the master and on every worker, readable by its
    group and by nobody else; no variable holds a key."""
    (endpoint,) = parse(overlay.data("endpoints.toml"), "endpoints.toml").values()
    assert set(tomllib.loads(overlay.data("endpoints.toml"))["endpoints"]) == {"target"}
    for component in COMPONENTS:
        (mount,) = [item for item in overlay.container(component)["volumeMounts"] if item["name"] == "key"]
        assert endpoint.key_file == f"{mount['mountPath']}/key"
        (volume,) = [item for item in overlay.pod(component)["spec"]["volumes"] if item["name"] == "key"]
        assert volume["secret"] == {"secretName": "loadkit-key", "defaultMode": 0o440, "optional": True}
        assert not any("valueFrom" in variable for variable in overlay.container(component).get("env", []))
        assert "envFrom" not in overlay.container(component)


def test_the_manual_says_what_the_manifests_are(overlay, k8s, root):
    """Its table has every overlay with its number of workers, and its commands name objects that exist."""
    text = (root / "docs" / "kubernetes.md").read_text()
    workers = overlay.one("Job", "worker")["spec"]["parallelism"]
    assert re.search(rf"^\| `{overlay.name}` \| .* \| {workers} \|$", text, re.MULTILINE)
    names = {item["metadata"]["name"] for item in overlay.objects}
    assert {name for name in re.findall(r"job/([\w-]+)", text) if name.endswith(overlay.name)} <= names
    for path in re.findall(r"(?<![\w/])k8s/[\w./-]*[\w]", text):
        assert (root / path).exists(), path


def test_pods_run_the_image_of_this_version(overlay, k8s, root):
    """The tag of the image is the version of the project, wherever it stands."""
    version = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    images = {container["image"] for pod in templates(overlay, k8s) for container in pod["containers"]}
    assert images == {f"loadkit:{version}"}
    assert f"# podman build --timestamp 0 -t loadkit:{version} ." in (root / "Containerfile").read_text()


def test_more_workers_are_one_number_more(k8s, build, tmp_path):
    """`parallelism` of an overlay is all there is to change: the rest follows it."""
    copied = shutil.copytree(k8s, tmp_path / "k8s") / "overlays" / "ci"
    size = (copied / "size.yaml").read_text()
    (copied / "size.yaml").write_text(size.replace("parallelism: 2", "parallelism: 7"))
    built = build(copied)
    assert built.one("Job", "worker")["spec"]["completions"] == 7
    assert built.one("PodDisruptionBudget", "worker")["spec"]["minAvailable"] == 7
    assert "--expect-workers=7" in built.container("master")["args"]
