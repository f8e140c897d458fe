"""A picture of one pixel, which stands where a test is not about the drawing."""

import io

from PIL import Image


def _one_pixel() -> bytes:
    file = io.BytesIO()
    Image.new("RGBA", (1, 1)).save(file, format="PNG")  # with the channels of what matplotlib draws
    return file.getvalue()


ONE_PIXEL = _one_pixel()
