"""Five domains of digits that need no download: two real ones, one half real, two made in code. See NOTICE beside this.

========= ============================================================= ======= ======
domain    what it is                                                      train   test
========= ============================================================= ======= ======
mnist     real MNIST, white on black                                      3,000  1,000
optical   real UCI optical digits, 8 x 8 enlarged                         1,297    500
blended   other images of real MNIST in photographs and textures          3,000  1,000
numbers   numbers rendered from fonts, the label in the middle            3,000  1,000
street    house numbers rendered in perspective, sun and shade            3,000  1,000
========= ============================================================= ======= ======
"""

from __future__ import annotations

from gated_domains.data.dataset import DomainDataset
from gated_domains.data.digits import blended, kept, mnist, numbers, optical, street
from gated_domains.data.digits.parts import Sizes
from gated_domains.data.errors import DataError
from gated_domains.data.inputs import Images
from gated_domains.data.progress import progress

__all__ = ["digits"]

DOMAINS = ("mnist", "optical", "blended", "numbers", "street")
NOTES = (
    "digits: mnist and optical are real handwriting; blended is real handwriting (other images of MNIST) blended into "
    "photographs and textures in code; numbers and street are rendered from fonts in code",
)


def digits(*, seed: int = 0, cache: bool = True) -> DomainDataset:
    """The embedded data set: images 32 x 32 in colour of the digits 0 to 9, in five domains.

    ``seed`` chooses which half of MNIST is blended, and everything of what is made in code. Making it takes some
    seconds; ``cache`` keeps it for next time.
    """
    if seed < 0:
        raise DataError(f"the seed must not be negative, got {seed}")
    path = kept.kept_at(seed)
    made = kept.read(path) if cache else None
    if made is None:
        made = _made(seed, Sizes())
        if cache:
            kept.write(path, made)
    return DomainDataset(
        name="digits",
        inputs=Images(made.images),
        targets=made.labels,
        class_names=tuple("0123456789"),
        domains=made.domains,
        domain_names=DOMAINS,
        official_test=made.official_test,
        notes=NOTES,
    )


def _made(seed: int, sizes: Sizes) -> kept.Made:
    made_in_code = 3
    with progress("Making digits, once", made_in_code * (sizes.train + sizes.test)) as advance:
        return kept.Made.of(
            (
                mnist.make(seed, sizes),
                optical.make(),
                blended.make(seed, sizes, advance=advance),
                numbers.make(seed, sizes, advance=advance),
                street.make(seed, sizes, advance=advance),
            )
        )
