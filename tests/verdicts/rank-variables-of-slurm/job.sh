needs gnn
# A connector such as srun sets these for all that it starts.
export SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NTASKS=1 SLURM_NNODES=1 SLURM_NODEID=0 SLURM_JOB_ID=77 SLURM_JOB_NAME=train
probe --venv /opt/gnn
plan --num-workers 2 -- python3 train.py
launch --timeout 60s
