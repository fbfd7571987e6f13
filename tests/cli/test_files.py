"""cp, ls, cat: files and trees, both ways."""

import os
import stat

import pytest


def tree(root):
    """What is in a tree: relative path to content, link target or None."""
    found = {}
    for place, directories, names in os.walk(root):
        for name in directories + names:
            path = os.path.join(place, name)
            relative = os.path.relpath(path, root)
            if os.path.islink(path):
                found[relative] = ("link", os.readlink(path))
            elif os.path.isdir(path):
                found[relative] = None
            else:
                with open(path, "rb") as file:
                    found[relative] = (file.read(), stat.S_IMODE(os.stat(path).st_mode))
    return found


@pytest.fixture
def project(tmp_path):
    root = tmp_path / "project"
    (root / "src" / "deep").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "src" / "main.c").write_bytes(os.urandom(300_000))
    (root / "src" / "deep" / "a b\n'$(x)").write_text("odd name")
    (root / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("src/main.c")
    return root


def test_a_tree_goes_in_and_comes_back_the_same(sandbox, own, project, tmp_path):
    sandbox.run("cp", str(project), own + ":")
    assert sandbox.text("exec", own, "./project/run.sh") == "ran\n"
    sandbox.run("cp", own + ":project", str(tmp_path / "back"))
    assert tree(tmp_path / "back") == tree(project)


def test_a_target_that_is_a_directory_gets_the_copy_inside(sandbox, own, project, tmp_path):
    sandbox.run("cp", str(project / "run.sh"), own + ":scripts/")
    assert sandbox.text("ls", own + ":scripts") == "run.sh\n"
    sandbox.run("cp", str(project / "run.sh"), own + ":scripts/other")
    sandbox.run("cp", str(project / "run.sh"), own + ":scripts")
    assert sandbox.text("ls", own + ":scripts") == "other\nrun.sh\n"
    (tmp_path / "here").mkdir()
    sandbox.run("cp", own + ":scripts", str(tmp_path / "here"))
    assert sorted(os.listdir(tmp_path / "here" / "scripts")) == ["other", "run.sh"]
    sandbox.run("cp", own + ":scripts/other", str(tmp_path / "here") + "/")
    assert (tmp_path / "here" / "other").read_text() == "#!/bin/sh\necho ran\n"


def test_a_link_to_a_directory_is_a_directory(sandbox, own, project):
    sandbox.run("exec", own, "-c", "mkdir real && ln -s real alias")
    sandbox.run("cp", str(project / "run.sh"), own + ":alias")
    assert sandbox.text("ls", own + ":real") == "run.sh\n"
    assert sandbox.text("ls", own + ":alias") == "run.sh\n"


def test_standard_streams_are_one_file(sandbox, own):
    """P042, P053, P135: any bytes, any name."""
    given = bytes(range(256)) * 5000
    name = own + ":new/dir/%41 é '\"$()\\"
    sandbox.run("cp", "-", name, given=given)
    assert sandbox.run("cp", name, "-").stdout == given
    assert sandbox.run("cat", name, name).stdout == given * 2


def test_an_empty_file_is_a_file(sandbox, own):
    sandbox.run("cp", "-", own + ":empty", given=b"")
    assert sandbox.json("ls", own + ":empty")[0]["size"] == 0


def test_names_that_are_not_utf8_are_bytes(sandbox, own, tmp_path):
    """P135"""
    name = os.path.join(os.fsencode(tmp_path), b"bad\xff\xfename")
    with open(name, "wb") as file:
        file.write(b"x")
    sandbox.run("cp", name, own + ":")
    assert sandbox.run("ls", own).stdout == b"bad\xff\xfename\n"
    assert sandbox.json("ls", own)[0]["name"] == "bad\ufffd\ufffdname"
    assert sandbox.run("cat", own.encode() + b":bad\xff\xfename").stdout == b"x"


def test_ls_shows_details(sandbox, own):
    sandbox.run("exec", own, "-c", "mkdir d; ln -s d l; printf abc >f; chmod 640 f; touch .hidden")
    assert sandbox.text("ls", own) == ".hidden\nd\nf\nl\n"
    rows = {line.split()[-1]: line for line in sandbox.text("ls", "-l", own).splitlines()}
    assert rows["f"].startswith("-rw-r-----") and " 3 " in rows["f"]
    assert rows["d"].startswith(("drwx", "lrwx")) and "l -> d" in sandbox.text("ls", "-l", own)
    found = {one["name"]: one for one in sandbox.json("ls", own)}
    assert found["f"]["mode"] == "0640" and found["f"]["kind"] == "regular"
    assert found["l"]["target"] == "d" and found["d"]["kind"] == "directory"
    assert [one["name"] for one in sandbox.json("ls", own + ":f")] == ["f"]
    assert "etc" in sandbox.text("ls", own + ":/").split()


def test_what_is_missing_ends_with_3_and_makes_nothing(sandbox, own, tmp_path):
    """P052: no file is made for an answer that is none."""
    sandbox.run("cp", own + ":missing", str(tmp_path / "out"), code=3)
    assert not (tmp_path / "out").exists()
    sandbox.run("cp", str(tmp_path / "missing"), own + ":x", code=3)
    sandbox.run("ls", own + ":missing", code=3)
    result = sandbox.run("cat", own + ":missing", own + ":/etc/passwd", code=3)
    assert b"root" in result.stdout


def test_a_directory_is_no_file(sandbox, own):
    assert sandbox.run("cat", own + ":/etc", code=None).returncode in (1, 2)
    sandbox.run("cp", "-", own + ":/tmp", given=b"x", code=2)


def test_limits_and_links_are_the_callers_choice(sandbox, own, project, tmp_path):
    """P092, P094"""
    (project / "out").symlink_to("../../../etc")
    told = sandbox.run("cp", str(project), own + ":inside")
    assert b"1 skipped" in told.stderr
    assert "out" not in sandbox.text("ls", own + ":inside").split()
    sandbox.run("cp", "--keep-links", str(project), own + ":kept")
    assert "out" in sandbox.text("ls", own + ":kept").split()
    sandbox.run("cp", "--skip-links", str(project), own + ":none")
    assert "link" not in sandbox.text("ls", own + ":none").split()
    sandbox.run("cp", "--max-bytes", "1000", own + ":inside", str(tmp_path / "most"), code=8)
    assert not (tmp_path / "most").exists()


def test_a_reader_that_leaves_ends_cat_quietly(sandbox, own):
    sandbox.run("exec", own, "-c", "head -c 5000000 /dev/zero >big")
    process = sandbox.start("cat", own + ":big")
    process.stdout.read(10)
    process.stdout.close()
    assert process.wait(60) == 141 and process.stderr.read() == b""


def test_a_path_here_with_a_colon_is_written_with_its_directory(sandbox, own, tmp_path):
    (tmp_path / "a:b").write_text("colon")
    sandbox.run("cp", "./a:b", own + ":c", cwd=tmp_path)
    assert sandbox.text("cat", own + ":c") == "colon"
