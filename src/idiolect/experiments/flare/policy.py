# SPDX-License-Identifier: Apache-2.0
"""What a server and a site allow others to do: roles, classes of ours that a run may name, nothing of a run's own."""

from __future__ import annotations

from collections.abc import Mapping

FORBIDDEN = ("byoc", "shell_commands", "operate", "clone_job", "server-predeployed-flwr")
RUN_CLASS = "idiolect.experiments.flare.components.ServerRun"
COMMON = "nvflare.app_common"
SITE_CLASS = "idiolect.experiments.flare.components.SiteProcess"


def permissions() -> dict[str, object]:
    """The roles, the same at the server and at every site; a site's own file may only take away.

    FLARE's own defaults let an administrator read files of a site (`shell_commands`) and ship code (`byoc`).
    """
    member = dict.fromkeys((*FORBIDDEN, "submit_job", "manage_job", "download_job"), "none") | {"view": "any"}
    # n:submitter is the user who started the run
    lead = member | {"submit_job": "any", "manage_job": "n:submitter", "download_job": "n:submitter"}
    roles = {"lead": lead, "member": member, "org_admin": member, "project_admin": member}
    return {"format_version": "1.0", "permissions": roles}


def site_resources() -> dict[str, object]:
    """A site's process: one class of ours may run in it, and its logs stay."""
    no_gpu = {"num_of_gpus": 0, "mem_per_gpu_in_GiB": 0, "expiration_period": 300}
    return {
        **_only(SITE_CLASS),
        "allow_log_streaming": False,  # a traceback may quote a row
        "client": {"retry_timeout": 30, "compression": "Gzip"},
        "components": [
            _component(
                "resource_manager", f"{COMMON}.resource_managers.gpu_resource_manager.GPUResourceManager", no_gpu
            ),
            _component("resource_consumer", f"{COMMON}.resource_consumers.gpu_resource_consumer.GPUResourceConsumer"),
            _component("process_launcher", f"{COMMON}.job_launcher.client_process_launcher.ClientProcessJobLauncher"),
        ],
    }


def server_resources(storage: str) -> dict[str, object]:
    """The server's process. Its runs and their results lie in `storage`, not in a folder that all users share."""
    files = f"{COMMON}.storages.filesystem_storage.FilesystemStorage"
    snapshots = {"path": files, "args": {"root_dir": f"{storage}/snapshots", "uri_root": "/"}}
    persistor = f"{COMMON}.state_persistors.storage_state_persistor.StorageStatePersistor"
    one_at_once = {"max_jobs": 1, "min_schedule_interval": 1.0, "max_schedule_interval": 10.0}
    runs = {"uri_root": f"{storage}/runs", "job_store_id": "job_store"}
    return {
        **_only(RUN_CLASS),
        "servers": [{"admin_storage": "transfer", "max_num_clients": 1000, "heart_beat_timeout": 600}],
        "snapshot_persistor": {"path": persistor, "args": {"uri_root": "/", "storage": snapshots}},
        "components": [
            _component("job_scheduler", f"{COMMON}.job_schedulers.job_scheduler.DefaultJobScheduler", one_at_once),
            _component("job_manager", "nvflare.apis.impl.job_def_manager.SimpleJobDefManager", runs),
            _component("job_store", files),
            _component("process_launcher", f"{COMMON}.job_launcher.server_process_launcher.ServerProcessJobLauncher"),
        ],
    }


def _only(allowed: str) -> dict[str, object]:
    """The one class that a run may have built; FLARE's own list has about a hundred, some of which start programs."""
    return {"format_version": 2, "class_list_enforcement_mode": "enforce", "class_allow_list": [allowed]}


def _component(name: str, path: str, args: Mapping[str, object] | None = None) -> dict[str, object]:
    return {"id": name, "path": path, "args": args or {}}
