import os
import unittest


class Loader(unittest.TestCase):
    @unittest.expectedFailure
    def test_empty_part(self):
        self.assertEqual(os.environ["RANK"], "none")

    def test_raises(self):
        with self.assertRaises(ZeroDivisionError):
            1 / 0

    @unittest.skip("ERROR: needs a GPU")
    def test_gpu(self):
        pass
