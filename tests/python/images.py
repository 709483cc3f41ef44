"""What Pillow and torchvision make of a photograph in many file formats: what the example images must equal.

    python tests/python/images.py tests/images/grace_hopper.jpg PICTURES expected.safetensors

It writes the files into the folder PICTURES.
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image
from safetensors.torch import save_file
from torch import from_numpy
from torchvision.transforms import CenterCrop, Compose, Normalize, Resize, ToTensor
from torchvision.transforms import functional as F


def write_pictures(photo, folder):
    picture = Image.open(photo).convert("RGB")
    translucent = picture.convert("RGBA")
    translucent.putalpha(picture.convert("L"))
    picture.save(folder / "rgb.png")
    translucent.save(folder / "rgba.png")
    picture.convert("L").save(folder / "grey.png")
    picture.convert("LA").save(folder / "grey_alpha.png")
    picture.quantize(200).save(folder / "palette.png")
    picture.convert("1").save(folder / "black_and_white.png")

    picture.save(folder / "420.jpg", quality=90)
    picture.save(folder / "422.jpg", quality=90, subsampling=1)
    picture.save(folder / "444.jpg", quality=90, subsampling=0)
    picture.save(folder / "coarse.jpg", quality=30)
    picture.save(folder / "progressive.jpg", quality=90, progressive=True)
    picture.save(folder / "restarts.jpg", quality=90, restart_marker_blocks=7)
    picture.convert("L").save(folder / "grey.jpg", quality=90)
    picture.convert("CMYK").save(folder / "cmyk.jpg", quality=90)


def transformed(path):
    picture = Image.open(path).convert("RGB")
    pictures = {
        "decoded": picture,
        "evaluated": Compose([Resize(256), CenterCrop(224)])(picture),
        # Top, left, height, width: as RandomResizedCrop may draw them.
        "shrunk": F.resized_crop(picture, 17, 23, 301, 433, (224, 224)),
        "enlarged": F.resized_crop(picture, 100, 200, 61, 90, (224, 224)),
    }
    normalize = Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    normalized = Compose([CenterCrop(224), ToTensor(), normalize])(picture)
    tensors = {name: from_numpy(np.array(image)) for name, image in pictures.items()}
    return {**tensors, "normalized": normalized}


def main(photo, folder, file):
    folder = Path(folder)
    folder.mkdir()
    write_pictures(photo, folder)
    save_file(
        {
            f"{path.name}/{name}": tensor.contiguous()
            for path in folder.iterdir()
            for name, tensor in transformed(path).items()
        },
        file,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
