"""A certificate authority of the test's own, made by openssl, and TLS for the world's servers."""

import contextlib
import os
import ssl
import subprocess

from world import PATIENCE


def openssl(*words):
    subprocess.run(["openssl", *words], check=True, stdin=subprocess.DEVNULL, capture_output=True,
                   timeout=PATIENCE)


class Authority:
    def __init__(self, directory):
        self.directory = directory
        self.certificate = directory / "authority.pem"
        self.make("authority", "/CN=Authority of a test", "basicConstraints=critical,CA:TRUE",
                  "keyUsage=critical,keyCertSign")
        # Debian's authorities and ours in one file, for programs that know only one.
        self.bundle = directory / "bundle.pem"
        usual = "/etc/ssl/certs/ca-certificates.crt"
        known = open(usual, encoding="ascii").read() if os.path.exists(usual) else ""
        self.bundle.write_text(known + self.certificate.read_text(encoding="ascii"),
                               encoding="ascii")

    def make(self, name, subject, *extensions, signer=None, days="2"):
        words = ["req", "-x509", "-newkey", "ec", "-pkeyopt",
                 "ec_paramgen_curve:prime256v1", "-nodes", "-days", days, "-subj", subject,
                 "-keyout", f"{self.directory}/{name}.key", "-out", f"{self.directory}/{name}.pem"]
        for extension in extensions:
            words += ["-addext", extension]
        if signer:
            words += ["-CA", f"{self.directory}/{signer}.pem",
                      "-CAkey", f"{self.directory}/{signer}.key"]
        openssl(*words)

    def expired(self, name):
        """For a server whose certificate was good until yesterday, which openssl's "req" cannot."""
        folder = self.directory / "old"
        folder.mkdir(exist_ok=True)
        (folder / "index").write_text("")
        (folder / "serial").write_text("01\n")
        (folder / "settings").write_text(
            f"[ca]\ndefault_ca=own\n[own]\ndatabase={folder}/index\nserial={folder}/serial\n"
            f"new_certs_dir={folder}\ndefault_md=sha256\npolicy=any\nunique_subject=no\n"
            f"x509_extensions=more\n[any]\ncommonName=supplied\n[more]\n"
            f"subjectAltName=DNS:{name}\n")
        openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                "-nodes", "-subj", f"/CN={name}", "-keyout", str(folder / "key"),
                "-out", str(folder / "request"))
        openssl("ca", "-batch", "-config", str(folder / "settings"), "-notext",
                "-cert", str(self.certificate), "-keyfile", str(self.directory / "authority.key"),
                "-in", str(folder / "request"), "-out", str(folder / "certificate"),
                "-startdate", "20200101000000Z", "-enddate", "20200102000000Z")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "certificate", folder / "key")
        return context

    def context(self, *names, signer="authority", days="2", protocols=("http/1.1",)):
        """For a server of those names; each set of names is made once."""
        kind = f"{signer}-{days}-{names[0].replace('*', 'any')}"
        if not (self.directory / f"{kind}.pem").exists():
            self.make(kind, f"/CN={names[0]}", "basicConstraints=CA:FALSE",
                      "subjectAltName=" + ",".join(f"DNS:{name}" for name in names),
                      signer=signer or None, days=days)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.directory / f"{kind}.pem", self.directory / f"{kind}.key")
        context.set_alpn_protocols(list(protocols))
        return context


def over_tls(context, serve):
    """A server that does the same inside TLS; `seen.name` is the SNI it was asked with."""
    def note_name(stream, name, _):
        stream.context.asked = name
    context.sni_callback = note_name

    def handle(seen):
        seen.handshake = ""
        try:
            seen.stream = context.wrap_socket(seen.stream, server_side=True)
        except (OSError, ssl.SSLError) as error:
            seen.handshake = str(error) or "failed"
            seen.ended = True
            return
        seen.name = getattr(context, "asked", None)
        with contextlib.suppress(OSError), seen.stream:
            serve(seen)
    return handle
