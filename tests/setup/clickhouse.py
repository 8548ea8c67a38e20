#!/usr/bin/env python3
"""ClickHouse's HTTP interface over its engine as a library (chdb), for tests.

    clickhouse.py [--port N] [--path DIR] [--user U --password P] [--until-eof]

Prints `ready 127.0.0.1:PORT VERSION` when it answers (port 0: one that is free). One process a data
directory. With --until-eof it ends when its standard input does, so that it never outlives a test.

Left out, because the engine or these tests do not have it: compressed answers, errors inside a
stream, Keeper, users. `x-clickhouse-*` headers and statuses are those of the server.
"""
import argparse
import gzip
import json
import os
import re
import struct
import sys
import tempfile
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

import lz4.block
from chdb import _chdb

# Parameters of a URL that are no settings.
RESERVED = {
    "query", "database", "default_format", "decompress", "compress", "query_id", "session_id",
    "session_timeout", "session_check", "user", "password", "role", "quota_key",
    "client_protocol_version", "buffer_size", "wait_end_of_query", "stacktrace", "close_session",
    "enable_http_compression", "http_zlib_compression_level", "send_progress_in_http_headers",
}
# Statuses by code of the error; 500 for every other.
STATUS = {
    36: 400, 43: 400, 46: 404, 47: 404, 60: 404, 62: 400, 81: 404, 159: 408, 193: 401, 194: 401,
    202: 503, 497: 403, 516: 401,
}
CONTENT_TYPES = {
    "TabSeparated": "text/tab-separated-values; charset=UTF-8",
    "JSON": "application/json; charset=UTF-8",
    "JSONEachRow": "application/x-ndjson; charset=UTF-8",
    "CSV": "text/csv; charset=UTF-8; header=absent",
}
PIECE = 1 << 20


def decompress(body):
    """Frames of the native compression: checksum, method, two sizes, data."""
    out, at = [], 0
    while at < len(body):
        method, packed, plain = struct.unpack_from("<BII", body, at + 16)
        data = body[at + 25:at + 16 + packed]
        if method == 0x82:
            out.append(lz4.block.decompress(data, uncompressed_size=plain))
        elif method == 0x02:
            out.append(data)
        else:
            raise ValueError(f"compression method {method:#x} is not known here")
        at += 16 + packed
    return b"".join(out)


class Engine:
    def __init__(self, path, user, password):
        self.path, self.user, self.password = path, user, password
        # Held, so that the engine stays.
        self.keep = _chdb.connect(path)
        self.sessions, self.lock = {}, threading.Lock()
        answer = self.keep.query("SELECT version()", "TSV")
        self.version = bytes(answer.bytes()).decode().strip()

    def connection(self, session):
        """A connection, its lock, and whether it is for one request only."""
        if not session:
            return _chdb.connect(self.path), threading.Lock(), True
        with self.lock:
            if session not in self.sessions:
                self.sessions[session] = (_chdb.connect(self.path), threading.Lock())
            connection, lock = self.sessions[session]
        return connection, lock, False


class Cut(Exception):
    """The client has left inside its body: nothing of it may be done."""


class Handler(BaseHTTPRequestHandler):
    # Without these each answer waits for a delayed acknowledgement.
    protocol_version, disable_nagle_algorithm, wbufsize = "HTTP/1.1", True, 65536
    server_version = "clickhouse.py"
    engine = None

    def log_message(self, *_):
        pass

    def read_body(self):
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            body = b"".join(self.chunks())
        else:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.exactly(length)
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        return body

    def chunks(self):
        while True:
            line = self.rfile.readline()
            if not line:
                raise Cut
            length = int(line.split(b";")[0].strip(), 16)
            data = self.exactly(length)
            self.rfile.readline()
            if length == 0:
                return
            yield data

    def exactly(self, length):
        data = self.rfile.read(length)
        if len(data) < length:
            raise Cut
        return data

    def reply(self, status, body, headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-ClickHouse-Server-Display-Name", "chdb")
        self.send_header("X-ClickHouse-Timezone", "UTC")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def fail(self, message, query_id):
        found = re.search(r"Code: (\d+)", message)
        code = int(found.group(1)) if found else 1002
        if "(version " not in message:
            message = f"{message.rstrip()} (version {self.engine.version} (chdb))"
        self.reply(STATUS.get(code, 500), message.encode() + b"\n", [
            ("X-ClickHouse-Exception-Code", str(code)),
            ("X-ClickHouse-Query-Id", query_id),
            ("Content-Type", "text/plain; charset=UTF-8"),
        ])

    def statement(self, parameters, query, body):
        """What is to be run: the text of a query, or an insert with its format and data."""
        content_type = self.headers.get("Content-Type", "")
        if content_type.startswith("multipart/form-data"):
            return self.multipart(parameters, query, content_type, body), None
        if "query" in query:
            sql = query["query"].encode()
            if query.get("decompress") == "1":
                body = decompress(body)
            insert = re.fullmatch(rb"\s*(INSERT\s.*?)\s+FORMAT\s+(\w+)\s*;?\s*", sql, re.I | re.S)
            if insert:
                return sql, (insert.group(1).decode(), insert.group(2).decode(), body)
            return (sql + b"\n" + body if body else sql), None
        insert = re.match(
            rb"\s*(INSERT\s[^;]*?)\s+FORMAT\s+(?!Values\b)(\w+)[ \t]*\r?\n", body[:PIECE], re.I | re.S)
        if insert and not re.search(rb"\bSELECT\b", insert.group(1), re.I):
            data = body[insert.end():]
            return body, (insert.group(1).decode(), insert.group(2).decode(), data)
        return body, None

    @staticmethod
    def multipart(parameters, query, content_type, body):
        sql = query.get("query", "").encode()
        border = b"--" + content_type.split("boundary=")[1].strip('"').encode()
        for part in body.split(border)[1:-1]:
            head, _, value = part.partition(b"\r\n\r\n")
            name = re.search(rb'name="([^"]*)"', head).group(1).decode()
            value = value[:-2]
            if name == "query":
                sql += value
            elif name.startswith("param_"):
                parameters[name[6:]] = value.decode()
        return sql

    def handle_query(self):
        begun = time.monotonic_ns()
        url = urlsplit(self.path)
        bare = url.path == "/" and not url.query and self.command == "GET"
        if url.path in ("/ping", "/replicas_status") or bare:
            return self.reply(200, b"Ok.\n")
        try:
            body = self.read_body()
        except (Cut, ConnectionError):
            self.close_connection = True
            return None
        pairs = parse_qsl(url.query, keep_blank_values=True)
        query = dict(pairs)
        query_id = query.get("query_id") or str(uuid.uuid4())
        if self.engine.user:
            user = self.headers.get("X-ClickHouse-User") or query.get("user")
            key = self.headers.get("X-ClickHouse-Key") or query.get("password") or ""
            if (user, key) != (self.engine.user, self.engine.password):
                return self.fail(
                    f"Code: 516. DB::Exception: {user}: Authentication failed: password is incorrect,"
                    " or there is no user with such name. (AUTHENTICATION_FAILED)", query_id)
        parameters = {name[6:]: value for name, value in pairs if name.startswith("param_")}
        sql, insert = self.statement(parameters, query, body)
        connection, lock, once = self.engine.connection(query.get("session_id"))
        try:
            with lock:
                self.settings(connection, pairs, query)
                if insert:
                    answer = self.insert(connection, *insert)
                else:
                    form = query.get("default_format", "TabSeparated")
                    answer = connection.query(sql, form, params=parameters)
                if answer.has_error():
                    return self.fail(answer.error_message(), query_id)
                out = bytes(answer.bytes()) if answer.size() else b""
                summary = self.summary(answer, len(out), begun)
        except Exception as error:  # The engine raises RuntimeError for a query that failed.
            return self.fail(str(error), query_id)
        finally:
            if once:
                connection.close()
        form = re.search(rb"\bFORMAT\s+(\w+)\s*;?\s*$", sql[-200:], re.I)
        form = form.group(1).decode() if form else query.get("default_format", "TabSeparated")
        return self.reply(200, out, [
            ("Content-Type", CONTENT_TYPES.get(form, "application/octet-stream")),
            ("X-ClickHouse-Query-Id", query_id),
            ("X-ClickHouse-Format", form),
            ("X-ClickHouse-Summary", summary),
        ])

    @staticmethod
    def settings(connection, pairs, query):
        if query.get("database"):
            connection.query("USE `%s`" % query["database"].replace("`", "\\`"), "Null")
        for name, value in pairs:
            if name not in RESERVED and not name.startswith("param_"):
                value = value.replace("\\", "\\\\").replace("'", "\\'")
                connection.query(f"SET `{name}` = '{value}'", "Null")

    @staticmethod
    def insert(connection, statement, form, data):
        """Data goes by way of a file. In the text of a query it would be cut at two line feeds in a
        row, and the engine's own streaming insert tells nothing of rows that the table refuses."""
        with tempfile.NamedTemporaryFile(prefix="clickhouse-insert-") as file:
            file.write(data)
            file.flush()
            return connection.query(f"{statement} FROM INFILE '{file.name}' FORMAT {form}", "Null")

    @staticmethod
    def summary(answer, length, begun):
        return json.dumps({
            "read_rows": "0", "read_bytes": "0",
            "written_rows": str(answer.rows_written()),
            "written_bytes": str(answer.bytes_written()),
            "total_rows_to_read": "0",
            "result_rows": str(answer.rows_read()), "result_bytes": str(length),
            "elapsed_ns": str(time.monotonic_ns() - begun),
        })

    do_GET = do_POST = do_HEAD = handle_query


class Server(ThreadingHTTPServer):
    daemon_threads, request_queue_size = True, 128


def end_with_input():
    while sys.stdin.buffer.read(PIECE):
        pass
    os._exit(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=8123)
    parser.add_argument("--path", default=":memory:")
    parser.add_argument("--user")
    parser.add_argument("--password", default="")
    parser.add_argument("--until-eof", action="store_true")
    options = parser.parse_args()
    Handler.engine = Engine(options.path, options.user, options.password)
    server = Server(("127.0.0.1", options.port), Handler)
    if options.until_eof:
        threading.Thread(target=end_with_input, daemon=True).start()
    print(f"ready 127.0.0.1:{server.server_address[1]} {Handler.engine.version}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
