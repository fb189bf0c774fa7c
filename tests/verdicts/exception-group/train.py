import asyncio
import os


async def download(part):
    await asyncio.sleep(0.1)
    if part == 2:
        raise PermissionError(13, "Permission denied", "/data/part2.pt")
    if part == 3:
        raise FileNotFoundError(2, "No such file or directory", "/data/part3.pt")
    await asyncio.sleep(20)


async def main():
    parts = range(4) if os.environ["RANK"] == "1" else range(2)
    async with asyncio.TaskGroup() as group:
        for part in parts:
            group.create_task(download(part))


asyncio.run(main())
