"""Archives that others have packed."""

import tarfile


def only_data(archive: tarfile.TarFile) -> tarfile.TarFile:
    """Have an archive unpack data alone: no devices, and nothing outside its folder.

    Python 3.11 can do that from 3.11.4 on; before, all of an archive is unpacked.
    """
    archive.extraction_filter = getattr(tarfile, "data_filter", None)
    return archive
