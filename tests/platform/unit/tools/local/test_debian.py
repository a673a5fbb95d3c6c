"""Unpacked packages: merging /bin and /lib into /usr."""

from __future__ import annotations

from pathlib import Path

from tools.local import debian


def files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and not path.is_symlink()}


def test_root_of_an_older_suite_is_merged_into_usr(tmp_path: Path) -> None:
    for name in ("lib/x/libc.so.6", "usr/lib/x/libssl.so.3", "bin/tool"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "lib64").mkdir()
    (tmp_path / "lib64" / "loader").symlink_to("/lib/x/libc.so.6")
    debian._merge_into_usr(tmp_path)
    assert (tmp_path / "lib" / "x" / "libssl.so.3").read_text() == "usr/lib/x/libssl.so.3"
    assert (tmp_path / "usr" / "lib" / "x" / "libc.so.6").read_text() == "lib/x/libc.so.6"
    assert (tmp_path / "bin" / "tool").exists()
    assert (tmp_path / "usr" / "lib64" / "loader").is_symlink(), "the target of the link is unchanged inside the root"
    assert all((tmp_path / name).is_symlink() for name in ("lib", "lib64", "bin"))


def test_merged_root_is_unchanged(tmp_path: Path) -> None:
    (tmp_path / "usr/lib/x").mkdir(parents=True)
    (tmp_path / "usr/lib/x/libc.so.6").write_text("it")
    debian._merge_into_usr(tmp_path)
    assert files(tmp_path / "usr") == {"lib/x/libc.so.6"}
    assert (tmp_path / "lib").readlink() == Path("usr/lib")
    assert not (tmp_path / "sbin").exists()
