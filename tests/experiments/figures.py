"""What the tests of programs that draw have in common."""

from PIL import Image


def is_figure(path):
    """Whether a file is a whole PNG picture that shows something: text and lines, smoothed, have many colours."""
    with Image.open(path) as image:
        colours = image.convert("RGB").getcolors(image.width * image.height)
        return image.format == "PNG" and len(colours) > 20
