import unittest

from shiftplan import gaps, merge, on_duty, parse_shift


class ShiftplanTest(unittest.TestCase):
    def test_merge_keeps_the_longer_end(self):
        self.assertEqual(merge([(480, 960), (540, 600)]), [(480, 960)])

    def test_gap_after_the_last_shift(self):
        self.assertEqual(gaps([(480, 960)], 480, 1080), [(960, 1080)])

    def test_night_shift_after_midnight(self):
        self.assertEqual(on_duty([parse_shift("Ada 22:00-06:00")], 60), ["Ada"])


if __name__ == "__main__":
    unittest.main()
