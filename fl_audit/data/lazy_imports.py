"""Import loaders that need slow packages such as pandas at their first use, so listing data sets is fast."""

from typing import TYPE_CHECKING

from fl_audit.lazy_imports import lazy_modules

PLACES = (
    "fl_audit.data.numpy_archives",
    "fl_audit.data.hugging_face",
    "fl_audit.data.image_folders",
    "fl_audit.data.tables",
)

if TYPE_CHECKING:
    from fl_audit.data import hugging_face as hugging_face
    from fl_audit.data import image_folders as image_folders
    from fl_audit.data import numpy_archives as numpy_archives
    from fl_audit.data import tables as tables
else:
    __getattr__ = lazy_modules(__name__, PLACES)
