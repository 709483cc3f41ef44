"""Comparisons of which all but the first two fail, for the test of the examination; prints what they say."""

from examination.results import Failed, expect_equal_losses, expect_equal_tensors

one, other = ({"w": ("F32", [1], content)} for content in [b"\0\0\x80?", b"\1\0\x80?"])
expect_equal_tensors(one, dict(one))
expect_equal_losses([1.0, 2.0], [1.0, 2.0])
for compare, ours, theirs in [
    (expect_equal_tensors, one, other),
    (expect_equal_tensors, one, {}),
    (expect_equal_tensors, {}, {}),
    (expect_equal_losses, [1.0, 2.0], [1.0, 2.00001]),
    (expect_equal_losses, [1.0, 2.0], [1.0]),
]:
    try:
        compare(ours, theirs)
    except Failed as failed:
        print(failed)
