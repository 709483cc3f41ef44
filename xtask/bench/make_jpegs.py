"""Makes pictures to measure with: JPEG files of about 500x375 pixels and 70 kB, in ten class folders.

Their spectrum falls as that of photographs does, so that decoding them takes as long: each is a part of two random fields, one
for light and a smoother one for colour.

usage: make_jpegs.py --folder DIR --images N
"""

import argparse
import os
import shutil

import numpy as np
from PIL import Image

# Of the fields, from which the pictures are cut.
SIDE = 2048
CLASSES = 10


def random_field(random, exponent):
    """Noise whose amplitude at each frequency is frequency**-exponent, with mean 0 and standard deviation 1."""
    spectrum = np.fft.rfft2(random.standard_normal((SIDE, SIDE)))
    frequency = np.hypot(np.fft.fftfreq(SIDE)[:, None], np.fft.rfftfreq(SIDE)[None])
    frequency[0, 0] = np.inf
    field = np.fft.irfft2(spectrum * frequency**-exponent, s=(SIDE, SIDE))
    return (field / field.std()).astype(np.float32)


def picture(random, light, colours):
    width, height = (500, 375) if random.random() < 0.75 else (375, 500)
    width, height = (edge + random.integers(-25, 26) for edge in (width, height))
    top, left = random.integers(SIDE - height), random.integers(SIDE - width)
    light, a, b = (field[top : top + height, left : left + width] for field in (light, *colours))
    channels = np.stack([light + 0.4 * a, light - 0.2 * a + 0.2 * b, light - 0.4 * b], axis=-1)
    levels = channels * random.uniform(30, 60) + random.uniform(90, 160, 3)
    return Image.fromarray(levels.clip(0, 255).astype(np.uint8))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", required=True)
    parser.add_argument("--images", type=int, required=True)
    args = parser.parse_args()

    random = np.random.default_rng(0)
    light, colours = random_field(random, 1.2), [random_field(random, 1.6) for _ in range(2)]
    # The folder gets its name when it is complete.
    part = args.folder + ".part"
    shutil.rmtree(part, ignore_errors=True)
    for number in range(args.images):
        folder = os.path.join(part, f"class{number % CLASSES}")
        os.makedirs(folder, exist_ok=True)
        picture(random, light, colours).save(os.path.join(folder, f"{number:06}.jpg"), quality=90)
    os.rename(part, args.folder)


if __name__ == "__main__":
    main()
