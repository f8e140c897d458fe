"""Hand out an app's bundle with signed reviews, as Flower's Hub does, from a machine of one's own.

python -m fl_audit.experiments.examples.review_server APP.fab reviews.json --port 9400 answers the question that a
SuperLink asks of the Hub, if the SuperLink was started with the environment variable
FLWR_SUPERGRID_API_URL=http://127.0.0.1:9400. The file of reviews is read at each question.
"""

import argparse
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from fl_audit.runs.flower_review import read_flower_reviews

_QUESTION = "/hub/fetch-fab"
_BUNDLE = "/bundle.fab"


def review_server(bundle: Path, reviews: Path, port: int = 0) -> ThreadingHTTPServer:
    """Return a server on 127.0.0.1 that hands out a bundle with its reviews; `serve_forever` starts it.

    Parameters
    ----------
    bundle
        The bundle that `flwr build` wrote.
    reviews
        The file of reviews that `fl-audit sign --flower-review` wrote; a missing file stands for no review.
    port
        Port of the server; 0 for a free one.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            # The question is read to its end, so that the connection can be closed.
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.path != _QUESTION:
                self.send_error(404)
                return
            address = f"http://{self.headers['Host']}{_BUNDLE}"
            reviews_found = read_flower_reviews(reviews) if reviews.exists() else []
            self._answer(json.dumps({"fab_url": address, "verifications": reviews_found}).encode())

        def do_GET(self) -> None:
            if self.path != _BUNDLE:
                self.send_error(404)
                return
            self._answer(bundle.read_bytes())

        def _answer(self, content: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


def main() -> None:
    """Serve a bundle with its reviews, with the options of the command line, until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path, help="the bundle that flwr build wrote")
    parser.add_argument("reviews", type=Path, help="the reviews that fl-audit sign --flower-review wrote")
    parser.add_argument("--port", type=int, default=9400)
    chosen = parser.parse_args()
    review_server(chosen.bundle, chosen.reviews, chosen.port).serve_forever()


if __name__ == "__main__":
    main()
