#!/usr/bin/python3
"""Makes tests/fuzz/corpus/tar: archives of every kind that is read, and some that lie."""
import io
import os
import subprocess
import sys
import tarfile
import tempfile

STEPS = {"whole": 5, "blocks": 3, "odd": 1}


def archive(form, *entries):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for name, kind, detail in entries:
            info = tarfile.TarInfo(name)
            info.type = kind
            if kind == tarfile.REGTYPE:
                info.size = len(detail)
                tar.addfile(info, io.BytesIO(detail))
            else:
                info.linkname = detail
                tar.addfile(info)
    return out.getvalue()[:out.tell()].rstrip(b"\0") + b"\0" * 1536


def gnu_tar(*options):
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "sparse"), "wb") as file:
            for number in range(6):
                file.seek(number * 65536)
                file.write(b"x" * 20)
            file.truncate(500_000)
        made = subprocess.run(["tar", *options, "-cf", "-", "sparse"], cwd=folder, check=True,
                              stdout=subprocess.PIPE).stdout
    return made.rstrip(b"\0") + b"\0" * 1536


def main(folder):
    file, link, hard = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
    found = {
        "plain": archive(tarfile.USTAR_FORMAT, ("a", file, b"content"), ("d/b", file, b""),
                         ("l", link, "a"), ("h", hard, "a"), ("p", tarfile.FIFOTYPE, "")),
        "pax": archive(tarfile.PAX_FORMAT, ("n" * 150 + "/x", file, b"1"),
                       ("l", link, "t" * 200), ("\u00e9", file, b"2")),
        "gnu": archive(tarfile.GNU_FORMAT, ("n" * 150 + "/x", file, b"1"),
                       ("l", link, "t" * 200)),
        "single": archive(tarfile.USTAR_FORMAT, (".", file, b"content")),
        "out": archive(tarfile.USTAR_FORMAT, ("../canary", file, b"evil")),
        "through": archive(tarfile.USTAR_FORMAT, ("up", link, ".."), ("up/canary", file, b"evil")),
        "hard-out": archive(tarfile.USTAR_FORMAT, ("up", link, "../../canary"), ("h", hard, "up"),
                            ("h", file, b"evil")),
        "twice": archive(tarfile.USTAR_FORMAT, ("a", file, b"1"), ("a", link, "../../canary"),
                         ("a", file, b"evil"), ("d", tarfile.DIRTYPE, ""), ("d", link, "..")),
        "sparse-pax": gnu_tar("--format=posix", "--sparse"),
        "sparse-gnu": gnu_tar("--format=gnu", "--sparse"),
    }
    os.makedirs(folder, exist_ok=True)
    for name, content in found.items():
        for step, number in STEPS.items():
            first = number + (66 if step == "whole" else 0)  # 71 % 6 is 5, 71 / 64 keeps all links
            with open(os.path.join(folder, f"{name}-{step}"), "wb") as out:
                out.write(bytes([first]) + content)


if __name__ == "__main__":
    main(sys.argv[1])
