import time

time.sleep(2)
print("all parts are there")
