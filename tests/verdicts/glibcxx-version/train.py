import os

import sparse

print("rank", os.environ["RANK"], sparse.lib)
