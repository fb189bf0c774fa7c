from lightning_fabric import Fabric

fabric = Fabric(accelerator="cpu", devices=2, num_nodes=2, strategy="ddp")
fabric.launch()
print("rank", fabric.global_rank, "of", fabric.world_size)
fabric.barrier()
