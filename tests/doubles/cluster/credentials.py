"""The cluster's certificates, made with the openssl program, and the files that clients read."""

from __future__ import annotations

import base64
import pathlib
import ssl
import subprocess

import yaml

DAYS = "3650"


def openssl(*arguments: str, cwd: pathlib.Path) -> None:
    done = subprocess.run(["openssl", *arguments], cwd=cwd, stdin=subprocess.DEVNULL,
                          capture_output=True, timeout=60, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"openssl {arguments[0]} failed: {done.stderr.decode().strip()}")


def make_certificates(folder: pathlib.Path) -> None:
    """An authority, the server's certificate and a client's: ca, server, client (.crt, .key)."""
    folder.mkdir(mode=0o700)
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *curve, "-keyout", "ca.key", "-out", "ca.crt", "-days", DAYS,
            "-subj", "/CN=double-ca", "-addext", "basicConstraints=critical,CA:TRUE",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign", cwd=folder)
    for name, subject, extensions in (
            ("server", "/CN=kube-apiserver",
             "subjectAltName=IP:127.0.0.1,DNS:localhost,DNS:kubernetes.default.svc\n"
             "extendedKeyUsage=serverAuth\n"),
            ("client", "/O=testers/CN=certified-tester", "extendedKeyUsage=clientAuth\n")):
        openssl("req", "-new", *curve, "-keyout", f"{name}.key", "-out", f"{name}.csr",
                "-subj", subject, cwd=folder)
        (folder / f"{name}.ext").write_text(extensions, encoding="utf-8")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key",
                "-CAcreateserial", "-days", DAYS, "-extfile", f"{name}.ext", "-out",
                f"{name}.crt", cwd=folder)


def tls_context(folder: pathlib.Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    context.load_verify_locations(folder / "ca.crt")
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


def write_kubeconfig(directory: pathlib.Path, url: str, token: str, namespace: str,
                     certificates: pathlib.Path | None) -> None:
    cluster: dict[str, object] = {"server": url}
    users = [{"name": "double", "user": {"token": token}}]
    contexts = [{"name": "double", "context": {"cluster": "double", "user": "double",
                                               "namespace": namespace}}]
    if certificates is not None:
        def data(name: str) -> str:
            return base64.b64encode((certificates / name).read_bytes()).decode()
        cluster["certificate-authority-data"] = data("ca.crt")
        users.append({"name": "double-certificate", "user": {
            "client-certificate-data": data("client.crt"), "client-key-data": data("client.key")}})
        contexts.append({"name": "double-certificate", "context": {
            "cluster": "double", "user": "double-certificate", "namespace": namespace}})
    config = {"apiVersion": "v1", "kind": "Config", "current-context": "double",
              "clusters": [{"name": "double", "cluster": cluster}], "users": users,
              "contexts": contexts, "preferences": {}}
    path = directory / "kubeconfig"
    path.touch(mode=0o600)
    path.write_text(yaml.dump(config, Dumper=yaml.CSafeDumper), encoding="utf-8")
    account = directory / "serviceaccount"
    account.mkdir(mode=0o700)
    (account / "token").write_text(token, encoding="utf-8")
    (account / "namespace").write_text(namespace, encoding="utf-8")
    if certificates is not None:
        (account / "ca.crt").write_bytes((certificates / "ca.crt").read_bytes())
