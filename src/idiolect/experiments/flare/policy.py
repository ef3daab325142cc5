# SPDX-License-Identifier: Apache-2.0
"""What a server and a site allow others to do: roles, classes of ours that a run may name, nothing of a run's own."""

from __future__ import annotations

# a role's rights; n:submitter is the user who started the run
Rights = dict[str, str]
FORBIDDEN = ("byoc", "shell_commands", "operate", "clone_job", "server-predeployed-flwr")
RUN_CLASS = "idiolect.experiments.flare.components.ServerRun"
SITE_CLASS = "idiolect.experiments.flare.components.SiteProcess"


def permissions() -> dict[str, object]:
    """The roles, the same at the server and at every site; a site's own file may only take away.

    FLARE's own defaults let an administrator read files of a site (`shell_commands`) and ship code (`byoc`).
    """
    nothing: Rights = dict.fromkeys(FORBIDDEN, "none")
    lead = {
        "submit_job": "any",
        "manage_job": "n:submitter",
        "download_job": "n:submitter",
        "view": "any",
        **nothing,
    }
    member = {"submit_job": "none", "manage_job": "none", "download_job": "none", "view": "any", **nothing}
    roles = {"lead": lead, "member": member, "org_admin": member, "project_admin": member}
    return {"format_version": "1.0", "permissions": roles}


def site_resources(allowed: tuple[str, ...] = (SITE_CLASS,)) -> dict[str, object]:
    """A site's process: one class of ours may run in it, and its logs stay."""
    return {
        **_classes(allowed),
        "allow_log_streaming": False,  # a traceback may quote a row
        "client": {"retry_timeout": 30, "compression": "Gzip"},
        "components": [
            _component(
                "resource_manager",
                "nvflare.app_common.resource_managers.gpu_resource_manager.GPUResourceManager",
                {"num_of_gpus": 0, "mem_per_gpu_in_GiB": 0, "expiration_period": 300},
            ),
            _component(
                "resource_consumer", "nvflare.app_common.resource_consumers.gpu_resource_consumer.GPUResourceConsumer"
            ),
            _component(
                "process_launcher", "nvflare.app_common.job_launcher.client_process_launcher.ClientProcessJobLauncher"
            ),
        ],
    }


def server_resources(storage: str, allowed: tuple[str, ...] = (RUN_CLASS,)) -> dict[str, object]:
    """The server's process. Its runs and their results lie in `storage`, not in a folder that all users share."""
    files = "nvflare.app_common.storages.filesystem_storage.FilesystemStorage"
    snapshots = {"path": files, "args": {"root_dir": f"{storage}/snapshots", "uri_root": "/"}}
    return {
        **_classes(allowed),
        "servers": [{"admin_storage": "transfer", "max_num_clients": 1000, "heart_beat_timeout": 600}],
        "snapshot_persistor": {
            "path": "nvflare.app_common.state_persistors.storage_state_persistor.StorageStatePersistor",
            "args": {"uri_root": "/", "storage": snapshots},
        },
        "components": [
            _component(
                "job_scheduler",
                "nvflare.app_common.job_schedulers.job_scheduler.DefaultJobScheduler",
                {"max_jobs": 1, "min_schedule_interval": 1.0, "max_schedule_interval": 10.0},
            ),
            _component(
                "job_manager",
                "nvflare.apis.impl.job_def_manager.SimpleJobDefManager",
                {"uri_root": f"{storage}/runs", "job_store_id": "job_store"},
            ),
            _component("job_store", files),
            _component(
                "process_launcher", "nvflare.app_common.job_launcher.server_process_launcher.ServerProcessJobLauncher"
            ),
        ],
    }


def _classes(allowed: tuple[str, ...]) -> dict[str, object]:
    """Which classes a run may have built; FLARE's own list has about a hundred, some of which start programs."""
    return {"format_version": 2, "class_list_enforcement_mode": "enforce", "class_allow_list": list(allowed)}


def _component(name: str, path: str, args: dict[str, object] | None = None) -> dict[str, object]:
    return {"id": name, "path": path, "args": args or {}}
