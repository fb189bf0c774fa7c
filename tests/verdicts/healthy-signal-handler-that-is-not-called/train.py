print("INFO SIGTERM handler got registered")
print("INFO signal 15 was caught by nobody; going on")
print("training finished")
