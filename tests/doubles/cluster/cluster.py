#!/usr/bin/python3
"""A double of a GKE cluster with Agent Sandbox and Pod snapshots. README.md says what it does.

    cluster.py --directory DIR [--pods gvisor|process|none] [--agent PATH] [--shim PATH]
               [--runsc PATH] [--plain] [--namespace NAME] [--egress ADDRESS:PORT]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import pathlib
import shutil
import signal
import ssl
import sys

from aiohttp import web

import collect
import controllers
import credentials
from admin import Admin
from api import Server
from kinds import all_kinds, definition
from store import Store, now

WATCH_DIRECTORY = 1.0  # seconds between two looks whether DIR is still there


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A double of a GKE cluster.")
    parser.add_argument("--directory", required=True, type=pathlib.Path)
    parser.add_argument("--pods", choices=("gvisor", "process", "none"), default="none")
    parser.add_argument("--agent")
    parser.add_argument("--shim")
    parser.add_argument("--runsc")
    parser.add_argument("--plain", action="store_true", help="HTTP instead of HTTPS")
    parser.add_argument("--namespace", default="workspaces")
    parser.add_argument("--egress", help="ADDRESS:PORT of 127.0.0.0/8 that Pods reach outside")
    return parser.parse_args()


class Cluster:
    """What the controllers get."""

    def __init__(self, options: argparse.Namespace):
        self.options = options
        self.directory: pathlib.Path = options.directory.resolve()
        self.namespace: str = options.namespace
        self.kinds = all_kinds()
        self.store = Store(self.kinds)
        self.collector = collect.Collector(self.store)
        self.server = Server(self.store, str(self.directory))
        self.faults = self.server.faults
        self.ended = asyncio.Event()
        self.admin = Admin(self.server, self.namespace, self.ended.set)

    @property
    def runner(self):
        return self.server.runner

    @runner.setter
    def runner(self, runner) -> None:
        self.server.runner = runner

    def event(self, object: dict, type: str, reason: str, message: str) -> dict:
        """An Event (core/v1) about that object."""
        metadata, moment = object["metadata"], now()
        about = {"apiVersion": object["apiVersion"], "kind": object["kind"],
                 "name": metadata["name"], "uid": metadata["uid"],
                 "resourceVersion": metadata["resourceVersion"]}
        if "namespace" in metadata:
            about["namespace"] = metadata["namespace"]
        return self.store.create("events", {
            "metadata": {"generateName": f"{metadata['name'][:50]}.",
                         "namespace": metadata.get("namespace", "default")},
            "involvedObject": about, "type": type, "reason": reason, "message": message,
            "firstTimestamp": moment, "lastTimestamp": moment, "count": 1,
            "source": {"component": "double"}})

    def seed(self) -> None:
        """What every cluster has. The pool and its like are the controllers'."""
        for name in ("default", "kube-system", self.namespace):
            self.store.create("namespaces", {"metadata": {"name": name}})
            self.store.create("serviceaccounts", {"metadata": {"name": "default",
                                                               "namespace": name}})
        self.store.create("runtimeclasses", {"metadata": {"name": "gvisor"}, "handler": "gvisor"})
        for kind in self.kinds.values():
            if kind.custom:
                self.store.create("customresourcedefinitions", definition(kind, [kind.version]))

    async def run(self) -> None:
        certificates, context = None, None
        if not self.options.plain:
            certificates = self.directory / "certificates"
            credentials.make_certificates(certificates)
            context = credentials.tls_context(certificates)
        self.seed()
        runner = web.ServerRunner(web.Server(self.server.handle, access_log=None,
                                             keepalive_timeout=90))
        await runner.setup()
        url = await self.listen(runner, context)
        admin = await self.admin.listen(str(self.directory / "admin.sock"))
        credentials.write_kubeconfig(self.directory, url, self.server.access.token,
                                     self.namespace, certificates)
        controllers.start(self)
        try:
            ready = self.directory / "ready.new"
            ready.write_text(json.dumps({"url": url}) + "\n", encoding="utf-8")
            ready.rename(self.directory / "ready")
            await self.until_the_end()
        finally:
            admin.close()
            await controllers.stop()
            self.admin.close_watches({})
            self.faults.release(None)
            await runner.cleanup()
            if not (self.directory / "kubeconfig").exists():
                shutil.rmtree(self.directory, ignore_errors=True)

    async def listen(self, runner: web.ServerRunner, context: ssl.SSLContext | None) -> str:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context, shutdown_timeout=0.2,
                           backlog=1024)
        await site.start()
        port = runner.addresses[0][1]
        return f"http{'s' if context else ''}://127.0.0.1:{port}"

    async def until_the_end(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.ended.set)
        try:
            loop.add_reader(0, self.read_input)
        except (OSError, ValueError):
            pass  # a file or /dev/null: it never closes
        while not self.ended.is_set():
            try:
                await asyncio.wait_for(self.ended.wait(), WATCH_DIRECTORY)
            except asyncio.TimeoutError:
                # Pods that are just being made may have made the folder anew.
                if not (self.directory / "kubeconfig").exists():
                    return

    def read_input(self) -> None:
        if not os.read(0, 4096):
            asyncio.get_running_loop().remove_reader(0)
            self.ended.set()


async def settle() -> None:
    """Pipes of ended processes are closed by the collector, which needs the loop for it."""
    gc.collect()
    await asyncio.sleep(0)


async def main() -> int:
    options = read_arguments()
    if not options.directory.is_dir():
        print(f"cluster: '{options.directory}' is no directory", file=sys.stderr)
        return 2
    await Cluster(options).run()
    await settle()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
