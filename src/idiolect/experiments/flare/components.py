# SPDX-License-Identifier: Apache-2.0
"""What runs inside FLARE's processes: the coordinator's transport in the server's, a site's handler in the site's.

Messages are requests on a channel of our own between the two processes of a job (FLARE's "cells"). They arrive at once,
where FLARE's tasks are fetched by sites that look every half second; a large one travels in parts; sites may be absent,
which the newer Collab API does not bear; and a site sees who asks, which FLARE's auxiliary messages do not tell.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode as TaskReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.shareable import make_reply as make_task_reply
from nvflare.apis.signal import Signal
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.f3.cellnet.utils import make_reply
from nvflare.fuel.f3.message import Message

from idiolect.core.checks import RequestError
from idiolect.engines.deploy.transport import Handler, Transport
from idiolect.experiments.compilation import enable_cache
from idiolect.experiments.deploy.kits import coordinate_kit, site_of_kit
from idiolect.experiments.deploy.site_file import read_site_file

CHANNEL = "idiolect"
TOPIC = "round"
ABORT_EVERY = 0.5  # seconds between looks whether a user has ended the run
PER_SITE = 3  # threads: FLARE's timeout counts for sending, waiting and receiving, so an old one may still hang


class FlareTransport:
    """The coordinator's side. Names are those of the certificates: FLARE lets nobody register under another one."""

    def __init__(self, context: FLContext, abort: Signal) -> None:
        engine = context.get_engine()
        self.abort = abort
        self.cell = engine.get_cell()
        # a job's process has its own address, below that of the site that runs it
        self.addresses = {
            site.name: FQCN.join([site.get_fqcn(), context.get_job_id()]) for site in engine.get_clients()
        }
        self.threads = ThreadPoolExecutor(max_workers=PER_SITE * max(1, len(self.addresses)))

    @property
    def sites(self) -> Sequence[str]:
        """Every site of this job."""
        return sorted(self.addresses)

    def exchange(self, round: int, messages: Mapping[str, bytes], deadline: float) -> Mapping[str, bytes]:
        """One request per site, all at once. FLARE numbers them: a late answer finds nobody who waits for it."""
        asked = {site: self.threads.submit(self._ask, site, content, deadline) for site, content in messages.items()}
        self._wait(set(asked.values()), deadline)
        answers = {site: answer.result() for site, answer in asked.items() if answer.done()}
        return {site: answer for site, answer in answers.items() if answer is not None}

    def _wait(self, asked: set[Future[bytes | None]], seconds: float) -> None:
        """Until all have answered or the time is over; RequestError where the run was ended."""
        until = time.monotonic() + seconds
        while asked and (left := until - time.monotonic()) > 0:
            _, asked = wait(asked, timeout=min(left, ABORT_EVERY))
            if self.abort.triggered:
                raise RequestError(
                    "This run was ended, by a user or because its sites failed; submitted again, it goes on."
                )

    def close(self) -> None:
        """Wait for no thread."""
        self.threads.shutdown(wait=False, cancel_futures=True)

    def _ask(self, site: str, content: bytes, seconds: float) -> bytes | None:
        """A site's answer; None where FLARE says that there is none, or where something else than bytes came."""
        reply = self.cell.send_request(
            channel=CHANNEL,
            topic=TOPIC,
            target=self.addresses[site],
            request=Message(payload=content),
            timeout=seconds,
            optional=True,
        )
        if reply.get_header(MessageHeaderKey.RETURN_CODE) != ReturnCode.OK:
            return None
        return bytes(reply.payload) if isinstance(reply.payload, bytes | bytearray | memoryview) else None


class ServerRun(Controller):  # type: ignore[misc]  # FLARE has no type hints
    """The job of the server: a run of the spec that its kit holds, or goes on with it."""

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Nothing to prepare."""

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Nothing to give back: what counts is in the run's folder."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Run; an error ends the job for all and is shown to its submitter."""
        transport = FlareTransport(fl_ctx, abort_signal)
        try:
            self.coordinate(transport, kit_folder(fl_ctx))
        except Exception as error:
            self.logger.exception("the run ended with an error")
            # else FLARE would count the job as completed
            self.system_panic(f"{type(error).__name__}: {error}", fl_ctx)
        finally:
            transport.close()

    def coordinate(self, transport: Transport, kit: Path) -> None:
        """Train every method of the spec; where the folder has a run that was not finished, go on with it."""
        enable_cache(self.logger.info)
        coordinate_kit(transport, kit, self.logger.info)


class SiteProcess(Executor):  # type: ignore[misc]
    """The job of a site: its handler, alive from the first message to the last, so that nothing is compiled twice."""

    def __init__(self) -> None:
        super().__init__()
        self.handler: Handler | None = None
        self.kit, self.certified = Path(), ""
        self.coordinator = ""
        self.one_at_a_time = threading.Lock()  # a round that came too late may still be at work

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Listen from the start of the job."""
        if event_type == EventType.START_RUN:
            self.kit, self.certified = kit_folder(fl_ctx), fl_ctx.get_identity_name()
            self.coordinator = FQCN.join([FQCN.ROOT_SERVER, fl_ctx.get_job_id()])
            fl_ctx.get_engine().get_cell().register_request_cb(channel=CHANNEL, topic=TOPIC, cb=self.answer)

    def answer(self, request: Message) -> Message:
        """Bytes in, bytes out. An error leaves without its text, which could quote a row: the site's log has it.

        Only the server's process of this job may ask; messages of other sites pass through the server as well. The
        origin is certified: the server compares it with the sender's token, which is bound to its certificate.
        """
        if request.get_header(MessageHeaderKey.ORIGIN) != self.coordinator:
            return make_reply(ReturnCode.UNAUTHENTICATED, error="only the coordinator of this run may ask")
        content = request.payload
        if not isinstance(content, bytes | bytearray | memoryview):
            return make_reply(ReturnCode.INVALID_REQUEST, error="a message is bytes")
        try:
            with self.one_at_a_time:
                if self.handler is None:  # at the first message: a job that is never asked reads no table
                    self.handler = self.make_handler(self.kit)
                return make_reply(ReturnCode.OK, body=self.handler.handle(bytes(content)))
        except Exception:
            self.logger.exception("this message could not be answered")
            return make_reply(ReturnCode.PROCESS_EXCEPTION, error="see the log of the site")

    def make_handler(self, kit: Path) -> Handler:
        """The site of `site.toml`."""
        written = read_site_file(kit).name
        if written != self.certified:
            raise RequestError(f"site.toml names this site {written!r}, and its certificate {self.certified!r}.")
        enable_cache(self.logger.info)  # a job is a new process: it finds the programs of the last one
        return site_of_kit(kit)

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """FLARE asks every client for an executor; ours has no tasks."""
        return make_task_reply(TaskReturnCode.TASK_UNKNOWN)


def kit_folder(context: FLContext) -> Path:
    """The folder of the kit that this process runs from."""
    return Path(context.get_workspace().get_root_dir())
