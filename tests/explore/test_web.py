"""What the explorer's server answers, and whom: http alone, without a browser."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from gmdb.explore.responses import RESPONSES
from gmdb.inspect.inspector import LISTINGS
from tests.explore.exploring import Exploring, refused
from tests.inspect.build import build_database


@pytest.fixture(scope="module")
def explorer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exploring]:
    """One for all tests here; whatever they ask, it has nothing to complain about when it ends."""
    made = Exploring(build_database(tmp_path_factory.mktemp("web") / "built.gmdb"))
    yield made
    assert made.end() == (0, "", "")


# ---- who is let in


@pytest.mark.parametrize(
    "path", ["/", "/index.html", "/main.js", "/api/about", "/?token=", "/?token=wrong", "/nothing"]
)
def test_without_the_token_nothing_is_answered(explorer: Exploring, path: str) -> None:
    answer = explorer.ask(path)
    assert answer.status == 403
    assert "Open the URL that gmdb explore has printed" in answer.body
    assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize("value", ["", "wrong", "wrong; token=x", "\u00e4", "{token}x", "x{token}"])
def test_another_cookie_is_not_good_enough(explorer: Exploring, value: str) -> None:
    wrong = f"gmdb-explorer-{explorer.port}=" + value.format(token=explorer.token)
    assert explorer.ask("/api/about", headers={"Cookie": wrong}).status == 403
    named_otherwise = f"gmdb-explorer-{explorer.port + 1}={explorer.token}"
    assert explorer.ask("/api/about", headers={"Cookie": named_otherwise}).status == 403
    assert explorer.ask("/api/about", headers={"Cookie": f";;,=; {value}"}).status == 403


def test_the_token_in_the_url_becomes_a_cookie_that_scripts_cannot_read(explorer: Exploring) -> None:
    answer = explorer.ask(f"/?token={explorer.token}")
    assert (answer.status, answer.headers["Location"], answer.body) == (303, "/", "")
    parts = [part.strip() for part in answer.headers["Set-Cookie"].split(";")]
    assert parts == [explorer.cookie, "HttpOnly", "SameSite=Strict", "Path=/"]
    assert explorer.ask("/api/about", headers={"Cookie": parts[0]}).status == 200
    assert explorer.ask(f"/api/about?token={explorer.token}").status == 403, "the token opens the first page alone"


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "", "[::1]:{port}"]
)
def test_a_request_that_means_another_host_is_refused(explorer: Exploring, host: str) -> None:
    named = host.format(port=explorer.port)
    for path in ("/", "/api/about", f"/?token={explorer.token}"):
        answer = explorer.ask(path, headers={"Host": named, "Cookie": explorer.cookie})
        assert answer.status == 421
        assert "Set-Cookie" not in answer.headers


def test_it_can_be_called_localhost(explorer: Exploring) -> None:
    asked = {"Host": f"localhost:{explorer.port}", "Cookie": explorer.cookie}
    assert explorer.ask("/api/about", headers=asked).status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "NONSENSE"])
def test_nothing_can_be_asked_for_but_to_read(explorer: Exploring, method: str) -> None:
    answer = explorer.ask("/api/about", method, headers={"Cookie": explorer.cookie, "Content-Length": "0"})
    assert answer.status == 501


def test_it_listens_on_loopback_alone(explorer: Exploring) -> None:
    listening = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening += [line.split() for line in Path("/proc/net/tcp6").read_text().splitlines()[1:]]
    found = {one[1] for one in listening if one[1].endswith(f":{explorer.port:04X}") and one[3] == "0A"}
    assert found == {f"0100007F:{explorer.port:04X}"}


# ---- what is answered


def test_every_answer_forbids_what_is_not_from_here(explorer: Exploring) -> None:
    asked = [explorer.get(path) for path in ("/", "/main.js", "/api/about", "/nothing", "/api/nothing")]
    for answer in (*asked, explorer.ask("/"), explorer.ask(f"/?token={explorer.token}")):
        policy = answer.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["Cache-Control"] == "no-store"
        assert "Python" not in answer.headers["Server"]


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/", "text/html"), ("/index.html", "text/html"), ("/style.css", "text/css"), ("/main.js", "text/javascript"),
     ("/icon.svg", "image/svg+xml")],
)  # fmt: skip
def test_files_have_their_types(explorer: Exploring, path: str, kind: str) -> None:
    answer = explorer.get(path)
    assert answer.status == 200
    assert answer.headers["Content-Type"] == f"{kind}; charset=utf-8"
    assert answer.body


@pytest.mark.parametrize(
    "path",
    ["/../web.py", "/..%2fweb.py", "/static/..%2f", "/static/../web.py", "/%2e%2e/web.py", "//etc/passwd",
     "/etc/passwd", "/....//web.py", "/static", "/__init__.py", "/main.js/", "/main.js%00", "/api", "/api/",
     "/api/../about", "/\\web.py", "/api/nothing", "//[x", "*"],
)  # fmt: skip
def test_what_is_none_of_its_files_is_not_there(explorer: Exploring, path: str) -> None:
    answer = explorer.get(path)
    assert answer.status == 404
    assert answer.body.startswith("There is no ")


def test_an_address_that_cannot_be_parsed_is_not_there(explorer: Exploring) -> None:
    with socket.create_connection(("127.0.0.1", explorer.port), timeout=60) as line:
        head = f"Host: 127.0.0.1:{explorer.port}\r\nCookie: {explorer.cookie}\r\nConnection: close\r\n\r\n"
        line.sendall(f"GET http://[ HTTP/1.1\r\n{head}".encode())
        assert line.makefile("rb").readline().split()[1] == b"404"


def test_what_is_asked_for_is_said_in_json(explorer: Exploring) -> None:
    about = explorer.get("/api/about").document
    assert (about["name"], about["live"]) == ("built.gmdb", False)
    devices = explorer.listing("devices").document
    hwm = [column["name"] for column in devices["columns"]].index("hwm")
    assert about["pages"] == sum(row[hwm] for row in devices["rows"]) > 11
    found = explorer.listing("segments").document
    assert [column["name"] for column in found["columns"]][:3] == ["entry", "entry_page", "type"]
    assert explorer.get("/api/place?page=4:7").document == {"place": 5 + 6 + 7}
    image = explorer.listing("image", "4:7").document
    assert len(image["rows"][0][2]) == 2 * 8192
    assert explorer.listing("image", str(4 << 22 | 7)).document == image


def test_the_log_of_a_page_is_no_error_where_there_is_no_log(explorer: Exploring) -> None:
    answer = explorer.listing("history", "4:7")
    assert (answer.status, answer.document["rows"]) == (200, [])


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/api/listing", "needs name="),
        ("/api/listing?name=nothing", "there is no listing nothing; there are spaces, "),
        ("/api/listing?name=rows", "it takes segment"),
        ("/api/listing?name=rows&arg=none", "has no segment none"),
        ("/api/listing?name=rows&arg=tbl&arg=4", "it takes segment"),
        ("/api/listing?name=regions&arg=x", "'x' is not a page id"),
        ("/api/listing?name=regions&arg=4:9999", "page 4:9999"),
        ("/api/listing?name=regions&arg=77:1", "has no device 77"),
        ("/api/listing?name=row&arg=4:7", "is not a row id"),
        ("/api/listing?name=seen&arg=4:7&arg=me", "is not the number of a transaction"),
        ("/api/listing?name=cells&arg=x", "a map has 1 to"),
        ("/api/listing?name=spaces&pages=4:1", "takes no range"),
        ("/api/listing?name=pages&pages=x", "is not a page id"),
        ("/api/listing?name=spaces&since=4", "it takes nothing"),
        ("/api/listing?name=redo&since=-4", "since=-4 is not a number"),
        ("/api/listing?name=redo&last=" + "9" * 5000, "is not a number"),
        ("/api/listing?name=spaces&at=memory", "no process has the database open"),
        ("/api/listing?name=spaces&at=yesterday", "yesterday"),
        ("/api/listing?name=spaces&at=-4", "-4"),
        ("/api/place", "needs page="),
        ("/api/place?page=here", "is not a page id"),
        ("/api/diff?one=files&other=memory", "memory is compared page by page"),
        ("/api/diff?one=files&other=files&page=x", "is not a page id"),
    ],
)
def test_what_cannot_be_answered_is_said(explorer: Exploring, path: str, said: str) -> None:
    answer = explorer.get(path)
    assert answer.status == 400
    assert said in answer.document["error"]
    assert answer.document.keys() == {"error"}


ODD = (
    "",
    "0",
    "1",
    "4:7",
    "4:7:1",
    "4:6",
    "1:5",
    "4294967295",
    "-1",
    "tbl",
    "9" * 30,
    "\u00fc\u0000'\";",
    "4:7:65535",
    "x" * 9000,
)


@pytest.mark.parametrize("name", LISTINGS)
def test_no_argument_is_too_odd(explorer: Exploring, name: str) -> None:
    """Nothing fails with anything but an error of ours; what went wrong otherwise would be on stderr."""
    for one in ODD:
        for more in ((), ("1",), ("tbl", "0", "x"), ("1", "1", "1")):
            for at in ("files", "end"):
                assert explorer.listing(name, one, *more, at=at).status in (200, 400), (one, more)


@pytest.mark.parametrize("name", RESPONSES)
def test_no_query_is_too_odd(explorer: Exploring, name: str) -> None:
    for key in ("name", "arg", "at", "pages", "since", "last", "page", "one", "other"):
        for one in ODD:
            for more in ("", "&name=pages", "&name=regions&arg=4:7", "&page=4:7", "&one=files&other=end"):
                assert explorer.get(f"/api/{name}?{key}={quote(one)}{more}").status in (200, 400), (key, one, more)


# ---- how it begins and ends


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_when_it_is_told_to(tmp_path: Path, by: int) -> None:
    explorer = Exploring(build_database(tmp_path / "built.gmdb"))
    held = socket.create_connection(("127.0.0.1", explorer.port))  # a browser keeps its connections
    try:
        assert explorer.get("/").status == 200
        assert explorer.end(by) == (0, "", "")
    finally:
        held.close()
        explorer.kill()


def test_a_port_that_is_taken_is_told_of(tmp_path: Path) -> None:
    database = build_database(tmp_path / "built.gmdb")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken = listener.getsockname()[1]
        said = refused(database, "--port", str(taken))
    assert f"the explorer cannot listen on port {taken} of 127.0.0.1: " in said
    assert "--port 0 takes any that is free" in said
    assert "70000 is not a port" in refused(database, "--port", "70000")


def test_what_is_no_database_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for wrong in ("", "none", "file"):
        assert str(tmp_path / wrong) in refused(tmp_path / wrong)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_two_explorers_do_not_know_each_others_tokens(explorer: Exploring, tmp_path: Path) -> None:
    other = Exploring(build_database(tmp_path / "other.gmdb"))
    try:
        assert other.token != explorer.token
        assert other.ask(f"/?token={explorer.token}").status == 403
        both = f"{explorer.cookie}; {other.cookie}"
        for one, name in ((explorer, "built.gmdb"), (other, "other.gmdb")):
            assert one.ask("/api/about", headers={"Cookie": both}).document["name"] == name
    finally:
        other.kill()
