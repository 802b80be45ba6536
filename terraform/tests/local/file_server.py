"""Files over https, on a port of loopback, with a certificate of its own.

    file_server.py DIRECTORY PORT CERTIFICATE    PEM, with its key
"""

import functools
import http.server
import ssl
import sys

directory, port, certificate = sys.argv[1:]
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=directory)
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate)
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
